"""What a leader knows of all open segments, in columns: a decision over 100,000 of them is a few passes of numpy.

A segment that nobody has reported is in it as unknown. A segment takes 125 bytes in the columns, twice that while they
grow, and about as much again to find its row by name.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from filer.topic_config import Target, TopicConfig
from filer.topic_state import Segment, TopicState
from leader.load_averages import RecentLoad, SegmentLoad, goes_on_for

Columns = npt.NDArray[Any]
"""A structured array: one entry a row, read by column."""

Rates = npt.NDArray[np.float64]

_SHOWN = ["messages_per_second", "bytes_per_second", "read_messages_per_second", "read_bytes_per_second",
          "pending_bytes"]  # fmt: skip
_HEARD = ["heard_seconds", "pressure", "firing_average", "recent", "warmest", "merge_average", "age_seconds"]
SEGMENT_COLUMNS = np.dtype(
    [
        *(("topic", "i4"), ("segment", "i8"), ("slots", "i4"), ("hot_slot", "i4")),
        *((name, "f8") for name in ("held_until_seconds", "pressed_seconds", *_HEARD)),
        # People see these, and brokers are told apart by them: seven digits will do.
        *((name, "f4") for name in _SHOWN),
        *(("owner", "i4"), ("leaving", "?"), ("work", "f4"), ("lasting", "f4")),
    ]
)
"""`topic` is its row in the other table, -1 where the segment is open no more; `heard_seconds` -inf before a report.
`hot_slot` is the one for which the segment was held until then, `pressed_seconds` when a split rule last held.

`owner` is a number that `LoadTable.owners` names; `leaving` that a transition is about to seal it. `work` is what it
costs its owner just now (`work_of`), `lasting` a moving average of that over `LASTING_SECONDS`. Both are guessed from
its predecessors' until it has been reported for a while, NaN where nothing is known.
"""
TOPIC_COLUMNS = np.dtype(
    [
        *((name, "i8") for name in ("first_row", "open", "min_segments", "max_segments")),
        *((name, "f8") for name in ("merge_below", "merge_age_seconds")),
        *((name, "?") for name in ("scaling", "busy")),
    ]
)
"""`busy`: a transition is under way, or there is no such topic any more."""
YOUNG_SECONDS = 10.0
"""A segment's first reports tell of the pause in which it began: so long its predecessors' work says more."""
LASTING_SECONDS = 600.0
"""The window of `lasting`."""
_LEAST_ROWS = 1024
_ONE = Target()


@dataclass(frozen=True, slots=True)
class Opening:
    """A segment that a transition is about to open: the number of its owner, and the work that is expected."""

    owner: int
    work: float
    lasting: float


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
        self._owners: list[str] = []
        self._owner_numbers: dict[str, int] = {}
        self._opening: dict[str, list[Opening]] = {}

    def clear(self) -> None:
        """Forget everything."""
        vars(self).update(vars(LoadTable()))

    @property
    def segments(self) -> Columns:
        """Rows of `SEGMENT_COLUMNS`; those of one topic stand together, neighbours side by side."""
        return self._segments[: self._rows]

    @property
    def topics(self) -> Columns:
        """Rows of `TOPIC_COLUMNS`."""
        return self._topics[: len(self._names)]

    @property
    def owners(self) -> Sequence[str]:
        """Brokers by their number; some of them may own nothing any more."""
        return self._owners

    @property
    def opening(self) -> list[Opening]:
        """What transitions under way are about to open."""
        return [each for opened in self._opening.values() for each in opened]

    @property
    def bytes_held(self) -> int:
        """Size of the columns."""
        return int(self._segments.nbytes + self._topics.nbytes)

    def topic_name(self, number: int) -> str:
        """The topic of that row."""
        return self._names[number]

    def topic_number(self, topic: str) -> int | None:
        """The row of that topic; None where it is not known."""
        block = self._blocks.get(topic)
        return None if block is None else block.number

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
        self.release(state.topic)
        self.expect(state)
        self._configure(known.number, state.config, len(opened), busy=state.transition is not None)

    def forget(self, topic: str) -> None:
        """Drop a topic."""
        self._opening.pop(topic, None)
        block = self._blocks.pop(topic, None)
        if block is not None:
            self._bury(block)
            self._topics[block.number] = np.zeros((), TOPIC_COLUMNS)
            self._topics["busy"][block.number] = True
            self._unused_numbers.append(block.number)

    def expect(self, begun: TopicState) -> None:
        """Count what the transition in that state opens, and no more what it seals.

        Until a newer state is seen, or `release` says that it came to nothing: those who place other segments
        meanwhile are to know of it. A topic or transition that is not there changes nothing.
        """
        block, record = self._blocks.get(begun.topic), begun.transition
        if block is None or record is None:
            return
        rows = [block.first_row + block.places[i] for i in record.seal if i in block.places]
        self._segments["leaving"][rows] = True
        expected = self._inherited(block, record.open)
        self._opening[begun.topic] = [
            Opening(self._owner_number(s.owner), *work) for s, work in zip(record.open, expected, strict=True)
        ]

    def release(self, topic: str) -> None:
        """Expect no transition of that topic any more."""
        block = self._blocks.get(topic)
        if self._opening.pop(topic, None) is not None and block is not None:
            self._segments["leaving"][block.first_row : block.first_row + len(block.places)] = False

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
                     load.age_seconds, load.messages_per_second, load.bytes_per_second, load.read_messages_per_second,
                     load.read_bytes_per_second, load.pending_bytes)
                )  # fmt: skip
        if rows:
            before_seconds = self._segments["heard_seconds"][rows]
            for name, column in zip((*_HEARD, *_SHOWN), np.array(heard).T, strict=True):
                self._segments[name][rows] = column
            pressing = [row for row, (_, pressure, *_) in zip(rows, heard, strict=True) if pressure > 1]
            self._segments["pressed_seconds"][pressing] = now_seconds
            self._note_work(np.array(rows), now_seconds - before_seconds)

    def _note_work(self, rows: npt.NDArray[np.intp], passed_seconds: npt.NDArray[np.float64]) -> None:
        heard = self._segments[rows]
        said = np.isnan(heard["work"]) | (heard["age_seconds"] >= YOUNG_SECONDS)
        rows, heard, passed_seconds = rows[said], heard[said], passed_seconds[said]
        work = work_of(heard["messages_per_second"], heard["bytes_per_second"])
        self._segments["work"][rows] = work
        lasting = heard["lasting"]
        # What comes first is taken for no more than the owner's long average: it may be a moment's.
        recent = heard["recent"]
        share = np.divide(heard["merge_average"], recent, out=np.ones_like(recent), where=recent > 0)
        kept = np.exp(-np.where(np.isinf(passed_seconds), 0, passed_seconds) / LASTING_SECONDS)
        self._segments["lasting"][rows] = np.where(
            np.isnan(lasting), work * np.minimum(share, 1), kept * lasting + (1 - kept) * work
        )

    def knows(self, topic: str, segment: int) -> bool:
        """Whether that segment is open, as far as has been seen."""
        return self._row(topic, segment) is not None

    def recent(self, topic: str, segment: int, *, since_seconds: float) -> RecentLoad | None:
        """What was last heard of an open segment; None where nothing was since then."""
        row = self._row(topic, segment)
        if row is None or self._segments["heard_seconds"][row] < since_seconds:
            return None
        heard = self._segments[row]
        return RecentLoad(
            messages_per_second=float(heard["messages_per_second"]),
            bytes_per_second=float(heard["bytes_per_second"]),
            times_target=float(heard["recent"]),
            read_messages_per_second=float(heard["read_messages_per_second"]),
            read_bytes_per_second=float(heard["read_bytes_per_second"]),
            pending_bytes=int(heard["pending_bytes"]),
        )

    def row(self, topic: str, segment: int) -> int | None:
        """Where in `segments` an open segment is; None where it is not known."""
        return self._row(topic, segment)

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
        rows["work"], rows["lasting"] = np.array(self._inherited(block, opened), "f4").T
        for place, segment in enumerate(opened):
            former = _former_place(block, segment, known)
            if former is not None:
                rows[place] = self._segments[block.first_row + former]
        rows["topic"] = block.number
        rows["segment"] = [s.id for s in opened]
        rows["slots"] = [s.stop_slot - s.start_slot for s in opened]
        self._bury(block)
        self._make_room(len(rows))
        rows["owner"] = [self._owner_number(s.owner) for s in opened]
        block.first_row = self._rows
        block.places = {s.id: place for place, s in enumerate(opened)}
        self._topics["first_row"][block.number] = block.first_row
        self._segments[self._rows : self._rows + len(rows)] = rows
        self._rows += len(rows)

    def _inherited(self, block: _Block, opened: Sequence[Segment]) -> list[tuple[float, float]]:
        """The work to be expected of each: an even part of what each of its predecessors has, NaN where unknown."""
        heirs = Counter(before for s in opened for before in s.predecessors)
        known = self._segments[["work", "lasting"]]

        def of(segment: Segment) -> tuple[float, float]:
            parts = [
                (float(work) / heirs[before], float(lasting) / heirs[before])
                for before in segment.predecessors
                if (place := block.places.get(before)) is not None
                for work, lasting in [known[block.first_row + place]]
            ]
            return (sum(p[0] for p in parts), sum(p[1] for p in parts)) if parts else (np.nan, np.nan)

        return [of(segment) for segment in opened]

    def _owner_number(self, broker: str) -> int:
        number = self._owner_numbers.setdefault(broker, len(self._owners))
        if number == len(self._owners):
            self._owners.append(broker)
        return number

    def _bury(self, block: _Block) -> None:
        rows = slice(block.first_row, block.first_row + len(block.places))
        self._segments["topic"][rows], self._segments["leaving"][rows] = -1, False
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
        self._forget_former_owners()

    def _forget_former_owners(self) -> None:
        """Number those anew that own something, or are about to."""
        opening = [each.owner for each in self.opening]
        used, numbers = np.unique(
            np.concatenate((self._segments["owner"], np.array(opening, "i4"))), return_inverse=True
        )
        self._segments["owner"] = numbers[: len(self._segments)]
        renamed = {int(number): place for place, number in enumerate(used)}
        self._opening = {
            topic: [replace(each, owner=renamed[each.owner]) for each in opened]
            for topic, opened in self._opening.items()
        }
        self._owners = [self._owners[number] for number in used]
        self._owner_numbers = {broker: number for number, broker in enumerate(self._owners)}


def work_of(messages_per_second: Rates, bytes_per_second: Rates) -> Rates:
    """What such a rate costs a broker, in loads that reach one default target.

    Not in shares of the topic's own target: that is where its owner wants it cut, whatever the reason, and a broker has
    no less to do for a message because its topic is to split late. Messages and bytes both cost, so both count.
    """
    return messages_per_second / _ONE.messages + bytes_per_second / _ONE.bytes


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
