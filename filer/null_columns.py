"""Columns of a row group that hold nothing but nulls, told by their bytes (`filer/known_pages.py`).

The pages of such a column hold levels and no value.
"""

from collections.abc import Callable
from functools import lru_cache

import pyarrow.parquet as pq

from filer.known_pages import are_known, short_column
from filer.page_headers import PLAIN
from filer.varint import varint

_MOST_COLUMN_BYTES = 1024


def holds_only_nulls(
    read: Callable[[int, int], bytes], column: pq.ColumnChunkMetaData, rows: int, *, repeated: bool
) -> bool:
    """Whether each of the rows is null there at the outermost level; `repeated` where the column lies within a map.

    Raises what `read` and `are_known` raise.
    """
    # Readers go by the footer's number of values too.
    data = short_column(read, column, most_bytes=_MOST_COLUMN_BYTES) if column.num_values == rows else None
    return data is not None and _are_only_nulls(data, rows, repeated)


@lru_cache(maxsize=64)
def _are_only_nulls(data: bytes, rows: int, repeated: bool) -> bool:
    """Of the column's bytes: most row groups of a file have the same ones."""
    return are_known(data, rows, lambda _, count: _zero_levels(count) * (1 + repeated), encoding=PLAIN)


def _zero_levels(count: int) -> bytes:
    """So many levels of zero, as Parquet's hybrid of runs and bits has them: one run, behind its length."""
    run = varint(count << 1) + b"\0"
    return len(run).to_bytes(4, "little") + run
