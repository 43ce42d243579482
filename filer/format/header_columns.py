"""Headers of many messages, judged as a column."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filer.format.headers import TIMES, wrong_headers

# The form that this project writes itself. Arrow reads a column of these at once.
_USUAL_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z$"


def first_wrong_headers(headers: pa.Array) -> tuple[int, str] | None:
    """The first message whose headers are wrong: its row, and what is wrong. `headers` are maps, without null values.

    Arrow checks all of them together. Only those that it cannot judge are checked one by one.
    """
    if headers.null_count == len(headers):
        return None
    offsets = headers.offsets.to_numpy()
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    encoded = headers.keys.slice(first, count).dictionary_encode()
    codes, lengths = encoded.indices.to_numpy(), np.diff(offsets)
    is_reserved = pc.is_in(pc.ascii_lower(encoded.dictionary), pa.array(TIMES, encoded.dictionary.type))
    reserved = np.flatnonzero(np.asarray(is_reserved))
    if not len(reserved) and not _may_have_a_name_twice(codes, lengths):
        return None
    rows = np.repeat(np.arange(len(headers)), lengths)
    doubtful = set(_rows_with_a_name_twice(codes, rows))
    if len(reserved):
        times = np.flatnonzero(np.isin(codes, reserved))
        doubtful.update(_rows_with_strange_times(rows[times], headers.items.slice(first, count).take(pa.array(times))))
    for row in sorted(doubtful):
        given: Any = headers[row].as_py() or ()
        if (reason := wrong_headers(given)) is not None:
            return row, reason
    return None


def _may_have_a_name_twice(codes: "np.ndarray[Any, Any]", lengths: "np.ndarray[Any, Any]") -> bool:
    """Whether a message may have a name twice: false for most requests, whose messages have one or two headers each."""
    most = int(lengths.max(initial=0))
    if most < 2:
        return False
    if most > 2 or int(lengths.min()) < 2:
        return True
    return bool((codes[::2] == codes[1::2]).any())


def _rows_with_a_name_twice(codes: "np.ndarray[Any, Any]", rows: "np.ndarray[Any, Any]") -> list[int]:
    most = int(codes.max(initial=0)) + 1
    pairs = np.sort(rows * most + codes)
    return list((pairs[1:][pairs[1:] == pairs[:-1]] // most).tolist())


def _rows_with_strange_times(rows: "np.ndarray[Any, Any]", texts: pa.Array) -> list[int]:
    """The rows of headers that may hold no time, or more than one. The headers of these rows have to be times."""
    # Both names may be there, and each of them once.
    several = rows[1:][rows[1:] == rows[:-1]]
    usual = pc.match_substring_regex(texts, _USUAL_TIME)
    if _are_times(texts.filter(usual)):
        rows = rows[~np.asarray(usual)]
    return [*several.tolist(), *rows.tolist()]


def _are_times(texts: pa.Array) -> bool:
    """Whether all of these texts, which look like times, are times."""
    try:
        texts.cast(pa.string()).cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        return False
    return not pc.any(pc.starts_with(texts, pattern=b"0000")).as_py()  # the year 0, which RFC 3339 has and Python not
