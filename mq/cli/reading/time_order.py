"""Puts the messages of a page in the order of their times, without a change to the order of any key."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def in_time_order(table: pa.Table, predecessors: Mapping[int, Sequence[int]]) -> pa.Table:
    """Sort a page by `_timestamp`. `predecessors` are those of each segment.

    A page has the rows of each segment together, after those of its predecessors. Times do not run backwards within a
    segment. They may do so from a segment to its successor, which another broker with another clock writes: such rows
    count as late as the last of the predecessors.
    """
    segments = table["segment"].to_numpy()
    times = table["_timestamp"].cast(pa.int64()).to_numpy().copy()
    latest: dict[int, int] = {}
    for segment in sorted(set(segments.tolist())):
        rows = segments == segment
        floor = _latest_before(segment, predecessors, latest)
        if floor is not None:
            times[rows] = np.maximum(times[rows], floor)
        latest[segment] = int(times[rows].max())
    order: npt.NDArray[np.intp] = np.argsort(times, kind="stable")
    return table if (np.diff(order) == 1).all() else table.take(pa.array(order))


def _latest_before(segment: int, predecessors: Mapping[int, Sequence[int]], latest: Mapping[int, int]) -> int | None:
    """The latest time of all segments before this one, directly or not; None if none of them is in the page."""
    found: int | None = None
    waiting, seen = list(predecessors.get(segment, ())), set[int]()
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        if each in latest and (found is None or latest[each] > found):
            found = latest[each]
        waiting += predecessors.get(each, ())
    return found
