"""A name is in one group at most, and no topic besides; without any one safeguard messages get lost."""

from dataclasses import fields, replace
from typing import Any

import pytest

from model.explorer import Violation
from model.topic_groups import Creator, Deleter, Publisher, Putter, Rules, explore

SCENES: dict[str, list[Any]] = {
    "two groups want one name": [Putter("g"), Putter("h"), Publisher(), Publisher()],
    "one group is put twice": [Putter("g"), Putter("g"), Publisher(), Publisher()],
    "a topic is made meanwhile": [Putter("g"), Creator(), Publisher(), Publisher()],
    "a topic is made and deleted meanwhile": [Putter("g"), Creator(deletes=True), Publisher(), Publisher()],
    "a group is deleted and made again": [Putter("g"), Putter("g"), Deleter("g"), Publisher(), Publisher()],
    "and a topic is made of its name": [Putter("g"), Putter("g"), Deleter("g"), Creator(), Publisher()],
    "and another group takes it": [Putter("g"), Putter("g"), Deleter("g"), Putter("h"), Publisher()],
    "both are deleted": [Putter("g"), Putter("h"), Deleter("g"), Deleter("h"), Publisher()],
}
UNREAD, NOT_IN = "is not read by its name", "m was told to be in"
CAUGHT = [
    ("numbers_groups", "and a topic is made of its name", UNREAD),
    ("looks_at_the_group", "two groups want one name", NOT_IN),
    ("compares_the_record", "two groups want one name", NOT_IN),
    ("refuses_topics", "a topic is made meanwhile", UNREAD),
]


@pytest.mark.parametrize("scene", SCENES)
def test_the_promises_are_kept(scene: str) -> None:
    states, ends = explore(SCENES[scene], Rules())
    assert states > 100 and ends


@pytest.mark.parametrize(("rule", "scene", "broken"), CAUGHT, ids=[rule for rule, _, _ in CAUGHT])
def test_each_safeguard_is_needed(rule: str, scene: str, broken: str) -> None:
    with pytest.raises(Violation, match=broken):
        explore(SCENES[scene], replace(Rules(), **{rule: False}))


def test_no_safeguard_is_left_out() -> None:
    assert {rule for rule, _, _ in CAUGHT} == {field.name for field in fields(Rules)}
