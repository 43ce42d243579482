"""Python's own values as JSON text, in the forms that columns of these types have (docs/json-rows.md)."""

import base64
import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import orjson

from braidmq.errors import InvalidArgument
from braidmq.json_rows.texts import decimal_text, duration_text, non_finite_name
from filer.times import microseconds, rfc3339

_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME
_MICROSECOND = timedelta(microseconds=1)


def value_json(value: Any) -> bytes:
    """A value as JSON text. Raises `InvalidArgument` for one that would not keep its meaning."""
    try:
        text = orjson.dumps(value, default=_default, option=_OPTIONS)
    except (orjson.JSONEncodeError, ValueError, OverflowError) as failure:
        why = failure.__cause__ or failure
        raise InvalidArgument(f"the value cannot be written as JSON: {why}") from failure
    if b"null" in text:
        # orjson writes NaN and the infinities as null, and does not tell.
        for path, number in _non_finite(value, ""):
            raise InvalidArgument(
                f"the value cannot be written as JSON: JSON has no number {non_finite_name(number)}"
                + (f" (at {path.removeprefix('.')})" if path else "")
            )
    return text


def _default(value: Any) -> Any:
    """What orjson does not write by itself, or in another form."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds") if value.tzinfo is None else rfc3339(microseconds(value))
    if isinstance(value, time):
        if value.tzinfo is not None:
            raise ValueError(f"{value!r} is a time of the day with a zone: give a datetime, or leave out the zone")
        return value.isoformat(timespec="microseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return orjson.Fragment(duration_text(value // _MICROSECOND * 1000))
    if isinstance(value, Decimal):
        return orjson.Fragment(decimal_text(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _non_finite(value: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, float) and not math.isfinite(value):
        yield path, value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _non_finite(each, f"{path}.{name}")
    elif is_dataclass(value):
        for field in fields(value):
            yield from _non_finite(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from _non_finite(each, f"{path}[{index}]")
