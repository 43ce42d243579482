"""The end of a reading of a topic, while others go on publishing."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class ReadingEnd(Protocol):
    """A place in a topic."""

    def is_before(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        """Return for each row whether it lies before the end."""
        ...

    def is_reached(self, positions: Mapping[int, int]) -> bool:
        """Whether a reader at these positions (`{segment: offset}`) has read everything before the end."""
        ...


def clip(table: pa.Table, end: ReadingEnd) -> pa.Table:
    """Return the rows before the end."""
    before = end.is_before(table)
    return table if before.all() else table.filter(pa.array(before))


class PresentEnd:
    """The end of each segment that was open when the positions `ends` were taken.

    Segment ids grow in the order of opening. A segment that the positions do not name is older and lies wholly before
    the end if its id is below the highest named id. If its id is higher, it is newer and lies after the end.
    """

    def __init__(self, ends: Mapping[int, int]) -> None:
        self._ends = ends
        self._newest = max(ends)

    def is_before(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        """As `ReadingEnd`."""
        return _is_before(table, self._ends, table["segment"].to_numpy() < self._newest)

    def is_reached(self, positions: Mapping[int, int]) -> bool:
        """As `ReadingEnd`."""
        return all(
            segment > self._newest or offset >= self._ends.get(segment, offset + 1)
            for segment, offset in positions.items()
        )


class PastEnd:
    """Positions `ends` of an earlier moment, and the segments before them (`lineage.ancestors`).

    Such positions may name segments that were opened long after the moment, if nothing was published before that. So
    ids give no order here. A segment that is neither named nor before lies after the end.
    """

    def __init__(self, ends: Mapping[int, int], before: frozenset[int]) -> None:
        self._ends, self._before = ends, before - ends.keys()

    def is_before(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        """As `ReadingEnd`."""
        return _is_before(table, self._ends, np.isin(table["segment"].to_numpy(), list(self._before)))

    def is_reached(self, positions: Mapping[int, int]) -> bool:
        """As `ReadingEnd`."""
        return all(
            segment not in self._before and offset >= self._ends.get(segment, offset)
            for segment, offset in positions.items()
        )


def _is_before(table: pa.Table, ends: Mapping[int, int], elsewhere: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """By offset in the segments that `ends` names, and by `elsewhere` in all others."""
    segments, offsets = table["segment"].to_numpy(), table["_offset"].to_numpy()
    before = elsewhere
    for segment, end in ends.items():
        before = np.where(segments == segment, offsets < end, before)
    return before
