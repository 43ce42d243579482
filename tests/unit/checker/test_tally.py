"""A verdict in numbers."""

import random

import pytest

from tests.cluster.checker.history import Gap, History, Reader, Visit
from tests.cluster.checker.tally import Tally, tally
from tests.unit.checker.simulated_history import Simulation

COMPLAINTS = {
    "t: final at b0: lost: Sent(key='k', number=0) was acknowledged and is not there": "lost",
    "t: skipped: r at b0: segment 0 goes on at 4, not 3": "skipped",
    "t: went back: r at b0: segment 0 gave 2, not 3": "skipped",
    "t: not seen: Sent(key='k', number=0) was acknowledged, r read to the end without it": "lost",
    "t: final at b0: doubled: Sent(key='k', number=0) is there 2 times": "doubled",
    "t: r: out of order: Sent(key='k', number=0) after number 1 of its key": "reordered",
    "t: entered early: r was given 1-0 with segment 0 read to 1 of 2": "reordered",
    "t: divergent: r has b'k 7' at (0, 6), where s has b'k 1'": "divergent",
    "t: false alarm: r was told by b0 of Gap(key='k'), which nobody had touched": "alarms",
    "t: final at b0: moved: Sent(key='k', number=0) stands at (0, 1)": "answers",
    "stopped: NoProgress: in 90 s": "stopped",
    "anything new": "wrong",
}


@pytest.mark.parametrize(("complaint", "meaning"), COMPLAINTS.items())
def test_a_complaint_counts_by_its_meaning(complaint: str, meaning: str) -> None:
    counted = tally(History(), [complaint])
    assert counted == Tally(**{meaning: 1})
    assert not counted.clean


def test_what_is_told_is_clean() -> None:
    visit = Visit("b0", 0, 0.0, told=[Gap("k", 0, 0, 1), Gap("k", 0, 0, 1)])
    history = History(readers=[Reader("r", "t", "browse", visits=[visit])])
    assert tally(history, []) == Tally(told=2)
    assert tally(history, []).clean


def test_sums() -> None:
    history = Simulation(random.Random(1)).run()
    one = tally(history, [])
    assert one.acknowledged == history.count("acknowledged") > 0
    assert one + one + Tally(lost=1) == Tally(acknowledged=2 * one.acknowledged, lost=1)
