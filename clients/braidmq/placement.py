"""Which message of a batch went where: from the ranges in an answer to a position for each row."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from braidmq.positions import Position, PositionRange
from filer.slots import slot_of

KeyRange = tuple[int, int]


def place(
    keys: Sequence[bytes | None], answered: Sequence[PositionRange], ranges: Mapping[int, KeyRange]
) -> list[Position | None]:
    """The position of each row, None where it does not follow without doubt.

    `ranges` are the key ranges of the answered segments. The rows of one segment keep the order of the
    request. Rows without a key may be in any segment: where only one segment holds more than its keyed rows,
    they are there; else no row of the segments that hold some of them can be told.
    """
    if len(answered) == 1 and answered[0].count == len(keys):
        only = answered[0]
        return [Position(only.segment, only.offset + row) for row in range(len(keys))]
    homes = _homes(keys, answered, ranges)
    if homes is None:
        return [None] * len(keys)
    spare = _spare(homes, answered)
    holders = [number for number, count in enumerate(spare) if count > 0]
    keyless = homes == _KEYLESS
    if min(spare, default=0) < 0 or sum(spare) != int(keyless.sum()):
        return [None] * len(keys)
    if len(holders) == 1:
        homes[keyless] = holders[0]
        holders = []
    return _positions(homes, answered, unsure=set(holders))


_KEYLESS = -1


def _homes(
    keys: Sequence[bytes | None], answered: Sequence[PositionRange], ranges: Mapping[int, KeyRange]
) -> npt.NDArray[np.int64] | None:
    """For each row the number of its answered range; None where a keyed row has not exactly one."""
    number_of_slot: dict[int, int] = {}
    homes = np.full(len(keys), _KEYLESS, dtype=np.int64)
    for row, key in enumerate(keys):
        if key is None:
            continue
        slot = slot_of(key)
        if slot not in number_of_slot:
            owners = [
                number
                for number, each in enumerate(answered)
                if each.segment in ranges and ranges[each.segment][0] <= slot < ranges[each.segment][1]
            ]
            if len(owners) != 1:
                return None
            number_of_slot[slot] = owners[0]
        homes[row] = number_of_slot[slot]
    return homes


def _spare(homes: npt.NDArray[np.int64], answered: Sequence[PositionRange]) -> list[int]:
    """How many rows beyond its keyed ones each answered range holds."""
    return [each.count - int((homes == number).sum()) for number, each in enumerate(answered)]


def _positions(
    homes: npt.NDArray[np.int64], answered: Sequence[PositionRange], *, unsure: set[int]
) -> list[Position | None]:
    positions: list[Position | None] = [None] * len(homes)
    for number, each in enumerate(answered):
        if number in unsure:
            continue
        for rank, row in enumerate(np.flatnonzero(homes == number)):
            positions[row] = Position(each.segment, each.offset + rank)
    return positions
