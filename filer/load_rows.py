"""What a segment of a load does not take: for those who write its files, and for the check of files that others wrote.

Each looks at one column, and gives the first row that is wrong.
"""

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from filer.load_segment import LoadSegment
from filer.nulls import nulls_of
from filer.schema import EARLIEST_US, LATEST_US
from filer.slots import SLOTS, slots_of


def first_stray(keys: pa.Array, segment: LoadSegment) -> tuple[int, int] | None:
    """The first key whose slot is another segment's: its row and its slot."""
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
    """Microseconds; whatever stands there where a time is null."""
    ends = times.offset + len(times)
    return np.frombuffer(times.buffers()[1], np.int64, ends)[times.offset :]


def lacks_a_value(headers: pa.Array) -> bool:
    """Whether some header has none."""
    return bool(headers.null_count < len(headers) and headers.items.null_count)


def first_not_json(values: pa.Array) -> tuple[int, str] | None:
    """The first value that is not JSON: its row, and why."""
    for row, value in enumerate(values.to_pylist()):
        try:
            if value is not None:
                orjson.loads(value)
        except orjson.JSONDecodeError as error:
            return row, str(error)
    return None
