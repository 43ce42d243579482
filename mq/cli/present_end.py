"""The end of a topic as it was at one moment, for readers that stop there while others go on publishing."""

import numpy as np
import pyarrow as pa

from filer.positions import from_marker


class PresentEnd:
    """The position that `marker` names: where each segment that was open then ended.

    Segment ids grow in the order of opening: one that is not named is older and wholly before the end where
    its id is lower than the highest named one, and newer where it is higher.
    """

    def __init__(self, topic: str, marker: str) -> None:
        self.marker = marker
        self._topic = topic
        self._ends = from_marker(topic, marker)
        self._newest = max(self._ends)

    def clip(self, table: pa.Table) -> pa.Table:
        """The rows that lie before the end."""
        segments = table["segment"].to_numpy()
        offsets = table["_offset"].to_numpy()
        before = segments < self._newest
        for segment, end in self._ends.items():
            before = np.where(segments == segment, offsets < end, before)
        return table if before.all() else table.filter(pa.array(before))

    def is_reached(self, marker: str) -> bool:
        """Whether a reader that stands at that marker has everything before the end."""
        return all(self._is_behind(each) for each in from_marker(self._topic, marker).items())

    def _is_behind(self, position: tuple[int, int]) -> bool:
        segment, offset = position
        return segment > self._newest or offset >= self._ends.get(segment, offset + 1)
