"""A consumer group counts in the chain in which it began; without any safeguard it skips messages, or forgets acks."""

from dataclasses import fields, replace
from typing import Any

import pytest

from model.explorer import Violation
from model.group_sources import Broker, Failover, Renamer, Rules, explore

SCENES: dict[str, list[Any]] = {
    "a name comes to lie elsewhere": [Renamer((2, 3)), Broker("a", claims=6)],
    "and the coordinator changes": [Renamer(), Failover(2), Broker("a", claims=4), Broker("b", claims=4)],
    "twice each": [Renamer((2, 3)), Failover(2), Broker("a", claims=4), Broker("b", claims=4)],
    "and is created again": [Renamer((1, 1)), Broker("a", claims=6)],
    "and is created again while the coordinator changes": [
        Renamer((1,)),
        Failover(2),
        Broker("a", claims=4),
        Broker("b", claims=4),
    ],
    "and comes back": [Renamer((2, 1)), Broker("a", claims=8)],
    "and comes back while the coordinator changes": [
        Renamer((2, 1)),
        Failover(2),
        Broker("a", claims=4),
        Broker("b", claims=3),
    ],
}
CAUGHT = [
    ("names_the_chain", "a name comes to lie elsewhere", "is passed by"),
    ("reads_again", "and the coordinator changes", "is forgotten"),
    ("reads_the_named_chain", "a name comes to lie elsewhere", "is forgotten"),
    ("looks_as_it_ends", "and comes back", "is forgotten"),  # of brokers of which the last promise is none
    ("ends_with_its_life", "and is created again", "has served a later one"),
]


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("knows_no_lives", [False, True])
def test_the_promises_are_kept(scene: str, knows_no_lives: bool) -> None:
    states, ends = explore(SCENES[scene], Rules(knows_no_lives=knows_no_lives))
    assert states > 50 and ends
    # Somebody worked through what the name has at last.
    assert any(world.place.life in world.acked for world in ends)


@pytest.mark.parametrize(("rule", "scene", "broken"), CAUGHT, ids=[rule for rule, _, _ in CAUGHT])
def test_each_safeguard_is_needed(rule: str, scene: str, broken: str) -> None:
    with pytest.raises(Violation, match=broken):
        explore(SCENES[scene], replace(Rules(knows_no_lives=rule == "looks_as_it_ends"), **{rule: False}))


def test_no_safeguard_is_left_out() -> None:
    assert {rule for rule, _, _ in CAUGHT} == {field.name for field in fields(Rules)} - {"knows_no_lives"}
