"""How far behind a group is, in messages and in seconds."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from filer.clock import Clock
from filer.errors import BraidError
from filer.topic.positions import passed_by
from filer.topic.topic_state import Segment, TopicState
from groups.fold import GroupProgress
from groups.offset_set import OffsetSet, ranges_of
from groups.queue.message_times import Times, times_of
from groups.queue.progress import QueueProgress
from groups.records import Done
from groups.removed import removed_from
from groups.stream.progress import StreamProgress
from mq.groups.group_source import GroupSource
from mq.groups.removed_segments import removed_segments
from mq.topic.topic_reader import TopicReader
from mq.topic.topic_view import TopicView

COUNTED_ROWS, COUNTED_BYTES = 10_000, 1024 * 1024
"""So many messages of a segment that the group has not looked at are read, about so much at a time."""
COUNTED_PAGES = 16
"""And so many pages at the most in one go. Their result is remembered."""
OLDEST_ROWS = 100
"""The oldest message is searched among so many, if the first ones had a delay."""


class Lag(NamedTuple):
    """The messages that are not done and can be delivered, and for how many seconds the oldest of them has been due.

    0.0 if there are none, None if the oldest cannot be read. `unread`: how many of them the group has not looked at, by
    segment. For a member of a topic group, only as many are read as `COUNTED_ROWS` allows. If there are more, all
    members' messages count, and `is_exact` is false. `delayed` messages were never handed out and are not due yet; they
    are no part of the lag. `removed` ones are gone, and no record of the group says so yet.
    """

    messages: int
    seconds: float | None
    unread: Mapping[int, int]
    is_exact: bool = True
    delayed: int = 0
    removed: int = 0


class _Since(NamedTuple):
    """From when on a message could be delivered, in microseconds since the epoch, and whether that is when it came."""

    us: int
    is_arrival: bool


@dataclass(slots=True)
class _Ahead:
    """What was read of a segment, from the group's position up to `reached`.

    `own` are the group's messages among it, and `times` those of them with a delay or an expiry.
    """

    reached: int
    own: OffsetSet = field(default_factory=OffsetSet)
    times: dict[int, Times] = field(default_factory=dict)

    def begin(self, offset: int) -> None:
        """Forget what lies before the group's position."""
        self.reached = max(self.reached, offset)
        self.own.remove(0, offset)
        for each in [each for each in self.times if each < offset]:
            del self.times[each]

    def add(self, offsets: pa.ChunkedArray, headers: pa.ChunkedArray, end: int) -> None:
        """Add the group's messages up to `end`."""
        numbers = offsets.to_pylist()
        self.own.add_all(ranges_of(numbers))
        self.times.update((numbers[row], times) for row, times in times_of(headers).items())
        self.reached = end


class LagMemory:
    """What was read of one group's messages to compute its lag, so that it is read only once. It is bounded."""

    def __init__(self) -> None:
        self.since: dict[tuple[int, int], _Since] = {}
        self.ahead: dict[int, _Ahead] = {}
        self.lives: dict[int, Segment | None] = {}


class _Unread(NamedTuple):
    """The messages of a segment that the group has not looked at: how many can be delivered, how many are delayed.

    `candidates` contain the oldest one. `is_exact`: all are counted.
    """

    messages: int
    delayed: int
    candidates: OffsetSet
    is_exact: bool = True


async def lag_of(
    progress: GroupProgress,
    positions: Mapping[int, int],
    source: GroupSource,
    clock: Clock,
    memory: LagMemory | None = None,
    *,
    looks_ahead: bool = True,
) -> Lag:
    """Return the lag of a group that has looked at nothing from these positions on.

    `memory` has what was read before. Without `looks_ahead`, nothing more is read ahead of a group that has a topic of
    its own. If something cannot be read now, the result has what is known. Raises as `GroupSource.view`, and if the end
    of a segment is not known.
    """
    memory, now_ms = LagMemory() if memory is None else memory, clock.now_us() // 1000
    view = await source.view()
    state = view.state
    behind = not_looked_at(progress, positions, state)
    counting = _Counting(view, source, memory, now_ms, has_times=isinstance(progress, QueueProgress))
    looks = looks_ahead or view.member is not None
    found = await asyncio.gather(*(counting.unread(each, offset, looks=looks) for each, offset in behind.items()))
    for segment in memory.ahead.keys() - behind.keys():
        del memory.ahead[segment]
    unread = dict(zip(behind, found, strict=True))
    removed = await _removed(view, positions, memory)
    unfinished = dict[int, OffsetSet]()
    delayed = sum(each.delayed for each in found)
    for segment, each in () if isinstance(progress, StreamProgress) else progress.segments.items():
        # If no consumer asks for the group, no record says yet that something is due.
        resting = OffsetSet(
            part for due_ms, offsets in each.delayed.items() if due_ms > now_ms for part in offsets.ranges()
        )
        left, gone = _still_there(state, segment, each.unfinished())
        removed += gone
        delayed += sum(stop - start for part in resting.ranges() for start, stop in left.within(*part))
        left.remove_all(resting.ranges())
        unfinished[segment] = left
    candidates = [(segment, offsets) for segment, offsets in unfinished.items() if offsets]
    candidates += [(segment, each.candidates) for segment, each in unread.items() if each.messages]
    return Lag(
        sum(each.messages for each in found) + sum(map(len, unfinished.values())),
        await _seconds(source.make_reader(TopicView(view.runtime)), candidates, memory, clock),
        {segment: each.messages for segment, each in unread.items() if each.messages},
        all(each.is_exact for each in found),
        delayed,
        removed,
    )


async def _removed(view: TopicView, positions: Mapping[int, int], memory: LagMemory) -> int:
    try:
        lives = await removed_segments(view.runtime, positions, memory.lives)
    except BraidError:
        lives = {segment: life for segment, life in memory.lives.items() if life is not None}
    return _count(removed_from(view.state, positions, lives))


def _count(ranges: Iterable[Done]) -> int:
    return sum(each.stop - each.start for each in ranges)


def _still_there(state: TopicState, segment_id: int, offsets: OffsetSet) -> tuple[OffsetSet, int]:
    """Return the offsets of a segment that can still be read, and how many cannot.

    A state that does not have the segment yet says nothing of it.
    """
    segment, count = state.segment(segment_id), len(offsets)
    if segment is None:
        return (OffsetSet(), count) if segment_id < state.next_segment else (offsets, 0)
    offsets.remove(0, segment.start_offset)
    offsets.remove_all(_given_up(segment))
    return offsets, count - len(offsets)


def _given_up(segment: Segment) -> list[tuple[int, int]]:
    """Return the given-up ranges of a segment, as far as their ends are known."""
    ranges = segment.given_up_ranges.ranges
    return [(each.start, each.end) for each in ranges if each.end is not None]


@dataclass(frozen=True, slots=True)
class _Counting:
    """Counts the messages that a group has not looked at. `has_times`: it goes by delays and expiries."""

    view: TopicView
    source: GroupSource
    memory: LagMemory
    now_ms: int
    has_times: bool

    async def unread(self, segment: int, offset: int, *, looks: bool) -> _Unread:
        """Return the messages of a segment from that offset on."""
        end = await self.view.reads.end_of(segment)
        if end <= offset:
            self.memory.ahead.pop(segment, None)
            return _Unread(0, 0, OffsetSet())
        if self.view.member is None and not self.has_times:
            return self._counted(segment, _Ahead(offset), offset, end)
        ahead = self.memory.ahead.setdefault(segment, _Ahead(offset))
        ahead.begin(offset)
        if looks:
            await self._look(segment, ahead, min(end, offset + COUNTED_ROWS))
        return self._counted(segment, ahead, offset, end)

    async def _look(self, segment: int, ahead: _Ahead, stop: int) -> None:
        """Read on up to `stop`, as far as messages can be read and are not too large."""
        reader, pages = self.source.make_reader(self.view), 0
        try:
            while ahead.reached < stop and pages < COUNTED_PAGES:
                begin = ahead.reached
                run = await reader.read_segment(segment, begin, max_rows=stop - begin, max_bytes=COUNTED_BYTES)
                # Another measurement may have come as far meanwhile.
                if run.end <= ahead.reached:
                    break
                ahead.add(run.table["_offset"], run.table["headers"], run.end)
                pages += 1
        except BraidError:
            return

    def _counted(self, segment: int, ahead: _Ahead, offset: int, end: int) -> _Unread:
        """Messages that were read are known one by one. Of the rest, all that were not given up count."""
        known_end = min(ahead.reached, offset + COUNTED_ROWS)
        rest = OffsetSet([(known_end, end)])
        if (known := self.view.state.segment(segment)) is not None:
            rest.remove_all(_given_up(known))
        due = OffsetSet(ahead.own.within(offset, known_end))
        delayed = 0
        for place, times in ahead.times.items() if self.has_times else ():
            if times.is_expired(self.now_ms):
                due.remove(place, place + 1)
            elif times.is_delayed(self.now_ms) and place < known_end:
                due.remove(place, place + 1)
                delayed += 1
        return _Unread(len(due) + len(rest), delayed, due or rest, self.view.member is None or not rest)


def not_looked_at(progress: GroupProgress, positions: Mapping[int, int], state: TopicState) -> dict[int, int]:
    """Return the offsets from which on the group has looked at nothing, by segment."""
    ahead = {segment.id for segment in state.segments} - passed_by(state, positions)
    return {
        segment.id: max(positions.get(segment.id, 0), segment.start_offset)
        for segment in state.segments
        if segment.id in ahead and (segment.id in positions or segment.id not in progress.segments)
    }


async def _seconds(
    reader: TopicReader, candidates: Iterable[tuple[int, OffsetSet]], memory: LagMemory, clock: Clock
) -> float | None:
    """For how long the oldest of these messages could be delivered; 0.0 for none, None if it cannot be read."""
    found = await asyncio.gather(
        *(_oldest(reader, segment, offsets, memory.since) for segment, offsets in candidates), return_exceptions=True
    )
    looked_at: dict[tuple[int, int], _Since] = {}
    oldest_us, is_known = clock.now_us(), True
    for each in found:
        if isinstance(each, BraidError):
            is_known = False
        elif isinstance(each, BaseException):
            raise each
        else:
            looked_at |= each
    memory.since = looked_at
    oldest_us = min((each.us for each in looked_at.values()), default=oldest_us)
    return max((clock.now_us() - oldest_us) / 1e6, 0.0) if is_known else None


async def _oldest(
    reader: TopicReader, segment: int, offsets: OffsetSet, known: Mapping[tuple[int, int], _Since]
) -> dict[tuple[int, int], _Since]:
    """From when on the first messages could be delivered, up to one without a delay: none behind it came earlier.

    So no more are read, and `OLDEST_ROWS` at the most.
    """
    found: dict[tuple[int, int], _Since] = {}
    for start, stop in offsets.ranges():
        offset = start
        while offset < stop:
            since = known.get((segment, offset))
            if since is None:
                run = await reader.read_segment(segment, offset, max_rows=1, max_bytes=1)
                if not run.table.num_rows:
                    break
                first = run.end - run.table.num_rows
                if first >= stop:
                    break
                offset, since = first, _since(run.table)
            found[segment, offset] = since
            if since.is_arrival or len(found) >= OLDEST_ROWS:
                return found
            offset += 1
    return found


def _since(row: pa.Table) -> _Since:
    arrival_us = row["_timestamp"].cast("int64")[0].as_py()
    times = times_of(row["headers"]).get(0)
    due_us = 0 if times is None or times.due_ms is None else times.due_ms * 1000
    return _Since(max(arrival_us, due_us), due_us <= arrival_us)
