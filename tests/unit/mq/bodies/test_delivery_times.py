"""Delays and expiries of messages, as headers."""

from typing import Any

import pytest

from filer.errors import InvalidInput
from filer.times import parse_rfc3339
from mq.bodies.delivery_times import delivery_headers

NOW_US = parse_rfc3339("2026-01-31T12:00:00Z")
LATER, EARLIER = "2026-01-31T13:00:00Z", "2026-01-31T11:30:00Z"


@pytest.mark.parametrize(
    ("message", "headers"),
    [
        ({}, {}),
        ({"delay_seconds": 0}, {}),
        ({"delay_seconds": 1.5}, {"braid-deliver-at": "2026-01-31T12:00:01.500000Z"}),
        ({"deliver_at": "2026-01-31T14:00:00+01:00"}, {"braid-deliver-at": "2026-01-31T13:00:00.000000Z"}),
        ({"deliver_at": EARLIER}, {"braid-deliver-at": "2026-01-31T11:30:00.000000Z"}),  # a late repeat
        (
            {"delay_seconds": 60, "expires_at": LATER},
            {"braid-deliver-at": "2026-01-31T12:01:00.000000Z", "braid-expires-at": "2026-01-31T13:00:00.000000Z"},
        ),
    ],
)
def test_fields_become_headers(message: dict[str, Any], headers: dict[str, str]) -> None:
    found = delivery_headers(message, [("trace", b"1")], NOW_US, "messages[0]")
    assert {name: text.decode() for name, text in found} == headers


@pytest.mark.parametrize(
    ("message", "headers", "says"),
    [
        ({"delay_seconds": -1}, {}, "delay_seconds must be a number from 0 to"),
        ({"delay_seconds": True}, {}, "delay_seconds must be a number from 0 to"),
        ({"delay_seconds": "5"}, {}, "delay_seconds must be a number from 0 to"),
        ({"delay_seconds": 1e30}, {}, "delay_seconds must be a number from 0 to"),
        ({"delay_seconds": 5, "deliver_at": LATER}, {}, "give delay_seconds or deliver_at, not both"),
        ({"deliver_at": "soon"}, {}, "deliver_at must be an RFC 3339 time"),
        ({"deliver_at": 5}, {}, "deliver_at must be an RFC 3339 time"),
        ({"deliver_at": "2026-01-31T10:59:59Z"}, {}, "more than an hour ago; the time is 2026-01-31T12:00:00"),
        (
            {"expires_at": "1970-01-01T00:00:00Z"},
            {},
            "expires_at is 1970-01-01T00:00:00.000000Z, more",
        ),
        ({"deliver_at": LATER, "expires_at": LATER}, {}, "it expires before it may be delivered"),
        ({"deliver_at": LATER}, {"braid-deliver-at": LATER}, "says what a field of the message says too"),
    ],
)
def test_what_nobody_could_keep_is_refused(message: dict[str, Any], headers: dict[str, str], says: str) -> None:
    own = [(name, text.encode()) for name, text in headers.items()]
    with pytest.raises(InvalidInput) as refused:
        delivery_headers(message, own, NOW_US, "messages[0]")
    assert str(refused.value).startswith("messages[0]: ") and says in str(refused.value)
