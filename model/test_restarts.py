"""The model of restarts keeps its promises, and needs each of its safeguards."""

import pytest

from model.explorer import Violation
from model.restarts import REQUESTS, Rules, explore


def test_all_interleavings_keep_the_promises() -> None:
    states, ends = explore(3, Rules())
    assert states > 10_000
    assert any(world.acknowledged == set(REQUESTS) for world in ends)
    # Three processes, one after the other, have written one segment.
    assert any(len({by for _, by in world.segments[0].files}) > 1 and len(world.segments) == 1 for world in ends)
    assert any(len(world.segments) == 3 for world in ends)


@pytest.mark.parametrize(
    ("rules", "promise"),
    [
        (Rules(stops_idle=False), "lost its segment to its own incarnation"),
        (Rules(compares=False), "lost its segment to its own incarnation"),
        (Rules(renames=False), "lost its segment to its own incarnation"),
        (Rules(looks=False), "in the log twice"),
    ],
)
def test_each_safeguard_is_needed(rules: Rules, promise: str) -> None:
    with pytest.raises(Violation, match=promise):
        explore(3, rules)
