"""The end of a topic at one moment, for readers that stop there while others go on publishing."""

import numpy as np
import pyarrow as pa

from filer.topic.positions import from_marker


class PresentEnd:
    """The end of each segment that was open when `marker` was taken.

    Segment ids grow in the order of opening. A segment that the marker does not name is older and lies wholly before
    the end if its id is below the highest named id. If its id is higher, it is newer and lies after the end.
    """

    def __init__(self, topic: str, marker: str) -> None:
        self.marker = marker
        self._topic = topic
        self._ends = from_marker(topic, marker)
        self._newest = max(self._ends)

    def clip(self, table: pa.Table) -> pa.Table:
        """Return the rows before the end."""
        segments = table["segment"].to_numpy()
        offsets = table["_offset"].to_numpy()
        before = segments < self._newest
        for segment, end in self._ends.items():
            before = np.where(segments == segment, offsets < end, before)
        return table if before.all() else table.filter(pa.array(before))

    def is_reached(self, marker: str) -> bool:
        """Whether a reader at `marker` has read everything before the end."""
        return all(self._is_past_end(each) for each in from_marker(self._topic, marker).items())

    def _is_past_end(self, position: tuple[int, int]) -> bool:
        segment, offset = position
        return segment > self._newest or offset >= self._ends.get(segment, offset + 1)
