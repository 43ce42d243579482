"""A few rows as a JSON document: a body that needs no Arrow, so that a short program starts without it."""

from base64 import b64encode
from typing import Any

import orjson

from braidmq.publish.encoding.row_columns import RowColumns, RowHeaders

MOST_ROWS = 16
MOST_BYTES = 16 * 1024
"""A larger body costs the broker more as JSON than as Arrow."""


def fits_json(rows: RowColumns) -> bool:
    """Whether these messages are sent as JSON: a few small ones, with only key, value and headers."""
    return (
        len(rows) <= MOST_ROWS
        and rows.size_bytes <= MOST_BYTES
        and rows.uploads is None
        and rows.event_times_us is None
    )


def json_body(rows: RowColumns) -> bytes:
    """The document `{"messages": [...]}` of messages that fit. All bytes go as base64: they need not be text."""
    headers = rows.headers or [()] * len(rows)
    texts = rows.texts or [False] * len(rows)
    messages = [_message(*each) for each in zip(rows.keys, rows.values, headers, texts, strict=True)]
    return orjson.dumps({"messages": messages})


def _message(key: bytes | None, value: bytes | None, headers: RowHeaders, is_text: bool) -> dict[str, Any]:
    message: dict[str, Any] = {"value": None}
    if value is not None:
        message = {"value": value.decode()} if is_text else {"value_base64": _text(value)}
    if key is not None:
        message["key_base64"] = _text(key)
    if headers:
        message["headers"] = {name: {"base64": _text(each)} for name, each in headers}
    return message


def _text(data: bytes) -> str:
    return b64encode(data).decode()
