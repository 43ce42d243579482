"""Cutting rows by the segments that their keys belong to, so that each owner gets its own directly."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from braidmq.placement import KeyRange
from filer.slots import slots_of

# Below, one request that its broker cuts costs less than one for each segment.
_WORTH_CUTTING_BYTES = 256 * 1024


class Share(NamedTuple):
    """Rows of one segment, in their order, and a slot of theirs; None for rows without keys, or of any segment."""

    slot: int | None
    table: pa.Table


def shares_of(table: pa.Table, ranges: Sequence[KeyRange] | None) -> list[Share]:
    """The rows by key range. Those without keys are a share of their own: brokers keep them together."""
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
    places = np.searchsorted([start for start, _ in ranges], slots, side="right")
    places[keyless] = 0
    return [Share(_slot(ranges, int(place)), _rows(table, places, int(place))) for place in np.unique(places)]


def _slot(ranges: Sequence[KeyRange], place: int) -> int | None:
    return ranges[place - 1][0] if place else None


def _rows(table: pa.Table, places: Any, place: int) -> pa.Table:
    rows = np.flatnonzero(places == place)
    return table if len(rows) == table.num_rows else table.take(pa.array(rows))
