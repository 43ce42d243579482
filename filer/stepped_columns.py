"""Columns of a row group whose numbers go up by the same step, told by their bytes (`filer/known_pages.py`).

Offsets go up by one, the times of a load by nothing. DELTA_BINARY_PACKED has the first number of a page and then blocks
of differences, each as the smallest of them and what the others are larger by: here nothing, in no bits.
"""

from collections.abc import Callable

import pyarrow.parquet as pq

from filer.known_pages import are_known, short_column
from filer.page_headers import DELTA_BINARY_PACKED
from filer.varint import varint

_MOST_COLUMN_BYTES = 64 * 1024
_BLOCK_VALUES, _MINIBLOCKS = 256, 4


def goes_up(
    read: Callable[[int, int], bytes], column: pq.ColumnChunkMetaData, rows: int, *, first: int, step: int
) -> bool:
    """Whether the rows hold `first`, `first + step` and so on; neither may be negative.

    Raises what `read` and `are_known` raise.
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
    """So many numbers, as Arrow writes them."""
    head = varint(_BLOCK_VALUES) + varint(_MINIBLOCKS) + varint(count) + varint(first << 1)
    block = varint(step << 1) + bytes(_MINIBLOCKS)
    return head + block * -(-(count - 1) // _BLOCK_VALUES)
