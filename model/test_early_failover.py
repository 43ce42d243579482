"""The model of early failovers keeps its promises, and needs each of its safeguards."""

from collections.abc import Sequence
from functools import cache

import pytest

from model.early_failover import Rules, World, explore
from model.explorer import Violation

STORED, FOLLOWED = (False,), (True,)
BOTH = (False, True)


@cache
def explored(followed: tuple[bool, ...], messages: int, events: int) -> tuple[int, set[World]]:
    return explore(followed, Rules(), messages=messages, events=events)


def lives_on(world: World) -> bool:
    """Whether the owner was failed over while it lived and its session went on."""
    return bool(world.placed) and world.owner.lives


@pytest.mark.parametrize(
    ("followed", "messages", "events", "fewest"),
    [(STORED, 2, 4, 10_000), (FOLLOWED, 2, 4, 100_000), (BOTH, 1, 3, 50_000)],
)
def test_all_interleavings_keep_the_promises(
    followed: tuple[bool, ...], messages: int, events: int, fewest: int
) -> None:
    states, ends = explored(followed, messages, events)
    assert states > fewest
    assert any(lives_on(world) for world in ends)
    # One that lives may have acknowledged everything in time, or have been overtaken by the seal.
    assert any(lives_on(world) and world.segments[0].acknowledged == messages for world in ends)
    assert any(lives_on(world) and world.segments[0].acknowledged < world.segments[0].accepted for world in ends)


def test_a_segment_that_cannot_be_sealed_is_left_out() -> None:
    _, ends = explored(BOTH, messages=1, events=3)
    assert any(world.placed == ((0, "leader"),) and not world.segments[1].sealed for world in ends)


@pytest.mark.parametrize(
    ("followed", "rules", "promise"),
    [
        (STORED, Rules(fences=False), "not in the log"),
        (FOLLOWED, Rules(follower_refuses=False), "not in the log"),
        (FOLLOWED, Rules(waits_for_sessions=False), "not in the log"),
        (STORED, Rules(asks_a_witness=False), "is there loses its segments"),
        (STORED, Rules(looks_again=False), "is there loses its segments"),
        (STORED, Rules(listens=False), "is there loses its segments"),
        (BOTH, Rules(leaves_out=False), "waits for one that cannot be sealed"),
        (STORED, Rules(places_elsewhere=False), "with a broker that refuses"),
    ],
)
def test_each_safeguard_is_needed(followed: Sequence[bool], rules: Rules, promise: str) -> None:
    with pytest.raises(Violation, match=promise):
        explore(followed, rules, messages=2 - (followed == BOTH), events=3)
