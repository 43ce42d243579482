"""The rows that a segment of a bulk load refuses: for writers of its files, and for the check of files of others.

Each function examines one column and returns the first wrong row.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filer.bulk_load.load_segment import LoadSegment
from filer.format.slot_columns import slots_of
from filer.nulls import nulls_of
from filer.slots import SLOTS
from filer.times import EARLIEST_US, LATEST_US


def first_stray(keys: pa.Array, segment: LoadSegment) -> tuple[int, int] | None:
    """The first key with a slot outside the segment: its row and its slot."""
    if (segment.start_slot, segment.stop_slot) == (0, SLOTS):
        return None
    slots = slots_of(keys, null_slot=segment.start_slot)
    strays = (slots < segment.start_slot) | (slots >= segment.stop_slot)
    if not strays.any():
        return None
    row = int(strays.argmax())
    return row, int(slots[row])


def first_unshowable(times: pa.Array) -> int | None:
    """The first time, in microseconds, that lies outside the years 1 to 9999."""
    times_us = micros_of(times)
    outside = ~nulls_of(times) & ((times_us < EARLIEST_US) | (times_us > LATEST_US))
    return int(outside.argmax()) if outside.any() else None


def micros_of(times: pa.Array) -> npt.NDArray[np.int64]:
    """The times in microseconds. If a time is null, its number is arbitrary."""
    ends = times.offset + len(times)
    return np.frombuffer(times.buffers()[1], np.int64, ends)[times.offset :]


def lacks_a_value(headers: pa.Array) -> bool:
    """Whether some header has no value."""
    return bool(headers.null_count < len(headers) and headers.items.null_count)
