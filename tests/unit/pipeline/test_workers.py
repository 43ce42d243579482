import pytest

from pipeline.workers import Workers
from tests.support.spark.workers import HERE


class SparkStarted(Exception):
    pass


def start_spark() -> None:
    raise SparkStarted


def is_here(workers: Workers, *, tasks: int = 2, files: int, size_bytes: int) -> bool:
    try:
        return workers.run(range(tasks), str, files=files, size_bytes=size_bytes) == [
            str(each) for each in range(tasks)
        ]
    except SparkStarted:
        return False


@pytest.mark.parametrize(
    ("tasks", "files", "size_bytes", "here"),
    [(2, 10, 100, True), (2, 11, 100, False), (2, 10, 101, False), (11, 1, 1, False), (0, 11, 101, True)],
)
def test_what_is_one_tasks_work_is_done_without_spark(tasks: int, files: int, size_bytes: int, here: bool) -> None:
    workers = Workers(start_spark, most_files=10, most_bytes=100)
    assert is_here(workers, tasks=tasks, files=files, size_bytes=size_bytes) == here


def test_sums_are_of_all_tasks() -> None:
    assert HERE.add_up([1, 2, 3], lambda number: 2 * number, files=3, size_bytes=3) == 12


def test_a_task_that_fails_is_told_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        HERE.run([1, 0], lambda number: 1 // number, files=2, size_bytes=2)


def test_spark_is_started_once() -> None:
    started: list[int] = []

    def start() -> object:
        started.append(1)
        return started

    workers = Workers(start)
    assert workers.spark() is workers.spark() is started
    assert len(started) == 1
