"""What a leader knows of all open segments, in columns: a decision over 100,000 of them is a few passes of numpy.

A segment that nobody has reported is in it as unknown. A segment takes 108 bytes in the columns, twice that while they
grow, and about as much again to find its row by name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from filer.topic_config import TopicConfig
from filer.topic_state import Segment, TopicState
from leader.load_averages import RecentLoad, SegmentLoad, goes_on_for

Columns = npt.NDArray[Any]
"""A structured array: one entry a row, read by column."""

_HEARD = ["heard_seconds", "pressure", "firing_average", "recent", "warmest", "merge_average", "age_seconds",
          "messages_per_second", "bytes_per_second"]  # fmt: skip
SEGMENT_COLUMNS = np.dtype(
    [
        *(("topic", "i4"), ("segment", "i8"), ("slots", "i4"), ("hot_slot", "i4")),
        *((name, "f8") for name in ("held_until_seconds", "pressed_seconds", *_HEARD)),
    ]
)
"""`topic` is its row in the other table, -1 where the segment is open no more; `heard_seconds` -inf before a report.
`hot_slot` is the one for which the segment was held until then, `pressed_seconds` when a split rule last held."""
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
class _Block:
    """A topic's rows: one after the other in the order of slots, from `first_row` on."""

    number: int
    version: int
    first_row: int
    places: dict[int, int]


class LoadTable:
    """Open segments by topic and slots, and what was last heard of each. Times are those of one monotonic clock."""

    def __init__(self) -> None:
        self._blocks: dict[str, _Block] = {}
        self._names: list[str] = []
        self._unused_numbers: list[int] = []
        self._segments = np.zeros(_LEAST_ROWS, SEGMENT_COLUMNS)
        self._topics = np.zeros(_LEAST_ROWS, TOPIC_COLUMNS)
        self._rows = self._dead_rows = 0

    @property
    def segments(self) -> Columns:
        """Rows of `SEGMENT_COLUMNS`; those of one topic stand together, neighbours side by side."""
        return self._segments[: self._rows]

    @property
    def topics(self) -> Columns:
        """Rows of `TOPIC_COLUMNS`."""
        return self._topics[: len(self._names)]

    @property
    def bytes_held(self) -> int:
        """Size of the columns."""
        return int(self._segments.nbytes + self._topics.nbytes)

    def topic_name(self, number: int) -> str:
        """The topic of that row."""
        return self._names[number]

    def see(self, state: TopicState) -> None:
        """Take a topic's state, unless a newer one has been seen.

        What was heard of segments that stay is kept, and holds for those that go on for them after a roll or a move.
        """
        known = self._blocks.get(state.topic)
        if known is not None and known.version >= state.version:
            return
        if state.deleted:
            self.forget(state.topic)
            return
        opened = state.open_segments
        if known is None:
            known = self._blocks[state.topic] = _Block(self._new_number(state.topic), 0, 0, {})
        if list(known.places) != [s.id for s in opened]:
            self._lay_out(known, opened, {s.id: s for s in state.segments})
        known.version = state.version
        self._configure(known.number, state.config, len(opened), busy=state.transition is not None)

    def forget(self, topic: str) -> None:
        """Drop a topic."""
        block = self._blocks.pop(topic, None)
        if block is not None:
            self._bury(block)
            self._topics[block.number] = np.zeros((), TOPIC_COLUMNS)
            self._topics["busy"][block.number] = True
            self._unused_numbers.append(block.number)

    def report(self, loads: Iterable[SegmentLoad], *, now_seconds: float) -> None:
        """Take what owners say of their segments; of one that is not open here nothing is kept."""
        rows: list[int] = []
        heard: list[tuple[float, ...]] = []
        for load in loads:
            row = self._row(load.topic, load.segment)
            if row is not None:
                rows.append(row)
                heard.append(
                    (now_seconds, load.pressure, load.firing_average, load.recent, load.warmest, load.merge_average,
                     load.age_seconds, load.messages_per_second, load.bytes_per_second)
                )  # fmt: skip
        if rows:
            for name, column in zip(_HEARD, np.array(heard).T, strict=True):
                self._segments[name][rows] = column
            pressing = [row for row, (_, pressure, *_) in zip(rows, heard, strict=True) if pressure > 1]
            self._segments["pressed_seconds"][pressing] = now_seconds

    def knows(self, topic: str, segment: int) -> bool:
        """Whether that segment is open, as far as has been seen."""
        return self._row(topic, segment) is not None

    def recent(self, topic: str, segment: int, *, since_seconds: float) -> RecentLoad | None:
        """What was last heard of an open segment; None where nothing was since then."""
        row = self._row(topic, segment)
        if row is None or self._segments["heard_seconds"][row] < since_seconds:
            return None
        heard = self._segments[row]
        return RecentLoad(*(float(heard[name]) for name in ("messages_per_second", "bytes_per_second", "recent")))

    def hold(self, topic: str, segment: int, slot: int, *, until_seconds: float) -> None:
        """Propose no split of that segment before then: that slot has been found to carry it."""
        row = self._row(topic, segment)
        if row is not None:
            self._segments["hot_slot"][row] = slot
            self._segments["held_until_seconds"][row] = until_seconds

    def hot_slot(self, topic: str, segment: int, *, since_seconds: float) -> int | None:
        """The slot for which a segment has been held since then, if its load has pressed since then too."""
        row = self._row(topic, segment)
        if row is None:
            return None
        held = self._segments[row]
        is_hot = min(held["held_until_seconds"], held["pressed_seconds"]) >= since_seconds
        return int(held["hot_slot"]) if is_hot else None

    # -- rows ----------------------------------------------------------------------------------------------

    def _row(self, topic: str, segment: int) -> int | None:
        block = self._blocks.get(topic)
        place = None if block is None else block.places.get(segment)
        return None if block is None or place is None else block.first_row + place

    def _new_number(self, topic: str) -> int:
        if self._unused_numbers:
            number = self._unused_numbers.pop()
            self._names[number] = topic
            return number
        self._names.append(topic)
        if len(self._names) > len(self._topics):
            self._topics = _doubled(self._topics)
        return len(self._names) - 1

    def _configure(self, number: int, config: TopicConfig, opened: int, *, busy: bool) -> None:
        scaling = config.scaling
        self._topics[number] = (
            self._topics["first_row"][number], opened, config.min_segments, config.max_segments,
            scaling.merge.times_target, max(scaling.merge.for_seconds, scaling.cooldown_seconds),
            scaling.enabled, busy,
        )  # fmt: skip

    def _lay_out(self, block: _Block, opened: list[Segment], known: Mapping[int, Segment]) -> None:
        """Give a topic new rows for the segments it has now; the former ones are dead."""
        rows = np.zeros(len(opened), SEGMENT_COLUMNS)
        rows["heard_seconds"] = rows["held_until_seconds"] = rows["pressed_seconds"] = -np.inf
        for place, segment in enumerate(opened):
            former = _former_place(block, segment, known)
            if former is not None:
                rows[place] = self._segments[block.first_row + former]
        rows["topic"] = block.number
        rows["segment"] = [s.id for s in opened]
        rows["slots"] = [s.stop_slot - s.start_slot for s in opened]
        self._bury(block)
        self._make_room(len(rows))
        block.first_row = self._rows
        block.places = {s.id: place for place, s in enumerate(opened)}
        self._topics["first_row"][block.number] = block.first_row
        self._segments[self._rows : self._rows + len(rows)] = rows
        self._rows += len(rows)

    def _bury(self, block: _Block) -> None:
        self._segments["topic"][block.first_row : block.first_row + len(block.places)] = -1
        self._dead_rows += len(block.places)
        block.places = {}

    def _make_room(self, rows: int) -> None:
        if self._dead_rows > max(_LEAST_ROWS, self._rows // 2):
            self._close_up()
        while self._rows + rows > len(self._segments):
            self._segments = _doubled(self._segments)

    def _close_up(self) -> None:
        """Drop the dead rows; the others keep their order."""
        alive = self.segments["topic"] >= 0
        rows_before = np.concatenate(([0], np.cumsum(alive)))
        self._segments = self.segments[alive]
        for block in self._blocks.values():
            block.first_row = int(rows_before[block.first_row])
            self._topics["first_row"][block.number] = block.first_row
        self._rows, self._dead_rows = len(self._segments), 0


def _former_place(block: _Block, segment: Segment, known: Mapping[int, Segment]) -> int | None:
    """Where what was heard of a segment stands, or of the nearest that it goes on for: it may be several rolls ago."""
    each: Segment | None = segment
    while each is not None and block.places:
        if (place := block.places.get(each.id)) is not None:
            return place
        each = goes_on_for(each, known)
    return None


def _doubled(rows: Columns) -> Columns:
    return np.concatenate((rows, np.zeros(max(len(rows), _LEAST_ROWS), rows.dtype)))
