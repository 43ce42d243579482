"""Recognises columns with an arithmetic sequence, by their bytes (`filer/bulk_load/known_pages.py`).

Offsets increase by one, and the times of a bulk load by zero. DELTA_BINARY_PACKED has the first number of a page, then
blocks of differences. A block has its smallest difference, and for each number the excess over that, which takes zero
bits here.
"""

from collections.abc import Callable

import pyarrow.parquet as pq

from filer.bulk_load.known_pages import are_known, short_column
from filer.bulk_load.page_headers import DELTA_BINARY_PACKED
from filer.varint import varint

_MOST_COLUMN_BYTES = 64 * 1024
_BLOCK_VALUES, _MINIBLOCKS = 256, 4


def is_arithmetic(
    read: Callable[[int, int], bytes], column: pq.ColumnChunkMetaData, rows: int, *, first: int, step: int
) -> bool:
    """Whether the rows hold `first`, `first + step` and so on. Neither number may be negative.

    False if that cannot be seen from the bytes. Raises what `read` and `are_known` raise.
    """
    data = short_column(read, column, most_bytes=_MOST_COLUMN_BYTES)
    if data is None:
        return False
    return are_known(
        data,
        rows,
        lambda before, count: _packed(first + step * before, count, step),
        encoding=DELTA_BINARY_PACKED,
    )


def _packed(first: int, count: int, step: int) -> bytes:
    """A page with that many numbers, as Arrow writes it."""
    head = varint(_BLOCK_VALUES) + varint(_MINIBLOCKS) + varint(count) + varint(first << 1)
    block = varint(step << 1) + bytes(_MINIBLOCKS)
    return head + block * -(-(count - 1) // _BLOCK_VALUES)
