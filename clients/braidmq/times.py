"""Times as the broker reads them: RFC 3339 and microseconds, both UTC."""

from datetime import UTC, datetime, timedelta

from braidmq.errors import InvalidArgument

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def aware(moment: datetime) -> datetime:
    """The same moment; raises `InvalidArgument` for one without a time zone, which names no moment."""
    if moment.tzinfo is None:
        raise InvalidArgument(f"{moment!r} has no time zone: say moment.replace(tzinfo=UTC) if it is UTC")
    return moment


def rfc3339(moment: datetime) -> str:
    """As `2024-05-01T12:00:00.000000Z`."""
    return aware(moment).astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def microseconds(moment: datetime) -> int:
    """Microseconds since the Unix epoch."""
    return (aware(moment) - _EPOCH) // _MICROSECOND
