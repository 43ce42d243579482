"""The rule for a message's headers, for every route by which messages come, bulk loads too.

A name is given once: DuckDB, Spark and Polars read headers as a map. The names in `TIMES` are reserved, in upper and
lower case alike: their values are times of RFC 3339.
"""

from collections.abc import Sequence

from filer.times import parse_rfc3339, rfc3339

DELIVER_AT, EXPIRES_AT = "braid-deliver-at", "braid-expires-at"
TIMES = (DELIVER_AT, EXPIRES_AT)
LATE_SECONDS = 3600
"""A publish that is sent again may come late; a time that is further back is a mistake."""


def wrong_headers(headers: Sequence[tuple[str, bytes]]) -> str | None:
    """What is wrong with the headers of one message; None if nothing is."""
    seen: set[str] = set()
    for name, value in headers:
        reserved = name.lower() in TIMES
        known = name.lower() if reserved else name
        if known in seen:
            return f"the header {name!r:.80} is given twice: give each name once"
        seen.add(known)
        if reserved and time_of(value) is None:
            return (
                f"the header {name!r} must be an RFC 3339 time with an offset, such as 2026-01-31T12:00:00Z, "
                f"not {value.decode(errors='replace')!r:.80}"
            )
    return None


def time_of(value: bytes) -> int | None:
    """The time in a header, in microseconds since the epoch; None if it has none."""
    try:
        return parse_rfc3339(value.decode())
    except ValueError:
        return None


def wrong_times(deliver_at_us: int | None, expires_at_us: int | None, now_us: int) -> str | None:
    """What is wrong with the times of a message that is published now; None if nothing is."""
    for name, time_us in (("deliver_at", deliver_at_us), ("expires_at", expires_at_us)):
        if time_us is not None and time_us < now_us - LATE_SECONDS * 1_000_000:
            return f"{name} is {rfc3339(time_us)}, more than an hour ago; the time is {rfc3339(now_us)} here"
    if deliver_at_us is not None and expires_at_us is not None and expires_at_us <= deliver_at_us:
        return "it expires before it may be delivered: no consumer would ever get it"
    return None


def time_header(name: str, time_us: int) -> tuple[str, bytes]:
    """The header that has that time."""
    return name, rfc3339(time_us).encode()
