"""Runs the parts of a job: small ones in this process, and the rest on Spark, which starts when it is first needed."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, TypeVar

from pipeline.session import spark_session
from pipeline.tasks import add_up_on_spark, run_on_spark
from pipeline.topic_files import PART_BYTES, PART_FILES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

_THREADS = 4


class Workers:
    """Runs the tasks of a job.

    All together they run in this process if they are no more work than one Spark task should be: then Spark would take
    longer to start than they take. So a job with little work needs neither Spark nor Java.
    """

    def __init__(
        self, start: "Callable[[], SparkSession]", *, most_bytes: int = PART_BYTES, most_files: int = PART_FILES
    ) -> None:
        self._start = start
        self._most_bytes, self._most_files = most_bytes, most_files
        self._session: SparkSession | None = None

    def spark(self) -> "SparkSession":
        """Return the session, which is started at the first call. Raises `JobFailed` if that fails."""
        if self._session is None:
            self._session = self._start()
        return self._session

    def run(self, tasks: Sequence[T], function: Callable[[T], R], *, files: int, size_bytes: int) -> list[R]:
        """Return the results of the function for all tasks, which together read so many files of so many bytes.

        Raises `JobFailed` if a task of Spark fails for good, and in this process any `BraidError` of a task.
        """
        if not tasks:
            return []
        if self._is_light(max(files, len(tasks)), size_bytes):
            return list(_here(tasks, function))
        return run_on_spark(self.spark(), tasks, function)

    def add_up(self, tasks: Sequence[T], function: Callable[[T], R], *, files: int, size_bytes: int) -> R:
        """Return the sum of the results for all tasks, at least one. Large results are not all here at once.

        Errors as `run`.
        """
        if self._is_light(max(files, len(tasks)), size_bytes):
            return reduce(add, _here(tasks, function))
        return add_up_on_spark(self.spark(), tasks, function)

    def _is_light(self, files: int, size_bytes: int) -> bool:
        return files <= self._most_files and size_bytes <= self._most_bytes


def _here(tasks: Sequence[T], function: Callable[[T], R]) -> Iterator[R]:
    """Yield the results in order. In threads: a task on S3 mostly waits. Each has its own event loop and stores."""
    with ThreadPoolExecutor(min(_THREADS, len(tasks))) as executor:
        yield from executor.map(function, tasks)


@contextlib.contextmanager
def workers(job: str, master: str | None) -> Iterator[Workers]:
    """Open workers on this machine and, once needed, on the cluster `master`, as `spark_session` finds it."""
    with contextlib.ExitStack() as stack:
        session: AbstractContextManager[SparkSession] = spark_session(job, master)
        yield Workers(lambda: stack.enter_context(session))
