"""Runs the parts of a job as Spark tasks, with progress on stderr and the failure of a task as one line."""

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING, TypeVar

from filer.clock import Clock, SystemClock
from pipeline.errors import JobFailed
from pipeline.output import counted, duration, say

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

PROGRESS_SECONDS = 5.0
_LOOK_SECONDS = 0.5
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*([A-Z]\w*): (.+)")


def run_on_spark(spark: "SparkSession", tasks: Sequence[T], function: Callable[[T], R]) -> list[R]:
    """Call the function for each item in a Spark task of its own. Raises `JobFailed` if a task fails for good."""
    with watched(spark):
        return task_rdd(spark, tasks).map(function).collect()


def task_rdd(spark: "SparkSession", tasks: Sequence[T]) -> "RDD[T]":
    """Return the items as an RDD with one partition, hence one Spark task, for each."""
    return spark.sparkContext.parallelize(tasks, len(tasks))


def add_up_on_spark(spark: "SparkSession", tasks: Sequence[T], function: Callable[[T], R]) -> R:
    """As `run_on_spark`, but the sum of the results, which Spark's tasks add up. There is at least one task."""
    with watched(spark):
        return task_rdd(spark, tasks).map(function).treeReduce(add)


@contextlib.contextmanager
def watched(spark: "SparkSession") -> Iterator[None]:
    """Print every few seconds how far the block's tasks are. Raises `JobFailed` if one fails."""
    ended = threading.Event()
    reporter = threading.Thread(target=_report_progress, args=(spark.sparkContext, SystemClock(), ended), daemon=True)
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
    """Return the message of the Python exception that made a task fail; for other failures, their first line."""
    lines = [line.strip() for line in message.partition("\n\tat ")[0].splitlines() if line.strip()]
    if lines and lines[-1].startswith("SQLSTATE: "):
        lines.pop()
    raised = _RAISED.fullmatch(lines[-1]) if lines else None
    if raised is not None and "Traceback (most recent call last):" in message:
        # The task was pickled with the packages of this machine.
        is_missing = raised[1] == "ModuleNotFoundError"
        return f"{raised[2]} on a worker of Spark: install there what is installed here" if is_missing else raised[2]
    return lines[0] if lines else "a Spark task failed without a message"


@dataclass(frozen=True, slots=True)
class Step:
    """The present stages of Spark: how many of their tasks are done, and how many run."""

    stages: tuple[int, ...]
    done: int
    running: int
    total: int


class ProgressLines:
    """Reports how far a job is, every `PROGRESS_SECONDS`. The end of a step is estimated from the finished tasks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_seconds = self._step_began_seconds = self._told_seconds = clock.monotonic_seconds()
        self._stages: tuple[int, ...] = ()

    def line(self, step: Step) -> str | None:
        """Return the line about the present step; None if it is not time for one yet."""
        now_seconds = self._clock.monotonic_seconds()
        if step.stages != self._stages:
            self._stages, self._step_began_seconds = step.stages, now_seconds
        if now_seconds - self._told_seconds < PROGRESS_SECONDS:
            return None
        self._told_seconds = now_seconds
        so_far = f"{duration(now_seconds - self._began_seconds)} so far"
        if not step.stages:
            return f"no task of Spark runs right now; {so_far}"
        return f"{_tasks(step, now_seconds - self._step_began_seconds)}; {so_far}"


def _tasks(step: Step, seconds: float) -> str:
    text = f"{step.done:,} of {counted(step.total, 'task')} done, {step.running:,} running"
    if not step.done or seconds <= 0:
        return text
    left = duration(seconds / step.done * (step.total - step.done))
    return f"{text}, {step.done / seconds * 60:,.1f} per minute, about {left} left in this step"


def _report_progress(context: "SparkContext", clock: Clock, ended: threading.Event) -> None:
    tracker, lines = context.statusTracker(), ProgressLines(clock)
    while not ended.wait(_LOOK_SECONDS):
        ids = tuple(sorted(tracker.getActiveStageIds()))
        stages = [stage for each in ids if (stage := tracker.getStageInfo(each)) is not None]
        step = Step(
            ids,
            sum(stage.numCompletedTasks for stage in stages),
            sum(stage.numActiveTasks for stage in stages),
            sum(stage.numTasks for stage in stages),
        )
        if (line := lines.line(step)) is not None:
            say(line)
