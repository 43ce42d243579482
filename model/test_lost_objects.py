"""Every interleaving of losing and putting back keeps to what is promised; without any one safeguard some do not."""

from dataclasses import fields, replace
from typing import Any

import pytest

from model.explorer import Violation
from model.lost_objects import Maintainer, Meddler, Owner, Rules, Sealer, explore

CAUGHT = [
    ("seals_behind_the_last_file", [Owner(), Sealer(), Meddler()], "an acknowledged message was sealed over"),
    ("one_put_in_flight", [Owner(), Sealer()], "a hole was told where nothing was lost|was sealed over"),
    ("lists_again", [Owner(), Sealer(reads_late=True), Maintainer()], "a hole was told where nothing was lost"),
]


SCENES: dict[str, list[Any]] = {
    "two sealers": [Owner(), Sealer(), Sealer(), Meddler()],
    "a roll-up is lost": [Owner(), Maintainer(), Meddler()],
    "a listing that was overtaken": [Owner(), Sealer(reads_late=True), Sealer(reads_late=True), Maintainer()],
}


@pytest.mark.parametrize("scene", SCENES)
def test_every_interleaving(scene: str) -> None:
    states, _ = explore(SCENES[scene], Rules())
    assert states > 20


def test_what_is_lost_is_sealed_around_and_what_is_put_back_is_there() -> None:
    _, ends = explore(SCENES["two sealers"], Rules())
    assert any(world.was_lost and not world.lost and len(world.acked) == 3 for world in ends), "lost, and put back"
    assert any(world.was_lost and any(name.sealed for name in world.store) for world in ends), "and sealed"


@pytest.mark.parametrize(("safeguard", "scene", "complaint"), CAUGHT)
def test_each_safeguard_is_needed(safeguard: str, scene: list[Any], complaint: str) -> None:
    with pytest.raises(Violation, match=complaint):
        explore(scene, replace(Rules(), **{safeguard: False}))


def test_every_safeguard_is_taken_away_once() -> None:
    assert [safeguard for safeguard, _, _ in CAUGHT] == [field.name for field in fields(Rules)]


def test_a_violation_tells_how_it_came_about() -> None:
    with pytest.raises(Violation) as caught:
        explore([Owner(), Sealer(), Meddler()], Rules(seals_behind_the_last_file=False))
    assert any("is lost" in step for step in str(caught.value).splitlines())
