"""The model of restarts keeps its promises, and needs each of its safeguards."""

import pytest

from model.explorer import Violation
from model.restarts import (
    LOST_TO_ITSELF,
    REQUESTS,
    STOLEN,
    Actor,
    Meddler,
    Process,
    Record,
    Rules,
    Segment,
    Thief,
    World,
    explore,
)

THREE = [Process(number) for number in (1, 2, 3)]


def test_all_interleavings_keep_the_promises() -> None:
    states, ends = explore(THREE, Rules())
    assert states > 10_000
    assert any(world.acknowledged == set(REQUESTS) for world in ends)
    # Three processes, one after the other, have written one segment.
    assert any(
        len(world.segments) == 1 and len({by for _, by in world.segments[0].files}) > 1 and world.record.stopped
        for world in ends
    )
    assert any(len(world.segments) == 3 for world in ends)
    # Whoever does not use the topic leaves it as it is, cleanly stopped or killed.
    assert any(not world.segments and world.record.version for world in ends)


def test_a_version_that_does_not_know_the_record_may_run_in_between_or_beside() -> None:
    _, ends = explore([Process(1), Process(2, knows=False), Process(3)], Rules())
    assert any(len(world.segments) == 3 for world in ends)
    assert any(world.record.stopped and len(world.segments) == 1 for world in ends)


def test_an_older_record_that_is_put_back_loses_and_doubles_nothing() -> None:
    """So two processes of one incarnation may run at the same time."""
    stopped = World(Record(5, True, 1), (Segment(5),))
    states, _ = explore([Process(1), Process(2), Meddler()], Rules(), stopped)
    assert states > 10_000


def test_what_was_stolen_after_a_clean_stop_is_not_written_over() -> None:
    actors: list[Actor] = [Process(1), Process(2), Thief()]
    _, ends = explore(actors, Rules())
    # The log goes on behind it.
    assert any(len(world.segments) == 1 and STOLEN in world.segments[0].files[:-1] for world in ends)


@pytest.mark.parametrize(
    ("rules", "promise"),
    [
        (Rules(stops_idle=False), LOST_TO_ITSELF),
        (Rules(compares=False), LOST_TO_ITSELF),
        (Rules(renames=False), LOST_TO_ITSELF),
        (Rules(looks=False), "in the log twice"),
        (Rules(tells_end=False), "has the offset of the stolen one"),
    ],
)
def test_each_safeguard_is_needed(rules: Rules, promise: str) -> None:
    actors: list[Actor] = [Process(1), Process(2), Thief()] if not rules.tells_end else [*THREE]
    with pytest.raises(Violation, match=promise):
        explore(actors, rules)
