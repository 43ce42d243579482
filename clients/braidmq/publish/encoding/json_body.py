"""A few rows as a JSON document: a body that needs no Arrow, so that a short program starts without it."""

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import orjson

from braidmq.publish.encoding.outgoing import Row

MOST_ROWS = 16
MOST_BYTES = 16 * 1024
"""More costs the broker more as JSON than as Arrow."""


def fits_json(rows: Sequence[Row]) -> bool:
    """Whether these rows are sent as JSON: a few small ones, of nothing but key, value and headers."""
    return (
        len(rows) <= MOST_ROWS
        and sum(row.size_bytes for row in rows) <= MOST_BYTES
        and all(row.upload is None and row.event_time_us is None for row in rows)
    )


def json_body(rows: Sequence[Row]) -> bytes:
    """The document `{"messages": [...]}` of rows that fit. All bytes go as base64: they need not be text."""
    return orjson.dumps({"messages": [_message(row) for row in rows]})


def _message(row: Row) -> dict[str, Any]:
    message: dict[str, Any] = {"value": None} if row.value is None else {"value_base64": _text(row.value)}
    if row.key is not None:
        message["key_base64"] = _text(row.key)
    if row.headers:
        message["headers"] = {name: {"base64": _text(value)} for name, value in row.headers}
    return message


def _text(data: bytes) -> str:
    return b64encode(data).decode()
