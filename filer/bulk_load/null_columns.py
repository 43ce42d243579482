"""Recognises columns of a row group that hold only nulls, by their bytes (`filer/bulk_load/known_pages.py`).

The pages of such a column hold levels and no values.
"""

from collections.abc import Callable
from functools import lru_cache

import pyarrow.parquet as pq

from filer.bulk_load.known_pages import are_known, short_column
from filer.bulk_load.page_headers import PLAIN
from filer.varint import varint

_MOST_COLUMN_BYTES = 1024


def holds_only_nulls(
    read: Callable[[int, int], bytes], column: pq.ColumnChunkMetaData, rows: int, *, repeated: bool
) -> bool:
    """Whether every row is null in the column, at the outermost level; `repeated` if the column is part of a map.

    False if that cannot be seen from the bytes. Raises what `read` and `are_known` raise.
    """
    # Readers also use the number of values in the footer.
    data = short_column(read, column, most_bytes=_MOST_COLUMN_BYTES) if column.num_values == rows else None
    return data is not None and _are_only_nulls(data, rows, repeated)


@lru_cache(maxsize=64)
def _are_only_nulls(data: bytes, rows: int, repeated: bool) -> bool:
    """The answer for these bytes. It is cached: in most row groups of a file such a column has the same bytes."""
    return are_known(data, rows, lambda _, count: _zero_levels(count) * (1 + repeated), encoding=PLAIN)


def _zero_levels(count: int) -> bytes:
    """That many levels of zero in Parquet's RLE and bit-packing hybrid: the length of the data, then one run."""
    run = varint(count << 1) + b"\0"
    return len(run).to_bytes(4, "little") + run
