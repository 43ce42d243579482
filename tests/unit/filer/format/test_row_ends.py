"""How much the rows of a table take, and the first of them that fit."""

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from filer.format.row_ends import head, row_ends
from filer.format.schema import MessageSchema

_ABOUT = 0.02


def table(*sizes: int) -> pa.Table:
    return pa.table({"value": pa.array([b"x" * size for size in sizes], pa.binary())})


@pytest.mark.parametrize(
    ("sizes", "max_rows", "max_bytes", "rows"),
    [
        ((10, 10, 10), 10, 1000, 3),
        ((10, 10, 10), 2, 1000, 2),
        ((100, 100, 100, 100), 10, 250, 2),
        ((1000, 1, 1), 10, 50, 1),
        ((1, 1, 1000, 1), 10, 50, 2),
        ((1000,), 10, 1, 1),
        ((), 10, 1, 0),
    ],
)
def test_the_first_rows_that_fit_and_always_one(
    sizes: tuple[int, ...], max_rows: int, max_bytes: int, rows: int
) -> None:
    whole = table(*sizes)
    pieces = pa.concat_tables([whole.slice(n, 1) for n in range(len(sizes))]) if sizes else whole
    for each in (whole, pieces):
        found = head(each, row_ends(each), 0, max_rows=max_rows, max_bytes=max_bytes)
        assert found.table.equals(whole.slice(0, rows))
        assert found.size_bytes == sum(sizes[:rows]) + 4 * rows


def test_from_any_row_on_and_where_asked_for_none() -> None:
    whole = table(500, 10, 10, 500)
    ends = row_ends(whole)
    assert head(whole, ends, 1, max_rows=9, max_bytes=40).table.equals(whole.slice(1, 2))
    assert head(whole, ends, 3, max_rows=9, max_bytes=40).table.equals(whole.slice(3))
    none = head(whole, ends, 3, max_rows=9, max_bytes=40, least_rows=0)
    assert (none.table.num_rows, none.size_bytes) == (0, 0)


def message(number: int) -> dict[str, Any]:
    ref = {"uri": "u" * number, "size": number, "etag": "e", "sha256": None}
    return {
        "_offset": number,
        "_timestamp": number,
        "key": None if number % 2 else b"k" * number,
        "value": "v" * (7 * number),
        "event_time": number,
        "headers": [("a", b"b" * number), ("c", b"d")] if number % 3 else None,
        "_ref": None if number % 5 else ref,
    }


@pytest.mark.parametrize("cuts", [(0, 200), (0, 7, 50, 51, 200), (20, 160)])
def test_all_columns_count_as_arrow_counts_them_but_for_who_is_null(cuts: tuple[int, ...]) -> None:
    whole = pa.Table.from_pylist([message(n) for n in range(200)], schema=MessageSchema.of("binary", "string").log)
    pieces = pa.concat_tables([whole.slice(a, b - a) for a, b in pairwise(cuts)])
    ends = row_ends(pieces)
    for rows in (1, 10, 100, pieces.num_rows):
        assert ends[rows] == pytest.approx(pieces.slice(0, rows).nbytes, rel=_ABOUT, abs=24 * len(cuts))
