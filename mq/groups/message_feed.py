"""New messages for a queue group: reads them from its topic, and makes them ready to be handed out."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from filer.event_log import EventLog
from filer.format.schema import TOPIC_FIELD
from filer.topic.positions import Positions, earliest, passed_by
from filer.topic.topic_state import Segment, TopicState
from groups.offset_set import OffsetSet
from groups.queue.claims import QueueClaims
from groups.queue.message_times import timed_rows
from groups.queue.progress import QueueProgress
from groups.records import Done, Rested
from groups.removed import removed_from
from mq.groups.group_source import MakeReader
from mq.groups.removed_segments import removed_segments
from mq.topic.run import Run
from mq.topic.topic_view import TopicView
from mq.topic.wakeup import Wakeup

PAGE_BYTES = 8 * 1024 * 1024
LEAST_PART, MOST_READ_ROWS = 1 / 16, 32_000
"""A look reads as if at least this part of a topic group were of its member, and so many rows at the most."""
MOST_UNTOLD = 10_000
"""When so many messages of other members are passed by, a record says so."""

_log = EventLog(__name__)


class _Passed(NamedTuple):
    """Where to go on, and what is gone before that."""

    positions: Positions
    skipped: list[Done]
    removed: set[int]


class Found(NamedTuple):
    """The result of a look: the messages from `known` on, up to `reached`. Records cover offsets below `told`.

    `others` are the messages of other members of the topic group, by segment.
    """

    known: Positions
    told: Positions
    runs: Sequence[Run]
    reached: Positions
    others: Mapping[int, OffsetSet]

    @property
    def own_part(self) -> float:
        """The part of the messages that is the group's own; 1.0 if there are none."""
        rows = sum(run.table.num_rows for run in self.runs)
        return 1.0 - sum(map(len, self.others.values())) / rows if rows else 1.0

    @property
    def must_be_told(self) -> bool:
        """Whether a record has to be written now, and not just because others' messages were passed by.

        That may wait, so that a group without new messages stores nothing. But not for ever: the next coordinator reads
        them again.
        """
        if self.told.keys() != self.reached.keys():
            return True
        passed = sum(self.reached[segment] - offset for segment, offset in self.told.items())
        others = sum(map(len, self.others.values()))
        looked_at = sum(self.reached[segment] - self.known[segment] for segment in self.reached)
        return passed > MOST_UNTOLD or looked_at > others


class Feed:
    """Reads a topic ahead of what is handed out. All methods belong to the event loop's thread.

    `view` returns the running topic, or the member of a topic group, `make_reader` readers of it. It keeps nothing that
    it reads: messages that are handed out are read again, mostly from memory.

    Looks are numbered from 1 on: `started` is the last that has begun, `finished` the last that is over. A caller that
    wants to know what there is now calls `look_again`, and waits for the next one to finish.
    """

    def __init__(self, group: str, view: Callable[[], Awaitable[TopicView]], make_reader: MakeReader) -> None:
        self._group, self._view, self._make_reader = group, view, make_reader
        # Where to read on, and up to where records go. Between the two there is nothing of the member.
        self._positions: Positions | None = None
        self._told: Positions | None = None
        # The part of the messages of the last look that is the member's.
        self._own_part = 1.0
        self._again = asyncio.Event()
        self.started = self.finished = 0
        self.is_waiting = False
        self._lives: dict[int, Segment | None] = {}
        # The last wait has ended with news. So new messages are here, and no other broker need be asked for them.
        self._was_told = False
        self.over = Wakeup()

    def reached(self, progress: QueueProgress) -> Positions:
        """Return the first offset in each segment that the feed has not looked at.

        The stored records give these offsets. The feed has also passed messages of other topics of the group, which no
        record mentions. While a record is on its way, its messages do not count as looked at.
        """
        told, positions = self._told or {}, self._positions or {}
        return {
            segment: positions.get(segment, stored) if told.get(segment) == stored else stored
            for segment, stored in progress.positions().items()
        }

    def look_again(self) -> None:
        """Begin a look that finds everything that was acknowledged before."""
        self._again.set()

    async def learn(self, claims: QueueClaims) -> None:
        """Read the keys of all messages that are not done, for a group that keeps their order.

        Messages that are gone have none: that is found when they are handed out. Raises as `TopicReader.read_segment`.
        """
        # Messages that are not done are the member's own.
        reader = self._make_reader(TopicView((await self._view()).runtime))
        for segment, start, stop in claims.unfinished():
            while start < stop:
                run = await reader.read_segment(segment, start, max_rows=stop - start, max_bytes=PAGE_BYTES)
                if not run.table.num_rows or (first := run.end - run.table.num_rows) >= stop:
                    break
                claims.line_up(segment, first, run.table["key"].slice(0, stop - first).to_pylist())
                start = run.end
        claims.learned()

    async def look(self, claims: QueueClaims, most: int, wall_ms: int) -> bool:
        """Make about `most` messages at the most part of the next record; returns False if there are none.

        Raises `NotFound` if there is no topic, and as `TopicReader.read`.
        """
        asked, self._was_told = not self._was_told or self._again.is_set(), False
        self._again.clear()
        self.started += 1
        try:
            return await self._look(claims, most, wall_ms, streaming=not asked)
        finally:
            self.finished = self.started
            self.over.wake()

    async def wait(self) -> None:
        """Wait until there may be new messages, or a caller wants to know."""
        runtime = (await self._view()).runtime
        news = runtime.reads.news()
        runtime.reads.follow(self._positions or {})
        asked = asyncio.create_task(self._again.wait(), name=f"group {self._group} is asked")
        self.is_waiting = True
        either: list[asyncio.Future[Any]] = [news, asked]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            self._was_told = news.done()
        finally:
            self.is_waiting = False
            asked.cancel()

    async def _look(self, claims: QueueClaims, most: int, wall_ms: int, *, streaming: bool) -> bool:
        view = await self._view()
        if self._positions is None or self._told is None:
            self._positions = self._told = claims.progress.positions()
        known, told = self._positions, self._told
        if any(segment >= view.state.next_segment for segment in known):
            await view.runtime.refresh()
            view = await self._view()
        lives = await removed_segments(view.runtime, known, self._lives)
        passed = _pass_by_what_is_gone(view.state, known, lives)
        if passed.removed or passed.skipped:
            lost = sum(each.stop - each.start for each in passed.skipped)
            _log.warning("group_skipped", topic=view.topic, group=self._group, messages=lost, segments=passed.removed)
        # Of a topic group all is read, so that offsets have no gaps; messages of other members are left out here.
        reader = self._make_reader(TopicView(view.runtime), streaming=streaming)
        rows = min(round(most / max(self._own_part, LEAST_PART)), MOST_READ_ROWS)
        runs, reached = await reader.read(passed.positions, max_rows=rows, max_bytes=PAGE_BYTES)
        # Nothing is awaited from here on: the result and the next position change together.
        self._positions = reached
        for segment in passed.removed:
            _skip_all(claims, segment, passed, told)
            claims.leave(segment)
        if not runs and reached == known:
            return False
        found = Found(known, told, runs, reached, _others(runs, view.member))
        self._own_part = found.own_part
        # Stopped before this is stored, the next coordinator passes by it again: none of it is the member's.
        if passed.removed or found.must_be_told:
            self._told = reached
            _make_ready(claims, view.state, found, wall_ms)
        return bool(runs) or bool(passed.skipped)


def _others(runs: Iterable[Run], member: str | None) -> dict[int, OffsetSet]:
    """Return the messages of other members among these of a topic group, by segment; none without a `member`."""
    found: dict[int, OffsetSet] = {}
    for run in runs if member is not None else ():
        is_own = pc.equal(run.table[TOPIC_FIELD.name], member).to_numpy()
        # The bounds are where others' messages begin and where they end, by turns.
        bounds = np.flatnonzero(np.diff(is_own, prepend=True, append=True)) + run.end - len(is_own)
        ranges = zip(bounds[::2].tolist(), bounds[1::2].tolist(), strict=True)
        found.setdefault(run.segment, OffsetSet()).add_all(ranges)
    return found


def _pass_by_what_is_gone(state: TopicState, positions: Positions, lives: Mapping[int, Segment]) -> _Passed:
    """Go on behind what retention has removed. `lives` are the removed segments, as they were."""
    kept, removed = Positions(), set[int]()
    for segment_id, offset in positions.items():
        segment = state.segment(segment_id)
        if segment is not None:
            kept[segment_id] = max(offset, segment.start_offset)
        elif segment_id < state.next_segment:
            removed.add(segment_id)
        else:
            kept[segment_id] = offset  # this broker knows an older state, which does not have it yet
    # A successor of which a part is left shows by itself where it begins, once the group comes to it.
    skipped = [
        each
        for each in removed_from(state, positions, lives)
        if each.segment in positions or state.segment(each.segment) is None
    ]
    removed |= {each.segment for each in skipped if state.segment(each.segment) is None}
    if removed:
        behind = passed_by(state, kept)
        kept.update(
            (each, offset) for each, offset in earliest(state).items() if each not in behind and each not in kept
        )
    return _Passed(kept, skipped, removed)


def _skip_all(claims: QueueClaims, segment: int, passed: _Passed, told: Positions) -> None:
    """Put what was in a segment that is gone into the next record, as far as its end is known."""
    for each in passed.skipped:
        if each.segment == segment:
            start = told.get(segment, each.start)
            others = [Done(segment, start, each.start)] if start < each.start else []
            claims.raise_horizon(segment, start, each.stop, skipped=[each], passed=others)


def _make_ready(claims: QueueClaims, state: TopicState, found: Found, wall_ms: int) -> None:
    """Raise the horizons over what was read in the next record, and leave segments that are read to their end."""
    by_segment: dict[int, list[Run]] = {segment: [] for segment in (*found.known, *found.reached)}
    for run in found.runs:
        by_segment.setdefault(run.segment, []).append(run)
    # A successor has a higher id than its predecessors, so messages of a key line up in their order.
    for segment_id, runs in sorted(by_segment.items()):
        segment = state.segment(segment_id)
        if segment is None:
            continue
        # In segments that the group comes to now, retention may have removed messages before: those are skipped.
        told, start = found.told.get(segment_id, 0), found.known.get(segment_id, 0)
        end = found.reached.get(segment_id, segment.end_offset or start)
        if segment_id in found.told and end == told and segment_id in found.reached:
            continue
        others = found.others.get(segment_id, OffsetSet())
        rested, expired = _timed(segment_id, runs, others, wall_ms)
        skipped = _gaps(segment_id, start, end, runs)
        # A message of the member is never in there: it would be given up. Each row of a topic group names its member.
        passed = [Done(segment_id, *each) for each in OffsetSet([(told, start), *others.ranges()]).ranges()]
        claims.raise_horizon(segment_id, told, end, rested=rested, expired=expired, skipped=skipped, passed=passed)
        if claims.keeps_order:
            _line_up(claims, segment_id, runs, [(each.start, each.stop) for each in expired] + others.ranges())
        if segment_id not in found.reached:
            claims.leave(segment_id)


def _line_up(claims: QueueClaims, segment: int, runs: Iterable[Run], left_out: Iterable[tuple[int, int]]) -> None:
    without = OffsetSet(left_out)
    for run in runs:
        first = run.end - run.table.num_rows
        keys = run.table["key"].to_pylist()
        for start, stop in without.without(first, run.end):
            claims.line_up(segment, start, keys[start - first : stop - first])


def _timed(segment: int, runs: Iterable[Run], left_out: OffsetSet, wall_ms: int) -> tuple[list[Rested], list[Done]]:
    rested, expired = list[Rested](), list[Done]()
    for run in runs:
        first = run.end - run.table.num_rows
        for row, due_ms in timed_rows(run.table["headers"], wall_ms):
            start = first + row
            if start in left_out:
                continue
            if due_ms is None:
                expired.append(Done(segment, start, start + 1))
            else:
                rested.append(Rested(segment, start, start + 1, due_ms))
    return rested, expired


def _gaps(segment: int, start: int, end: int, runs: Iterable[Run]) -> list[Done]:
    """Return the gaps between the messages that were read: they are given up, or expired during the read."""
    gaps: list[Done] = []
    for run in runs:
        first = run.end - run.table.num_rows
        if first > start:
            gaps.append(Done(segment, start, first))
        start = run.end
    return [*gaps, Done(segment, start, end)] if start < end else gaps
