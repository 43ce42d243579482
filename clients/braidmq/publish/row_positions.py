"""Finds the position of each message of a batch: from the ranges of an answer to a position for each row."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from braidmq.positions import Position, PositionRange
from filer.slots import slot_of

KeyRange = tuple[int, int]

_KEYLESS = -1


def row_positions(
    keys: Sequence[bytes | None], answered: Sequence[PositionRange], key_ranges: Mapping[int, KeyRange]
) -> list[Position | None]:
    """The position of each row, or None if it does not follow for certain.

    `key_ranges` are those of the answered segments. The rows of one segment keep the order of the request. Rows
    without a key may be in any segment. If only one segment holds more rows than its keyed ones, they are there.
    If several do, no row of those segments has a certain position.
    """
    if len(answered) == 1 and answered[0].count == len(keys):
        only = answered[0]
        return [Position(only.segment, only.offset + row) for row in range(len(keys))]
    range_of_row = _answered_range_of_rows(keys, answered, key_ranges)
    if range_of_row is None:
        return [None] * len(keys)
    unkeyed_counts = _unkeyed_counts(range_of_row, answered)
    with_unkeyed = [index for index, count in enumerate(unkeyed_counts) if count > 0]
    is_keyless = range_of_row == _KEYLESS
    if min(unkeyed_counts, default=0) < 0 or sum(unkeyed_counts) != int(is_keyless.sum()):
        return [None] * len(keys)
    if len(with_unkeyed) == 1:
        range_of_row[is_keyless] = with_unkeyed[0]
        with_unkeyed = []
    return _positions(range_of_row, answered, uncertain=set(with_unkeyed))


def _answered_range_of_rows(
    keys: Sequence[bytes | None], answered: Sequence[PositionRange], key_ranges: Mapping[int, KeyRange]
) -> npt.NDArray[np.int64] | None:
    """For each row the index of its answered range; None if a keyed row does not have exactly one."""
    index_of_slot: dict[int, int] = {}
    range_of_row = np.full(len(keys), _KEYLESS, dtype=np.int64)
    for row, key in enumerate(keys):
        if key is None:
            continue
        slot = slot_of(key)
        if slot not in index_of_slot:
            candidates = [
                index
                for index, each in enumerate(answered)
                if each.segment in key_ranges and key_ranges[each.segment][0] <= slot < key_ranges[each.segment][1]
            ]
            if len(candidates) != 1:
                return None
            index_of_slot[slot] = candidates[0]
        range_of_row[row] = index_of_slot[slot]
    return range_of_row


def _unkeyed_counts(range_of_row: npt.NDArray[np.int64], answered: Sequence[PositionRange]) -> list[int]:
    """How many rows each answered range holds beyond its keyed ones."""
    return [each.count - int((range_of_row == index).sum()) for index, each in enumerate(answered)]


def _positions(
    range_of_row: npt.NDArray[np.int64], answered: Sequence[PositionRange], *, uncertain: set[int]
) -> list[Position | None]:
    positions: list[Position | None] = [None] * len(range_of_row)
    for index, each in enumerate(answered):
        if index in uncertain:
            continue
        for rank, row in enumerate(np.flatnonzero(range_of_row == index)):
            positions[row] = Position(each.segment, each.offset + rank)
    return positions
