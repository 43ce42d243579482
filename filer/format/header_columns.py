"""Headers of many messages, judged as a column."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filer.format.headers import TIMES, wrong_headers

# What this project writes itself. Arrow reads a column of these at once.
_USUAL_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z$"


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
