"""Times in the forms that brokers use: RFC 3339 and microseconds since 1970, both UTC."""

from datetime import datetime
from typing import Literal

from braidmq.errors import InvalidArgument
from filer import times

EventTimeUnit = Literal["s", "ms", "us", "ns"]
"""The unit of the numbers of an event time column, which count since 1970."""


def aware(moment: object) -> datetime:
    """Return the same moment. Raises `InvalidArgument` if it is no `datetime`, or has no time zone."""
    if not isinstance(moment, datetime):
        raise InvalidArgument(f"{moment!r} is no time: give a datetime.datetime that has a time zone")
    if moment.tzinfo is None:
        raise InvalidArgument(f"{moment!r} has no time zone: say moment.replace(tzinfo=UTC) if it is UTC")
    return moment


def rfc3339(moment: datetime) -> str:
    """As `2024-05-01T12:00:00.000000Z`. Raises `InvalidArgument` if it has no time zone."""
    return times.rfc3339(microseconds(moment))


def microseconds(moment: datetime) -> int:
    """Microseconds since the Unix epoch. Raises `InvalidArgument` if the moment has no time zone."""
    return times.microseconds(aware(moment))
