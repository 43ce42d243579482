"""Every order of events keeps to what is promised, whatever the clocks do; without any one safeguard some do not."""

from dataclasses import replace

import pytest

from model.clocks import Rules, Scene, Violation, explore

SCENES = {
    "a stalled put": Scene(),
    "a stalled put, in a directory": Scene(directory=True),
    "retention": Scene(retention=True),
    "retention, in a directory": Scene(directory=True, retention=True),
}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_nothing_is_lost_and_nothing_goes_early(scene: Scene) -> None:
    assert explore(scene) > 500


@pytest.mark.parametrize(
    ("safeguard", "scene", "promise"),
    [
        ("proofs_by_store", "a stalled put", "acknowledged"),
        ("deletes_by_store", "a stalled put", "deleted before"),
        ("deletes_by_store", "retention", "expired before"),
        ("expires_by_storing", "retention", "expired before"),
        ("without_leaps", "a stalled put, in a directory", "deleted before"),
        ("without_leaps", "retention, in a directory", "expired before"),
    ],
)
def test_each_safeguard_is_needed(safeguard: str, scene: str, promise: str) -> None:
    rules = replace(Rules(), **{safeguard: False})
    with pytest.raises(Violation, match=promise):
        explore(replace(SCENES[scene], rules=rules))
