"""The model of memberships keeps its promises, and needs each of its safeguards."""

import pytest

from model.explorer import Violation
from model.memberships import Rules, Scene, World, explore, fold

MOVED = Scene(events=0)
FAILED_OVER = Scene(moves=0)
SUCCEEDED = Scene(lengths=(1, 1), events=0, moves=0, ticks=0)
RESTARTED = Scene(lengths=(2,), members=1, restarts=1, events=0, moves=0, ticks=0)
RENOUNCED = Scene(ticks=0, late=1)
DELAYED = Scene(events=0, late=1)
RESTARTED_AND_FAILED_OVER = Scene(members=1, restarts=1, moves=0, ticks=0)


def is_committed(world: World, scene: Scene) -> bool:
    """Whether all messages are."""
    return fold(world.log).positions[: len(scene.lengths)] == scene.lengths


@pytest.mark.parametrize(
    ("scene", "fewest"),
    [
        (MOVED, 2_000),
        (FAILED_OVER, 50_000),
        (SUCCEEDED, 50),
        (RESTARTED, 200),
        (RESTARTED_AND_FAILED_OVER, 5_000),
        (DELAYED, 10_000),
        (RENOUNCED, 50_000),
    ],
)
def test_all_interleavings_keep_the_promises(scene: Scene, fewest: int) -> None:
    states, ends = explore(scene, Rules())
    assert states > fewest
    assert any(is_committed(world, scene) for world in ends)
    # A segment was given away again: to another member, or to another start of the same.
    assert scene is SUCCEEDED or any(max(fold(world.log).epochs) > 1 and is_committed(world, scene) for world in ends)


@pytest.mark.parametrize(
    ("scene", "rules", "promise"),
    [
        (FAILED_OVER, Rules(fences=False), "accepted is refused"),
        (MOVED, Rules(tells_when_durable=False), "not in the log"),
        (MOVED, Rules(compares_epochs=False), "somebody else has the segment"),
        (MOVED, Rules(remembers_commits=False), "accepted is refused"),
        (MOVED, Rules(lets_go_first=False), "with two members"),
        (DELAYED, Rules(names_releases=False), "with two members"),
        (RENOUNCED, Rules(renounces=False), "with two members"),
        (FAILED_OVER, Rules(waits_out_sessions=False), "with two members"),
        (SUCCEEDED, Rules(drains_first=False), "before its predecessors"),
        (RESTARTED, Rules(renews_epochs=False), "under one epoch"),
        (MOVED, Rules(decides_once=False), "with two members"),
    ],
)
def test_each_safeguard_is_needed(scene: Scene, rules: Rules, promise: str) -> None:
    with pytest.raises(Violation, match=promise):
        explore(scene, rules)
