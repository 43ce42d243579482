"""A stall is told by the producer that waited longest."""

from tests.cluster.checker.history import Attempt, Fault, History, Request, Sent
from tests.cluster.checker.stalls import longest_stall_seconds


def acknowledged(producer: str, topic: str, *times: float) -> list[Request]:
    return [
        Request(producer, topic, (Sent(producer, n),), [Attempt("u", at, at, "acknowledged", ((0, n, 1),))])
        for n, at in enumerate(times)
    ]


HISTORY = History(requests=[*acknowledged("p", "t", 0, 1, 2, 9, 10, 30), *acknowledged("q", "other", 0, 4, 8, 12)])


def test_the_longest_gap_that_the_fault_fell_into() -> None:
    assert longest_stall_seconds(HISTORY, Fault("kill", 3.0, 5.0)) == 7.0
    assert longest_stall_seconds(HISTORY, Fault("kill", 1.5, 11.0)) == 20.0
    assert longest_stall_seconds(HISTORY, Fault("kill", 0.5, 1.0)) == 4.0
    assert longest_stall_seconds(HISTORY, Fault("kill", 3.0, None)) == 20.0


def test_of_one_topic() -> None:
    assert longest_stall_seconds(HISTORY, Fault("kill", 3.0, 5.0), topic="other") == 4.0


def test_nobody_published() -> None:
    assert longest_stall_seconds(History(), Fault("kill", 3.0, 5.0)) == 0.0
