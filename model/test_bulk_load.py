"""Every interleaving of small scenes of loads keeps to what is promised; without any one safeguard some do not."""

from dataclasses import fields, replace
from typing import Any

import pytest

from model.bulk_load import (
    Client,
    Commit,
    Maintainer,
    Meddler,
    Publisher,
    Rules,
    Splitter,
    Sweeper,
    TooLarge,
    Violation,
    explore,
)

SCENES: dict[str, list[Any]] = {
    "asked for at two brokers, while somebody publishes": [
        Client("x", rows=1),
        Commit(0, "a"),
        Commit(0, "b"),
        Publisher("p", (0,)),
    ],
    "while segments are split": [Client("x", (0, 1), rows=1), Commit(0, "a"), Splitter((1,)), Publisher("p", (1,))],
    "two loads": [Client("x", rows=1), Client("y", rows=1), Commit(0, "a"), Commit(1, "b"), Publisher("p", (0,))],
    "run again while it is given up": [
        Client("x", rows=1),
        Client("x", rows=1),
        Commit(0, "a"),
        Commit(1, "b"),
        Sweeper("x", looks=2),
    ],
    "written twice, and cut in two ways": [
        Client("x"),
        Client("x", cuts=(1,), backwards=True),
        Commit(0, "a"),
        Commit(1, "b"),
    ],
    "written twice, with more the second time": [
        Client("x", rows=1),
        Client("x", cuts=(1,)),
        Commit(0, "a"),
        Commit(1, "b"),
    ],
    "asked for again when it is rolled up": [Client("x", cuts=(1,)), Commit(0, "a"), Commit(0, "b"), Maintainer("x")],
    "a file that is replaced": [Client("x"), Commit(0, "a"), Commit(0, "b"), Meddler("x")],
    "shapes change until its ids are reached": [Client("x", rows=1), Commit(0, "a"), Splitter((1,)), Splitter(())],
    "given up, and its ids go by": [Client("x", rows=1), Sweeper("x", looks=2), Client("y", rows=1)],
}


PUBLISHED, SPLIT, TWO_LOADS, GIVEN_UP, CUT, MORE, ROLLED_UP, REPLACED, RESPLIT, IDS_PASSED = SCENES

COMMITTED = {
    PUBLISHED: {"x"},
    SPLIT: {"x"},
    TWO_LOADS: {"x", "y", "xy"},
    GIVEN_UP: {"x", ""},
    CUT: {"x", ""},
    MORE: {"x"},
    ROLLED_UP: {"x"},
    REPLACED: {"x", ""},
    RESPLIT: {"x", ""},
    IDS_PASSED: {""},
}
"""The loads that are committed in the end, in one interleaving or another."""

CAUGHT = [
    ("seals_what_is_open", SPLIT, "a segment that was sealed has another end"),
    ("seals_the_load", MORE, "a segment that was sealed has another end"),
    ("compares_seals", MORE, "a segment that was sealed has another end"),
    ("compares_and_swaps", RESPLIT, "an id was used twice"),
    ("looks_again_at_files", REPLACED, "an adopted load is not whole"),
    ("adopts_what_is_reserved", GIVEN_UP, "whose load was not adopted"),
    ("refuses_what_is_overtaken", TWO_LOADS, "what was published before a load comes after it"),
    ("opens_above_the_load", PUBLISHED, "what was published after a load comes before it"),
    ("passes_by_reserved_ids", RESPLIT, "an id was used twice"),
    ("keeps_ids_given_up", IDS_PASSED, "an id was used twice"),
    ("spares_what_is_adopted", CUT, "an adopted load is not whole"),
    ("sweeps_by_the_record", GIVEN_UP, "a segment that was sealed has another end"),
    ("looks_before_refusing", ROLLED_UP, "a load was refused that is adopted"),
    ("windows_go_through_loads", PUBLISHED, "a message is there twice"),
]


@pytest.mark.parametrize("scene", SCENES)
def test_every_interleaving(scene: str) -> None:
    explored = explore(SCENES[scene], Rules())
    committed = {"".join(sorted(load.id for load in told.committed)) for told in explored.outcomes}
    assert committed == COMMITTED[scene]
    assert not any(told.refused_though_adopted for told in explored.outcomes)


@pytest.mark.parametrize(("safeguard", "scene", "complaint"), CAUGHT)
def test_each_safeguard_is_needed(safeguard: str, scene: str, complaint: str) -> None:
    with pytest.raises(Violation, match=complaint):
        explore(SCENES[scene], replace(Rules(), **{safeguard: False}))


def test_every_safeguard_is_taken_away_once() -> None:
    assert [safeguard for safeguard, _, _ in CAUGHT] == [field.name for field in fields(Rules)]


def test_a_violation_tells_how_it_came_about() -> None:
    with pytest.raises(Violation) as caught:
        explore(SCENES[SPLIT], Rules(seals_what_is_open=False))
    complaint, *way = str(caught.value).splitlines()
    assert complaint == "a segment that was sealed has another end:"
    assert way[-1] == "Message(by='p', number=0, slot=1) is stored at Position(segment=0, offset=0)"
    assert "the leader ends the transition" in way


def test_what_is_too_large_is_not_passed_over() -> None:
    with pytest.raises(TooLarge, match="more than 100 states"):
        explore(SCENES[PUBLISHED], Rules(), most_states=100)
