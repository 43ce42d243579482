"""Cutting rows by the segments that their keys belong to, so that each owner gets its rows directly."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from braidmq.publish.row_positions import KeyRange
from filer.format.slot_columns import slots_of

# Below this size, one request that its broker cuts costs less than one request for each segment.
_WORTH_CUTTING_BYTES = 256 * 1024


class Share(NamedTuple):
    """Rows of one segment, in order, and the slot of one of them; None for rows without keys, or of any segment.

    `rows` are their numbers in the table that was cut; None if they are all of it.
    """

    slot: int | None
    table: pa.Table
    rows: Any = None


def shares_of(table: pa.Table, ranges: Sequence[KeyRange] | None) -> list[Share]:
    """The rows by key range. Rows without keys are a share of their own: brokers keep them together."""
    if ranges is None:
        return [Share(None, table)]
    if len(ranges) == 1:
        return [Share(ranges[0][0], table)]
    keys: Any = table["key"].combine_chunks()
    slots = slots_of(keys, null_slot=0)
    keyless = np.asarray(keys.is_null())
    if table.nbytes < _WORTH_CUTTING_BYTES:
        keyed = np.flatnonzero(~keyless)
        return [Share(int(slots[keyed[0]]) if len(keyed) else None, table)]
    numbers = _range_numbers(slots, keyless, [start for start, _ in ranges])
    return [_share(table, numbers, int(number), ranges) for number in np.unique(numbers)]


def rows_by_range(keys: Sequence[bytes | None], starts: Sequence[int]) -> Iterator[tuple[int | None, list[int]]]:
    """The rows of each range, in order, with its number; None for the rows without keys.

    `starts` are the first slots of ranges that cover all slots.
    """
    column = pa.array(keys, pa.binary())
    numbers = _range_numbers(slots_of(column, null_slot=0), np.asarray(column.is_null()), starts)
    for number in np.unique(numbers).tolist():
        yield number - 1 if number else None, np.flatnonzero(numbers == number).tolist()


def _range_numbers(slots: Any, keyless: Any, starts: Sequence[int]) -> Any:
    """For each row the number of its range, counted from 1; 0 without a key."""
    numbers = np.searchsorted(starts, slots, side="right")
    numbers[keyless] = 0
    return numbers


def _share(table: pa.Table, numbers: Any, number: int, ranges: Sequence[KeyRange]) -> Share:
    slot = ranges[number - 1][0] if number else None
    rows = np.flatnonzero(numbers == number)
    return Share(slot, table) if len(rows) == table.num_rows else Share(slot, table.take(pa.array(rows)), rows)
