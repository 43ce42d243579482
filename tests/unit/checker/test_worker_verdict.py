"""The verdict on handlers of a group that keeps the order of keys: what may be, and each way in which it may not."""

import pytest

from tests.cluster.group_storms.worker_runs import Line
from tests.cluster.group_storms.worker_verdict import judge


def line(what: str, index: int = 0, *, worker: str = "a", run: str = "1") -> Line:
    return Line(what=what, worker=worker, run=run, key="k", index=index)


def complaints(*lines: Line) -> list[str]:
    return judge(lines, each=2, keys=1).complaints


ALL_DONE = [line("began", 0), line("done", 0), line("began", 1, run="2"), line("done", 1, run="2")]


def test_one_after_the_other_is_clean() -> None:
    assert complaints(*ALL_DONE) == []


def test_a_failure_and_a_killed_worker_are_clean_if_the_message_comes_again() -> None:
    cut = [line("began", 0, worker="b"), line("dead", worker="b")]
    assert complaints(line("began", 0), line("failed", 0), *cut, *ALL_DONE) == []


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([line("began", 0), line("began", 1, run="2")], "began while [0] ran"),
        ([line("began", 1)], "began before 0 was done"),
        ([line("began", 0), line("failed", 0), line("began", 1, run="2")], "began before 0 was done"),
        ([line("began", 0), line("done", 0)], "key k: 1 was never done"),
    ],
)
def test_what_may_not_be(lines: list[Line], says: str) -> None:
    assert any(says in each for each in complaints(*lines))
