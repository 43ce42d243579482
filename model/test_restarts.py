"""The model of restarts keeps its promises, and needs each of its safeguards."""

import pytest

from model.explorer import Violation
from model.restarts import (
    GONE,
    LOST_TO_ITSELF,
    REQUESTS,
    Actor,
    Keeper,
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
    assert any(len(world.segments) == 1 and GONE in world.segments[0].files[:-1] for world in ends)


ONE_INCARNATION: list[Actor] = [Process(1), Process(2), Meddler(), Keeper()]
NOTHING_YET = World(Record(5, True, 1))


def test_upkeep_of_what_has_no_owner_takes_nothing_from_an_owner_that_lives() -> None:
    _, ends = explore([Process(1), Process(2), Keeper()], Rules())
    # The first goes on behind the roll-up, and another one seals behind it.
    assert any(world.segments and len(world.segments[0].log) > len(world.segments[0].rolled) > 0 for world in ends)
    assert any(len(world.segments) == 2 and world.segments[0].rolled and world.segments[1].files for world in ends)


def test_nor_does_it_where_two_have_one_incarnation() -> None:
    _, ends = explore(ONE_INCARNATION, Rules(), NOTHING_YET)
    # A put has come late, under a name that was free again.
    assert any(
        segment.rolled and segment.files[0] not in (GONE, segment.rolled[0])
        for world in ends
        for segment in world.segments
    )


@pytest.mark.parametrize(
    "rules", [Rules(proves=False), Rules(lists=False), Rules(waits=False)], ids=["proves", "lists", "waits"]
)
def test_upkeep_needs_each_of_its_safeguards(rules: Rules) -> None:
    with pytest.raises(Violation, match="is not in the log"):
        explore(ONE_INCARNATION, rules, NOTHING_YET)


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
