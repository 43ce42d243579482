"""The columns of the traffic table: a row for each open segment, a row for each topic, and the owners.

The rows of a topic lie side by side in the order of its slots, so neighbours do too. A change of a topic's segments
writes its rows at the end and leaves the former ones dead. Now and then the dead rows are dropped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment
from leader.traffic.traffic_averages import goes_on_for

Columns = npt.NDArray[Any]
"""A structured array: one entry a row, read by column."""

SHOWN_COLUMNS = ["messages_per_second", "bytes_per_second", "read_messages_per_second", "read_bytes_per_second",
                 "pending_bytes"]  # fmt: skip
REPORTED_COLUMNS = [
    "reported_seconds", "pressure", "firing_average", "recent", "warmest", "merge_average", "age_seconds",
]  # fmt: skip
SEGMENT_COLUMNS = np.dtype(
    [
        *(("topic", "i4"), ("segment", "i8"), ("slots", "i4"), ("hot_slot", "i4")),
        *((name, "f8") for name in ("held_until_seconds", "pressed_seconds", *REPORTED_COLUMNS)),
        # Operators read these, and brokers are compared by them: seven digits are enough.
        *((name, "f4") for name in SHOWN_COLUMNS),
        *(("owner", "i4"), ("leaving", "?"), ("work", "f4"), ("lasting", "f4")),
    ]
)
"""`topic` is the topic's row in `TOPIC_COLUMNS`, -1 in a dead row. `reported_seconds` is -inf before the first report.
`hot_slot` is the slot for which the segment is held until `held_until_seconds`, `pressed_seconds` when a split rule
last held.

`owner` is an index into `SegmentRows.owners`. `leaving` says that a transition is about to seal the segment. `work` is
what the segment costs its owner now (`traffic_table.work_of`), `lasting` a moving average of that over
`traffic_table.LASTING_SECONDS`. Until the segment has been reported for a while, both are estimated from its
predecessors. NaN if nothing is known.
"""
TOPIC_COLUMNS = np.dtype(
    [
        *((name, "i8") for name in ("first_row", "open", "min_segments", "max_segments")),
        *((name, "f8") for name in ("merge_below", "merge_age_seconds")),
        *((name, "?") for name in ("scaling", "busy")),
    ]
)
"""`busy`: a transition is under way, or there is no such topic any more."""
_LEAST_ROWS = 1024


@dataclass(slots=True)
class Block:
    """A topic's rows: from `first_row` on, in the order of slots. `indexes` are those of its segments within them.

    `number` is the topic's row in `TOPIC_COLUMNS`, `version` that of its newest state.
    """

    number: int
    version: int = 0
    first_row: int = 0
    indexes: dict[int, int] = field(default_factory=dict)

    @property
    def rows(self) -> slice:
        """The topic's rows."""
        return slice(self.first_row, self.first_row + len(self.indexes))


class SegmentRows:
    """The rows of all topics. Adding rows replaces the arrays that it has returned: do not keep them."""

    def __init__(self) -> None:
        self.blocks: dict[str, Block] = {}
        self.topic_names: list[str] = []
        self.owners: list[str] = []
        self._owner_numbers: dict[str, int] = {}
        self._unused_numbers: list[int] = []
        self._segments = np.zeros(_LEAST_ROWS, SEGMENT_COLUMNS)
        self._topics = np.zeros(_LEAST_ROWS, TOPIC_COLUMNS)
        self._count = self._dead_count = 0

    @property
    def segments(self) -> Columns:
        """Rows of `SEGMENT_COLUMNS`, dead ones included."""
        return self._segments[: self._count]

    @property
    def topics(self) -> Columns:
        """Rows of `TOPIC_COLUMNS`."""
        return self._topics[: len(self.topic_names)]

    @property
    def size_bytes(self) -> int:
        """Size of the columns."""
        return int(self._segments.nbytes + self._topics.nbytes)

    def row(self, topic: str, segment: int) -> int | None:
        """The row of an open segment; None if it is not known."""
        block = self.blocks.get(topic)
        index = None if block is None else block.indexes.get(segment)
        return None if block is None or index is None else block.first_row + index

    def owner_number(self, broker: str) -> int:
        """The index of a broker in `owners`. A new broker is added."""
        number = self._owner_numbers.setdefault(broker, len(self.owners))
        if number == len(self.owners):
            self.owners.append(broker)
        return number

    # -- topics --------------------------------------------------------------------------------------------

    def add(self, topic: str) -> Block:
        """A block without rows for a new topic."""
        if self._unused_numbers:
            number = self._unused_numbers.pop()
            self.topic_names[number] = topic
        else:
            number = len(self.topic_names)
            self.topic_names.append(topic)
            if len(self.topic_names) > len(self._topics):
                self._topics = _doubled(self._topics)
        block = self.blocks[topic] = Block(number)
        return block

    def configure(self, block: Block, config: TopicConfig, *, busy: bool) -> None:
        """Take a topic's configuration, and whether a transition is under way."""
        scaling = config.scaling
        self._topics[block.number] = (
            block.first_row, len(block.indexes), config.min_segments, config.max_segments,
            scaling.merge.times_target, max(scaling.merge.for_seconds, scaling.cooldown_seconds),
            scaling.enabled, busy,
        )  # fmt: skip

    def remove(self, topic: str) -> None:
        """Drop a topic."""
        block = self.blocks.pop(topic, None)
        if block is not None:
            self._kill(block)
            self._topics[block.number] = np.zeros((), TOPIC_COLUMNS)
            self._topics["busy"][block.number] = True
            self._unused_numbers.append(block.number)

    # -- segments ------------------------------------------------------------------------------------------

    def lay_out(
        self,
        block: Block,
        opened: Sequence[Segment],
        known: Mapping[int, Segment],
        expected: Sequence[tuple[float, float]],
    ) -> None:
        """Write new rows for the segments that a topic has now; its former rows are dead then.

        A segment that was there, or that goes on for one (`known` are all segments of the topic), keeps its columns.
        For any other, `expected` has its `work` and `lasting`.
        """
        rows = np.zeros(len(opened), SEGMENT_COLUMNS)
        rows["reported_seconds"] = rows["held_until_seconds"] = rows["pressed_seconds"] = -np.inf
        rows["work"], rows["lasting"] = np.array(expected, "f4").T
        for index, segment in enumerate(opened):
            former = _former_index(block, segment, known)
            if former is not None:
                rows[index] = self._segments[block.first_row + former]
        rows["topic"] = block.number
        rows["segment"] = [s.id for s in opened]
        rows["slots"] = [s.stop_slot - s.start_slot for s in opened]
        rows["owner"] = [self.owner_number(s.owner) for s in opened]
        self._kill(block)
        while self._count + len(rows) > len(self._segments):
            self._segments = _doubled(self._segments)
        block.first_row = self._count
        block.indexes = {s.id: index for index, s in enumerate(opened)}
        self._topics["first_row"][block.number] = block.first_row
        self._segments[self._count : self._count + len(rows)] = rows
        self._count += len(rows)

    def _kill(self, block: Block) -> None:
        self._segments["topic"][block.rows], self._segments["leaving"][block.rows] = -1, False
        self._dead_count += len(block.indexes)
        block.indexes = {}

    @property
    def has_many_dead_rows(self) -> bool:
        """Whether `compact` is worth its pass over all rows."""
        return self._dead_count > max(_LEAST_ROWS, self._count // 2)

    def compact(self, *, keep_owners: Sequence[int] = ()) -> dict[int, int]:
        """Drop the dead rows, and owners that own nothing and are not in `keep_owners`; returns the new numbers.

        The rows that are left keep their order.
        """
        alive = self.segments["topic"] >= 0
        rows_before = np.concatenate(([0], np.cumsum(alive)))
        self._segments = self.segments[alive]
        for block in self.blocks.values():
            block.first_row = int(rows_before[block.first_row])
            self._topics["first_row"][block.number] = block.first_row
        self._count, self._dead_count = len(self._segments), 0
        used, numbers = np.unique(
            np.concatenate((self._segments["owner"], np.array(keep_owners, "i4"))), return_inverse=True
        )
        self._segments["owner"] = numbers[: len(self._segments)]
        self.owners = [self.owners[number] for number in used]
        self._owner_numbers = {broker: number for number, broker in enumerate(self.owners)}
        return {int(number): index for index, number in enumerate(used)}


def _former_index(block: Block, segment: Segment, known: Mapping[int, Segment]) -> int | None:
    """The index of a segment, or of the nearest one that it goes on for, which may be several rolls ago."""
    each: Segment | None = segment
    while each is not None and block.indexes:
        if (index := block.indexes.get(each.id)) is not None:
            return index
        each = goes_on_for(each, known)
    return None


def _doubled(rows: Columns) -> Columns:
    return np.concatenate((rows, np.zeros(max(len(rows), _LEAST_ROWS), rows.dtype)))
