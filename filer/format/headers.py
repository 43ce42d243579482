"""What the headers of a message may be: one rule for every route by which messages come, bulk loads too.

A name is given once: DuckDB, Spark and Polars read headers as a map. The names in `TIMES` are reserved, in upper and
lower case alike: their values are times of RFC 3339.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filer.times import parse_rfc3339, rfc3339

DELIVER_AT, EXPIRES_AT = "braid-deliver-at", "braid-expires-at"
TIMES = (DELIVER_AT, EXPIRES_AT)
LATE_SECONDS = 3600
"""A publish that is sent again may come late; a time that is further back is a mistake."""
# What this project writes itself. Arrow reads a column of these at once.
_USUAL_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z$"


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
    """The time that a header says, in microseconds since the epoch; None if it says none."""
    try:
        return parse_rfc3339(value.decode())
    except ValueError:
        return None


def first_wrong_headers(headers: pa.Array) -> tuple[int, str] | None:
    """The first message whose headers are wrong: its row, and what is wrong. `headers` are maps, without null values.

    Arrow looks at all of them together, and only what it cannot judge is looked at one by one.
    """
    if headers.null_count == len(headers):
        return None
    offsets = headers.offsets.to_numpy()
    names = headers.keys.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    values = headers.items.slice(int(offsets[0]), len(names))
    rows = np.repeat(np.arange(len(headers)), np.diff(offsets))
    for row in sorted({*_rows_with_a_name_twice(names, rows), *_rows_with_strange_times(names, values, rows)}):
        given: Any = headers[row].as_py() or ()
        if (reason := wrong_headers(given)) is not None:
            return row, reason
    return None


def _rows_with_a_name_twice(names: pa.Array, rows: "np.ndarray[Any, Any]") -> Iterator[int]:
    if not len(rows) or not (rows[1:] == rows[:-1]).any():
        return
    codes = names.dictionary_encode().indices.to_numpy().astype(np.int64)
    pairs = np.sort(rows * (int(codes.max()) + 1) + codes)
    yield from (pairs[1:][pairs[1:] == pairs[:-1]] // (int(codes.max()) + 1)).tolist()


def _rows_with_strange_times(names: pa.Array, values: pa.Array, rows: "np.ndarray[Any, Any]") -> Iterator[int]:
    """The rows whose reserved headers may not be times, or may be given twice."""
    lower = pc.ascii_lower(names)
    for reserved in TIMES:
        found = np.flatnonzero(np.asarray(pc.equal(lower, reserved)))
        if not len(found):
            continue
        of_rows, texts = rows[found], values.take(pa.array(found))
        yield from of_rows[1:][of_rows[1:] == of_rows[:-1]].tolist()
        usual = pc.match_substring_regex(texts, _USUAL_TIME)
        if _are_times(texts.filter(usual)):
            of_rows = of_rows[~np.asarray(usual)]
        yield from of_rows.tolist()


def _are_times(texts: pa.Array) -> bool:
    """Whether all of these, which look like times, are some."""
    try:
        texts.cast(pa.string()).cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        return False
    return not pc.any(pc.starts_with(texts, pattern=b"0000")).as_py()  # the year 0, which RFC 3339 has and Python not


def wrong_times(deliver_at_us: int | None, expires_at_us: int | None, now_us: int) -> str | None:
    """What is wrong with the times of a message that is published now; None if nothing is."""
    for name, time_us in (("deliver_at", deliver_at_us), ("expires_at", expires_at_us)):
        if time_us is not None and time_us < now_us - LATE_SECONDS * 1_000_000:
            return f"{name} is {rfc3339(time_us)}, more than an hour ago; the time is {rfc3339(now_us)} here"
    if deliver_at_us is not None and expires_at_us is not None and expires_at_us <= deliver_at_us:
        return "it expires before it may be delivered: no consumer would ever get it"
    return None


def time_header(name: str, time_us: int) -> tuple[str, bytes]:
    """The header that says that time."""
    return name, rfc3339(time_us).encode()
