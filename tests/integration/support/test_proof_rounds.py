"""The choices of `make prove`: every kind of fault comes up, any round can be repeated, and all stores take turns."""

import random
from collections import Counter
from itertools import islice
from pathlib import Path
from unittest.mock import Mock

import pytest

from filer import keys
from tests.cluster.checker.history import Fault, History
from tests.cluster.faults.decks import Deck
from tests.cluster.faults.faults import KINDS
from tests.cluster.faults.object_faults import CLOCK_FAULTS, OBJECT_FAULTS, place_of
from tests.cluster.faults.prove_rounds import Draws, Round, legs
from tests.support.store.object_faults import Kind


def test_a_deck_gives_every_card_as_often_as_any_other() -> None:
    deck = Deck("abcd", random.Random(1))
    assert Counter(deck.draw(3)) + Counter(deck.draw(5)) == Counter("aabbccdd")
    assert list(Deck("abcdefgh", random.Random(1)).draw(8)) != list("abcdefgh")


@pytest.mark.parametrize("store", ["directory", "s3"])
def test_all_kinds_come_up_within_an_hour(store: str) -> None:
    drawn = Counter(kind.name for number in range(9) for kind in Draws(7).faults(store, number))
    wanted = [kind for kind in (*KINDS, *OBJECT_FAULTS, *CLOCK_FAULTS) if store == "s3" or "s3" not in kind.needs]
    assert set(drawn) == {kind.name for kind in wanted}


def test_a_round_draws_the_same_whether_others_went_before_or_not() -> None:
    assert [kind.name for kind in Draws(7).faults("s3", 3)] == [kind.name for kind in Draws(7).faults("s3", 3)]
    assert Draws(7).faults("s3", 3) != Draws(7).faults("s3", 4)
    assert len({Draws(seed).round_seed(number) for seed in (1, 2) for number in range(50)}) == 100


def test_the_stores_take_turns() -> None:
    assert list(islice(legs({"directory": 2, "s3": 1}, 1), 4)) == [
        ("directory", [1, 2], 0),
        ("s3", [3], 0),
        ("directory", [4, 5], 2),
        ("s3", [6], 1),
    ]


def test_a_run_that_begins_later_has_the_same_rounds() -> None:
    assert list(islice(legs({"directory": 2, "s3": 1}, 5), 3)) == [
        ("directory", [5], 3),
        ("s3", [6], 1),
        ("directory", [7, 8], 4),
    ]


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("topics/t/segments/segment=12/00000000000000000345.parquet", (12, 345)),
        ("topics/t/segments/segment=1/00000000000000000000-00000000000000000009.parquet", (1, 0)),
        ("topics/t/topic.json", None),
        ("topics/t/index/1.snapshot", None),
    ],
)
def test_where_the_messages_of_an_object_begin(key: str, place: tuple[int, int] | None) -> None:
    assert place_of(key) == place


def test_only_kinds_that_a_round_has_are_damaged() -> None:
    without: Kind = "history"
    assert not any(without in kind.name for kind in OBJECT_FAULTS)


async def test_each_round_is_judged_by_its_own_topics_and_faults(tmp_path: Path) -> None:
    """A cluster goes on for several rounds, and knows what was done to the topics of all of them."""
    said = ["stored-1: version 5: follows version 5", "replicated-2: version 7: follows version 7", "stored-2: bad"]
    one = Round(Mock(topic_complaints=lambda: said), "directory", 2, seed=7, folder=tmp_path)
    await one.judge(History(faults=[Fault("older-topic.json", 1.0, 2.0, key=keys.topic("replicated-2"))]))
    assert one.complaints == ["stored-2: bad"]
