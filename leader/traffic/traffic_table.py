"""A leader's knowledge of all open segments, in columns: decisions over 100,000 of them are a few passes of numpy.

A segment without a report is in the table as unknown. A segment takes 125 bytes in the columns, twice that while they
grow, and about as much again for finding its row by name.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from filer.topic.topic_config import Target
from filer.topic.topic_state import Segment, TopicState
from leader.traffic.segment_rows import REPORTED_COLUMNS, SHOWN_COLUMNS, Block, Columns, SegmentRows
from leader.traffic.traffic_averages import RecentTraffic, SegmentTraffic

Rates = npt.NDArray[np.float64]

YOUNG_SECONDS = 10.0
"""The first reports of a segment count the pause in which it began. For so long its predecessors' work counts more."""
LASTING_SECONDS = 600.0
"""The window of the column `lasting`."""
_ONE = Target()


@dataclass(frozen=True, slots=True)
class Opening:
    """A segment that a transition is about to open: its owner as an index into `owners`, and its expected work."""

    owner: int
    work: float
    lasting: float


class TrafficTable:
    """Open segments by topic and slots, with the last report of each. Times are those of one monotonic clock."""

    def __init__(self) -> None:
        self._rows = SegmentRows()
        self._opening: dict[str, list[Opening]] = {}

    def clear(self) -> None:
        """Forget everything."""
        self._rows = SegmentRows()
        self._opening = {}

    # -- columns -------------------------------------------------------------------------------------------

    @property
    def segments(self) -> Columns:
        """Rows of `SEGMENT_COLUMNS`. Those of one topic lie together, neighbours side by side."""
        return self._rows.segments

    @property
    def topics(self) -> Columns:
        """Rows of `TOPIC_COLUMNS`."""
        return self._rows.topics

    @property
    def owners(self) -> Sequence[str]:
        """Brokers by their number. Some of them may no longer own anything."""
        return self._rows.owners

    @property
    def opening(self) -> list[Opening]:
        """The segments that transitions under way are about to open."""
        return [each for opened in self._opening.values() for each in opened]

    @property
    def bytes_held(self) -> int:
        """Size of the columns."""
        return self._rows.size_bytes

    def topic_name(self, number: int) -> str:
        """The topic with that row in `topics`."""
        return self._rows.topic_names[number]

    def topic_number(self, topic: str) -> int | None:
        """The row of that topic in `topics`; None if the topic is not known."""
        block = self._rows.blocks.get(topic)
        return None if block is None else block.number

    def row(self, topic: str, segment: int) -> int | None:
        """The row of an open segment in `segments`; None if the segment is not known."""
        return self._rows.row(topic, segment)

    # -- states of topics ----------------------------------------------------------------------------------

    def apply(self, state: TopicState) -> None:
        """Take a topic's state, unless a newer one is known.

        Reports of segments that stay are kept. After a roll or a move they count for the successor.
        """
        known = self._rows.blocks.get(state.topic)
        if known is not None and known.version >= state.version:
            return
        if state.deleted:
            self.forget(state.topic)
            return
        opened = state.open_segments
        block = known or self._rows.add(state.topic)
        if list(block.indexes) != [s.id for s in opened]:
            if self._rows.has_many_dead_rows:
                self._compact()
            expected = _expected_work(self.segments, block, opened)
            self._rows.lay_out(block, opened, {s.id: s for s in state.segments}, expected)
        block.version = state.version
        self.release(state.topic)
        self.expect(state)
        self._rows.configure(block, state.config, busy=state.transition is not None)

    def forget(self, topic: str) -> None:
        """Drop a topic."""
        self._opening.pop(topic, None)
        self._rows.remove(topic)

    def expect(self, begun: TopicState) -> None:
        """Count the segments that the transition in that state opens, and no longer those that it seals.

        That holds until a newer state is applied, or until `release`, if the transition ends without effect. So code
        that assigns brokers to other segments meanwhile takes it into account. Unknown topics change nothing.
        """
        block, record = self._rows.blocks.get(begun.topic), begun.transition
        if block is None or record is None:
            return
        rows = [block.first_row + block.indexes[i] for i in record.seal if i in block.indexes]
        self.segments["leaving"][rows] = True
        expected = _expected_work(self.segments, block, record.open)
        self._opening[begun.topic] = [
            Opening(self._rows.owner_number(s.owner), *work) for s, work in zip(record.open, expected, strict=True)
        ]

    def release(self, topic: str) -> None:
        """Expect no transition of that topic any more."""
        block = self._rows.blocks.get(topic)
        if self._opening.pop(topic, None) is not None and block is not None:
            self.segments["leaving"][block.rows] = False

    def _compact(self) -> None:
        renumbered = self._rows.compact(keep_owners=[each.owner for each in self.opening])
        self._opening = {
            topic: [replace(each, owner=renumbered[each.owner]) for each in opened]
            for topic, opened in self._opening.items()
        }

    # -- reports of owners ---------------------------------------------------------------------------------

    def record(self, traffic: Iterable[SegmentTraffic], *, now_seconds: float) -> None:
        """Take the owners' reports of their segments. Drops reports of segments that are not open here."""
        rows: list[int] = []
        reported: list[tuple[float, ...]] = []
        row_of = self._rows.row
        for each in traffic:
            row = row_of(each.topic, each.segment)
            if row is not None:
                rows.append(row)
                reported.append(
                    (now_seconds, each.pressure, each.firing_average, each.recent, each.warmest, each.merge_average,
                     each.age_seconds, each.messages_per_second, each.bytes_per_second, each.read_messages_per_second,
                     each.read_bytes_per_second, each.pending_bytes)
                )  # fmt: skip
        if rows:
            segments = self.segments
            before_seconds = segments["reported_seconds"][rows]
            for name, column in zip((*REPORTED_COLUMNS, *SHOWN_COLUMNS), np.array(reported).T, strict=True):
                segments[name][rows] = column
            pressing = [row for row, (_, pressure, *_) in zip(rows, reported, strict=True) if pressure > 1]
            segments["pressed_seconds"][pressing] = now_seconds
            _update_work(segments, np.array(rows), now_seconds - before_seconds)

    def record_again(self, traffic: Sequence[SegmentTraffic], *, now_seconds: float) -> Sequence[SegmentTraffic]:
        """Count segments as they were reported last; returns those without a report here.

        Thousands of idle segments are repeated each second: this writes only what changes with time.
        """
        row_of = self._rows.row
        rows = [row_of(each.topic, each.segment) for each in traffic]
        known = np.array([row for row in rows if row is not None], np.intp)
        segments = self.segments
        before_seconds = segments["reported_seconds"][known]
        reported = before_seconds > -np.inf
        segments["reported_seconds"][known[reported]] = now_seconds
        _update_work(segments, known[reported], now_seconds - before_seconds[reported])
        if reported.all() and len(known) == len(traffic):
            return ()
        missing = {int(row) for row in known[~reported]}
        return [each for each, row in zip(traffic, rows, strict=True) if row is None or row in missing]

    def recent(self, topic: str, segment: int, *, since_seconds: float) -> RecentTraffic | None:
        """The last report of an open segment; None if there was none since then."""
        row = self.row(topic, segment)
        if row is None or self.segments["reported_seconds"][row] < since_seconds:
            return None
        reported = self.segments[row]
        return RecentTraffic(
            messages_per_second=float(reported["messages_per_second"]),
            bytes_per_second=float(reported["bytes_per_second"]),
            times_target=float(reported["recent"]),
            read_messages_per_second=float(reported["read_messages_per_second"]),
            read_bytes_per_second=float(reported["read_bytes_per_second"]),
            pending_bytes=int(reported["pending_bytes"]),
        )

    def hold(self, topic: str, segment: int, slot: int, *, until_seconds: float) -> None:
        """Propose no split of that segment before the given time: that slot has too much of its traffic."""
        row = self.row(topic, segment)
        if row is not None:
            self.segments["hot_slot"][row] = slot
            self.segments["held_until_seconds"][row] = until_seconds

    def hot_slot(self, topic: str, segment: int, *, since_seconds: float) -> int | None:
        """The slot for which a segment was held, if both the hold and a split rule held at some time since then."""
        row = self.row(topic, segment)
        if row is None:
            return None
        held = self.segments[row]
        is_hot = min(held["held_until_seconds"], held["pressed_seconds"]) >= since_seconds
        return int(held["hot_slot"]) if is_hot else None


def work_of(messages_per_second: Rates, bytes_per_second: Rates) -> Rates:
    """The cost of such a rate for a broker, in multiples of one default target.

    The topic's own target does not count: it says when the user wants the topic to split, for any reason, and a message
    costs a broker no less because its topic splits late. Messages and bytes both cost, so both are added.
    """
    return messages_per_second / _ONE.messages + bytes_per_second / _ONE.bytes


def _expected_work(segments: Columns, block: Block, opened: Sequence[Segment]) -> list[tuple[float, float]]:
    """The `work` and `lasting` to expect of each: an even part of each predecessor's, NaN if none is known."""
    heirs = Counter(before for s in opened for before in s.predecessors)
    known = segments[["work", "lasting"]]

    def of(segment: Segment) -> tuple[float, float]:
        parts = [
            (float(work) / heirs[before], float(lasting) / heirs[before])
            for before in segment.predecessors
            if (index := block.indexes.get(before)) is not None
            for work, lasting in [known[block.first_row + index]]
        ]
        return (sum(p[0] for p in parts), sum(p[1] for p in parts)) if parts else (np.nan, np.nan)

    return [of(segment) for segment in opened]


def _update_work(segments: Columns, rows: npt.NDArray[np.intp], passed_seconds: npt.NDArray[np.float64]) -> None:
    """Set `work` and `lasting` of rows that have just been reported, so long after their reports before."""
    reported = segments[rows]
    counts = np.isnan(reported["work"]) | (reported["age_seconds"] >= YOUNG_SECONDS)
    rows, reported, passed_seconds = rows[counts], reported[counts], passed_seconds[counts]
    work = work_of(reported["messages_per_second"], reported["bytes_per_second"])
    segments["work"][rows] = work
    lasting = reported["lasting"]
    # A first report counts for no more than the owner's long average: the rate may be that of a moment.
    recent = reported["recent"]
    share = np.divide(reported["merge_average"], recent, out=np.ones_like(recent), where=recent > 0)
    kept = np.exp(-np.where(np.isinf(passed_seconds), 0, passed_seconds) / LASTING_SECONDS)
    segments["lasting"][rows] = np.where(
        np.isnan(lasting), work * np.minimum(share, 1), kept * lasting + (1 - kept) * work
    )
