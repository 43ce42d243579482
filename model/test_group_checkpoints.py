"""Whoever reads from a checkpoint on knows all that was acknowledged; without any safeguard it knows less."""

from dataclasses import fields, replace
from typing import Any

import pytest

from model.explorer import Violation
from model.group_checkpoints import Checkpointer, Creator, Reshaper, Rules, Upkeep, Worker, World, begun, explore

SCENES: dict[str, tuple[World, list[Any]]] = {
    "beside records": (begun("l", "r"), [Worker(2), Checkpointer(), Reshaper(("fail over",)), Upkeep()]),
    "beside groups that are created": (
        begun("l"),
        [Worker(1), Creator(("r",)), Checkpointer(), Reshaper(("fail over",)), Upkeep()],
    ),
    "split": (begun("l", "r"), [Worker(2), Checkpointer(2), Reshaper(("split",)), Upkeep()]),
    "split and merged": (begun("l", "r"), [Worker(1), Checkpointer(), Reshaper(("split", "merge")), Upkeep()]),
}
CAUGHT = [
    ("gate", "beside groups that are created"),
    ("at_rest", "beside records"),
    ("names_the_first", "beside records"),
    ("asks_all_before", "split and merged"),
    ("waits_for_all", "split"),
]


@pytest.mark.parametrize("scene", SCENES)
def test_the_promise_is_kept(scene: str) -> None:
    first, actors = SCENES[scene]
    states, ends = explore(first, actors, Rules())
    assert states > 100 and ends
    # Somewhere the chain was cut: nothing is left of what came before.
    assert any(all(segment.is_open for segment in world.segments) for world in ends)


@pytest.mark.parametrize(("rule", "scene"), CAUGHT, ids=[rule for rule, _ in CAUGHT])
def test_each_safeguard_is_needed(rule: str, scene: str) -> None:
    first, actors = SCENES[scene]
    with pytest.raises(Violation, match="are acknowledged, and"):
        explore(first, actors, replace(Rules(), **{rule: False}))


def test_no_safeguard_is_left_out() -> None:
    assert {rule for rule, _ in CAUGHT} == {field.name for field in fields(Rules)}
