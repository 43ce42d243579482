"""How much memory the rows of a table take, one by one, computed from where their texts begin.

Arrow computes the size of a slice too (`nbytes`). But each time it reads every buffer of every chunk, which takes as
long as rendering a small message, and releases the interpreter's lock, which other threads then hold for long.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ends = npt.NDArray[np.int64]
END_BYTES = 8
_OFFSET_BYTES = 4


class Rows(NamedTuple):
    """Rows of a table, and about how much they take."""

    table: pa.Table
    size_bytes: int


def row_ends(table: pa.Table) -> Ends:
    """How much the first row takes, the first two, and so on, with 0 in front. About the `nbytes` of each slice."""
    ends = np.zeros(table.num_rows + 1, np.int64)
    row = 0
    for batch in table.to_batches():
        sizes = np.zeros(batch.num_rows + 1, np.int64)
        for column in batch.columns:
            _add_sizes(column, np.arange(batch.num_rows + 1), sizes)
        ends[row : row + len(sizes)] = ends[row] + sizes - sizes[0]
        row += batch.num_rows
    return ends


def head(table: pa.Table, ends: Ends, start: int, *, max_rows: int, max_bytes: int, least_rows: int = 1) -> Rows:
    """The rows from that one on: at most `max_rows`, and more than `least_rows` only if they take no more bytes.

    `ends` are those of the table.
    """
    last = min(start + max_rows, table.num_rows)
    fits = int(np.searchsorted(ends, ends[start] + max_bytes, side="right")) - 1
    stop = min(last, max(fits, start + least_rows))
    return Rows(table.slice(start, stop - start), int(ends[stop] - ends[start]))


def _add_sizes(array: pa.Array, rows: Ends, sizes: Ends) -> None:
    """Add how much lies in that array before each of these rows, up to a constant."""
    if array.null_count == len(array):
        return
    if isinstance(array, pa.StructArray):
        for number in range(array.type.num_fields):
            _add_sizes(array.field(number), rows, sizes)
    elif isinstance(array, pa.BinaryArray | pa.StringArray | pa.MapArray):
        sizes += rows * _OFFSET_BYTES
        offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, _OFFSET_BYTES * array.offset)
        begins: Ends = offsets[rows].astype(np.int64)
        if isinstance(array, pa.MapArray):
            # In a slice, these are the keys and items of the whole array.
            _add_sizes(array.keys, begins, sizes)
            _add_sizes(array.items, begins, sizes)
        else:
            sizes += begins
    else:
        sizes += rows * array.type.bit_width // 8
