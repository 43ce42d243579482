"""The model of giving up keeps its promises, and needs each of its safeguards."""

import pytest

from model.explorer import Violation
from model.repair import FILES, Maintainer, Meddler, Name, Reader, Repairer, Rules, explore

EVERYBODY = (Maintainer(), Meddler(), Repairer(), Reader())


def test_all_interleavings_keep_the_promises() -> None:
    states, ends = explore(EVERYBODY, Rules())
    assert states > 500
    assert any(world.given_up for world in ends)
    assert any(world.given_up and not world.store >= FILES and Name(0, 3) in world.store for world in ends)


@pytest.mark.parametrize(
    ("rules", "promise"),
    [
        (Rules(masks_put_back=False), "read that had been given up"),
        (Rules(masks_overlapping=False), "read that had been given up"),
        (Rules(acts_in_time=False), "that nobody had taken away|that was not given up is gone"),
        (Rules(asks_before_deleting=False), "that was not given up is gone"),
    ],
)
def test_each_safeguard_is_needed(rules: Rules, promise: str) -> None:
    with pytest.raises(Violation, match=promise):
        explore(EVERYBODY, rules)


def test_two_repairers_give_up_no_more_than_one() -> None:
    _, ends = explore((Meddler(), Repairer(), Repairer(), Reader()), Rules())
    assert max(len(world.given_up) for world in ends) == 1
