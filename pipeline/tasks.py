"""Running the parts of a job as Spark tasks: progress on stderr, and a task's failure as one line."""

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from pipeline.errors import JobFailed
from pipeline.output import say

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

PROGRESS_SECONDS = 5.0
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*([A-Z]\w*): (.+)")


def run_tasks(spark: "SparkSession", tasks: Sequence[T], function: Callable[[T], R]) -> list[R]:
    """What the function gives for each, a Spark task each. Raises `JobFailed` where one fails for good."""
    with watched(spark):
        return spread(spark, tasks).map(function).collect() if tasks else []


def spread(spark: "SparkSession", tasks: Sequence[T]) -> "RDD[T]":
    """The tasks, each a partition of its own."""
    return spark.sparkContext.parallelize(tasks, len(tasks))


@contextlib.contextmanager
def watched(spark: "SparkSession") -> Iterator[None]:
    """Tell how many of the tasks begun in the block are done, now and then; what fails in one is a `JobFailed`."""
    ended = threading.Event()
    teller = threading.Thread(target=_tell, args=(spark.sparkContext, ended), daemon=True)
    teller.start()
    try:
        with spark_failures():
            yield
    finally:
        ended.set()
        teller.join()


@contextlib.contextmanager
def spark_failures() -> Iterator[None]:
    """What Spark fails with in the block is a `JobFailed`, in one line."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:
        raise JobFailed(reason_of(str(error.java_exception.getMessage()))) from error
    except PySparkException as error:
        raise JobFailed(reason_of(str(error))) from error


def reason_of(message: str) -> str:
    """What the Python exception said that made a task fail; the first line of what is none."""
    lines = [line.strip() for line in message.partition("\n\tat ")[0].splitlines() if line.strip()]
    if lines and lines[-1].startswith("SQLSTATE: "):
        lines.pop()
    raised = _RAISED.fullmatch(lines[-1]) if lines else None
    if raised is not None and "Traceback (most recent call last):" in message:
        # The task was made of what this machine has.
        is_missing = raised[1] == "ModuleNotFoundError"
        return f"{raised[2]} on a worker of Spark: install there what is installed here" if is_missing else raised[2]
    return lines[0] if lines else "a Spark task failed and did not say why"


def _tell(context: "SparkContext", ended: threading.Event) -> None:
    tracker = context.statusTracker()
    told = 0, 0
    while not ended.wait(PROGRESS_SECONDS):
        found = (tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds())
        stages = [stage for stage in found if stage is not None]
        done = sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
        if done[0] and done != told:
            say(f"{done[0]:,} of {done[1]:,} tasks done")
            told = done
