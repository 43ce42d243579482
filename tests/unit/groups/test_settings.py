"""Settings of groups: each mode has its own."""

from typing import Any

import pytest

from filer.errors import InvalidConfig
from groups.settings import default_settings, parse_settings

QUEUE = default_settings("t", "stored")


def test_each_mode_shows_its_own_settings() -> None:
    assert parse_settings({"mode": "stream"}, QUEUE).in_force() == {
        "mode": "stream",
        "acks": "stored",
        "session_seconds": 30,
    }
    assert QUEUE.in_force().keys() >= {"mode", "lease_seconds", "dead_letter"}
    assert "session_seconds" not in QUEUE.in_force()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"mode": "stream", "lease_seconds": 5},
            "lease_seconds: stream groups have no .* session_seconds",
        ),
        ({"mode": "stream", "dead_letter": None}, "dead_letter: stream groups have no such setting"),
        ({"session_seconds": 5}, "session_seconds: queue groups have no such setting; theirs are acks, lease_seconds"),
        ({"mode": "stream", "session_seconds": 0}, "session_seconds"),
        ({"mode": "stream", "session_seconds": 86_400}, "session_seconds"),
        ({"mode": "streams"}, "mode"),
        ({"mode": ["stream"]}, "mode"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        parse_settings(given, QUEUE)
