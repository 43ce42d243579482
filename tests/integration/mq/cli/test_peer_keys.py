"""`mq peer-keys`: the steps of a rotation."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mq.peer_keys.peer_keys import MOST_KEYS, parse_peer_keys

Mq = Callable[..., str]


def test_a_rotation_step_by_step(mq: Mq, mq_json: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "keys"
    first = mq_json("peer-keys", "add", str(file))
    assert first["keys"] == [first["signs"]]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    second = mq_json("peer-keys", "add", str(file))
    assert second["signs"] == first["signs"]
    new = second["keys"][1]
    secrets = {key.id: key.secret for key in parse_peer_keys(file.read_bytes()).keys}
    assert mq("peer-keys", "use", str(file)) == f"key {new} signs from now on\n"
    assert mq("peer-keys", "list", str(file)).split() == [new, "signs", first["signs"], "verifies"]
    assert mq("peer-keys", "drop", str(file)) == f"{first['signs']} removed\n"
    [kept] = parse_peer_keys(file.read_bytes()).keys
    assert (kept.id, kept.secret) == (new, secrets[new])
    assert mq_json("peer-keys", "use", str(file)) == {"signs": new, "keys": [new]}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("text", "why"),
    [("nonsense", "line 1 is not"), ("".join(f"k{n} {'ab' * 32}\n" for n in range(MOST_KEYS)), "and that is the most")],
)
def test_what_is_no_file_of_keys_is_left_as_it_is(text: str, why: str, mq_fails: Mq, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.touch(mode=0o600)
    file.write_text(text)
    assert why in mq_fails("peer-keys", "add", str(file))
    assert file.read_text() == text
