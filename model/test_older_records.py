"""No load whose commit was answered is swept by a record that was put back; without any one safeguard some are."""

from dataclasses import fields, replace
from typing import Any

import pytest

from model.explorer import Violation
from model.older_records import Changer, Committer, Meddler, Rules, Starter, explore

SCENES: dict[str, list[Any]] = {
    "a restart": [Committer(), Starter(), Meddler()],
    "two restarts": [Committer(), Starter(), Starter(), Meddler()],
    "another change meanwhile": [Committer(), Changer(), Starter(), Meddler()],
    "nothing is put back": [Committer(), Changer(), Starter(), Starter()],
}
DELETED = "a load whose commit was answered is deleted"
TOLD = "an older record was told where none was put back"
CAUGHT = [
    ("marks_before_it_answers", SCENES["a restart"], DELETED),
    ("marks_after_the_swap", [Committer(), Starter()], TOLD),
    ("looks_before_it_answers", SCENES["a restart"], DELETED),
    ("reads_again_before_it_tells", [Changer(), Starter()], TOLD),
]


@pytest.mark.parametrize("scene", SCENES)
def test_every_interleaving(scene: str) -> None:
    states, _ = explore(SCENES[scene], Rules())
    assert states > 20


def test_a_load_is_answered_swept_and_put_back_somewhere() -> None:
    _, ends = explore(SCENES["a restart"], Rules())
    assert any(world.answered and world.was_put_back for world in ends)
    assert any(not world.files and not world.answered for world in ends)


@pytest.mark.parametrize(("safeguard", "scene", "complaint"), CAUGHT)
def test_each_safeguard_is_needed(safeguard: str, scene: list[Any], complaint: str) -> None:
    with pytest.raises(Violation, match=complaint):
        explore(scene, replace(Rules(), **{safeguard: False}))


def test_every_safeguard_is_taken_away_once() -> None:
    assert [safeguard for safeguard, _, _ in CAUGHT] == [field.name for field in fields(Rules)]


def test_a_violation_tells_how_it_came_about() -> None:
    with pytest.raises(Violation) as caught:
        explore(SCENES["a restart"], Rules(marks_before_it_answers=False))
    assert "is put back" in str(caught.value)
