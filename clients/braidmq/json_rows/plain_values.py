"""Python's own values as JSON text, in the forms that columns of these types have (docs/json-rows.md)."""

import base64
import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
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
    # orjson writes NaN and the infinities as null, without an error.
    if b"null" in text or b"\\u0000" in text:
        for path, reason in _refused(value, ""):
            raise InvalidArgument(
                f"the value cannot be written as JSON: {reason}" + (f" (at {path.removeprefix('.')})" if path else "")
            )
    return text


def _default(value: Any) -> Any:
    """Values that orjson does not write by itself, or writes in another form."""
    if isinstance(value, datetime):
        return _datetime_text(value)
    if isinstance(value, time):
        if value.tzinfo is not None:
            raise ValueError(f"{value!r} is a time of the day with a zone: give a datetime, or leave out the zone")
        return value.isoformat(timespec="microseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return orjson.Fragment(duration_text(value // _MICROSECOND * 1000 + getattr(value, "nanoseconds", 0)))
    if isinstance(value, Decimal):
        return orjson.Fragment(decimal_text(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _datetime_text(moment: datetime) -> str:
    """The time with the nanoseconds of pandas' times, which are datetimes too."""
    if moment != moment:
        raise ValueError(f"{moment!r} is no time: give None")
    nanoseconds = getattr(moment, "nanosecond", 0)
    if nanoseconds:
        moment = moment.replace(nanosecond=0)  # type: ignore[call-arg] # pandas.Timestamp
    text = moment.isoformat(timespec="microseconds") if moment.tzinfo is None else rfc3339(microseconds(moment))
    if not nanoseconds:
        return text
    return f"{text.removesuffix('Z')}{nanoseconds:03d}{'Z' if text.endswith('Z') else ''}"


def _refused(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Values that orjson writes although they would not keep their meaning: where they are, and the reason."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, float) and not math.isfinite(value):
        yield path, f"JSON has no number {non_finite_name(value)}"
    elif isinstance(value, dict):
        for name, each in value.items():
            if "\0" in name:
                yield path, f"the name {name!r} has the character U+0000"
            yield from _refused(each, f"{path}.{name}")
    elif is_dataclass(value):
        for field in fields(value):
            yield from _refused(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from _refused(each, f"{path}[{index}]")
