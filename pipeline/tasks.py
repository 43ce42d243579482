"""Runs the parts of a job as Spark tasks, with progress on stderr and the failure of a task as one line."""

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
    """Call the function for each item in a Spark task of its own. Raises `JobFailed` if a task fails for good."""
    with watched(spark):
        return task_rdd(spark, tasks).map(function).collect() if tasks else []


def task_rdd(spark: "SparkSession", tasks: Sequence[T]) -> "RDD[T]":
    """The items as an RDD with one partition, hence one Spark task, for each."""
    return spark.sparkContext.parallelize(tasks, len(tasks))


@contextlib.contextmanager
def watched(spark: "SparkSession") -> Iterator[None]:
    """Print from time to time how many of the block's tasks are done. Raises `JobFailed` if one fails."""
    ended = threading.Event()
    reporter = threading.Thread(target=_report_progress, args=(spark.sparkContext, ended), daemon=True)
    reporter.start()
    try:
        with spark_failures():
            yield
    finally:
        ended.set()
        reporter.join()


@contextlib.contextmanager
def spark_failures() -> Iterator[None]:
    """Raise a failure of Spark in the block as a `JobFailed` of one line."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:
        raise JobFailed(reason_of(str(error.java_exception.getMessage()))) from error
    except PySparkException as error:
        raise JobFailed(reason_of(str(error))) from error


def reason_of(message: str) -> str:
    """The message of the Python exception that made a task fail; for other failures, their first line."""
    lines = [line.strip() for line in message.partition("\n\tat ")[0].splitlines() if line.strip()]
    if lines and lines[-1].startswith("SQLSTATE: "):
        lines.pop()
    raised = _RAISED.fullmatch(lines[-1]) if lines else None
    if raised is not None and "Traceback (most recent call last):" in message:
        # The task was pickled with the packages of this machine.
        is_missing = raised[1] == "ModuleNotFoundError"
        return f"{raised[2]} on a worker of Spark: install there what is installed here" if is_missing else raised[2]
    return lines[0] if lines else "a Spark task failed without a message"


def _report_progress(context: "SparkContext", ended: threading.Event) -> None:
    tracker = context.statusTracker()
    shown = 0, 0
    while not ended.wait(PROGRESS_SECONDS):
        found = (tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds())
        stages = [stage for stage in found if stage is not None]
        done = sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
        if done[0] and done != shown:
            say(f"{done[0]:,} of {done[1]:,} tasks done")
            shown = done
