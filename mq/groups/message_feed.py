"""New messages for a queue group: found in its topic, and made ready to be handed out."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence, Set
from typing import Any, NamedTuple

from filer.event_log import EventLog
from filer.topic.positions import Positions, earliest, passed_by
from filer.topic.topic_state import TopicState
from groups.queue.claims import QueueClaims
from groups.queue.message_times import timed_rows
from groups.records import Done, Rested
from mq.topic.run import Run
from mq.topic.topic_reader import TopicReader
from mq.topic.topic_runtime import TopicRuntime
from mq.topic.wakeup import Wakeup

PAGE_BYTES = 8 * 1024 * 1024

_log = EventLog(__name__)


class _Passed(NamedTuple):
    """Where to go on, and what is gone before that."""

    positions: Positions
    skipped: list[Done]
    removed: set[int]


class Feed:
    """Reads a topic ahead of what is handed out. All methods belong to the event loop's thread.

    `topic` gives the running topic, `reader` a reader of it, one that follows it if asked to. Nothing that it reads is
    kept: what is handed out is read again, mostly from memory.

    Looks are numbered from 1 on: `started` is the last that has begun, `finished` the last that is over. Whoever wants
    to know what there is now calls `look_again`, and waits for the next one to finish.
    """

    def __init__(
        self,
        group: str,
        topic: Callable[[], Awaitable[TopicRuntime]],
        reader: Callable[[bool], Awaitable[TopicReader]],
    ) -> None:
        self._group, self._topic, self._reader = group, topic, reader
        self._positions: Positions | None = None
        self._again = asyncio.Event()
        self.started = self.finished = 0
        self.is_waiting = False
        # The last wait has ended with news. So what is new is here, and nobody need be asked for it.
        self._was_told = False
        self.over = Wakeup()

    def look_again(self) -> None:
        """Have a look that finds everything that was acknowledged before."""
        self._again.set()

    async def learn(self, claims: QueueClaims) -> None:
        """Read the keys of all messages that are not done, for a group that keeps their order.

        What is gone has none: it is found to be gone when it is handed out. Raises as `TopicReader.read_segment`.
        """
        reader = await self._reader(False)
        for segment, start, stop in claims.unfinished():
            while start < stop:
                run = await reader.read_segment(segment, start, max_rows=stop - start, max_bytes=PAGE_BYTES)
                if not run.table.num_rows or (first := run.end - run.table.num_rows) >= stop:
                    break
                claims.line_up(segment, first, run.table["key"].slice(0, stop - first).to_pylist())
                start = run.end
        claims.learned()

    async def look(self, claims: QueueClaims, most: int, wall_ms: int) -> bool:
        """Make about `most` messages at the most part of the next record; False if there are none.

        Raises `NotFound` for a topic that is not there, and as `TopicReader.read`.
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
        """Wait until there may be new messages, or somebody wants to know."""
        runtime = await self._topic()
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
        runtime = await self._topic()
        known = claims.progress.positions() if self._positions is None else self._positions
        if any(segment >= runtime.state.next_segment for segment in known):
            await runtime.refresh()
        passed = _pass_by_what_is_gone(runtime.state, known)
        if passed.removed or passed.skipped:
            lost = sum(each.stop - each.start for each in passed.skipped)
            _log.warning(
                "group_skipped", topic=runtime.topic, group=self._group, messages=lost, segments=passed.removed
            )
        reader = await self._reader(streaming)
        runs, reached = await reader.read(passed.positions, max_rows=most, max_bytes=PAGE_BYTES)
        # Nothing is awaited from here on: what is read and where to go on change together.
        self._positions = reached
        for segment in passed.removed:
            claims.leave(segment)
        if not runs and reached == known:
            return False
        _make_ready(claims, runtime.state, known, runs, reached, wall_ms)
        return bool(runs) or bool(passed.skipped)


def _pass_by_what_is_gone(state: TopicState, positions: Positions) -> _Passed:
    """Go on behind what retention has removed. Of a segment that is gone nobody knows any more where it ended."""
    kept, skipped = Positions(), list[Done]()
    removed: set[int] = set()
    for segment_id, offset in positions.items():
        segment = state.segment(segment_id)
        if segment is None:
            if segment_id < state.next_segment:
                removed.add(segment_id)
            else:
                kept[segment_id] = offset  # this broker knows an older state, in which it is not yet there
            continue
        if offset < segment.start_offset:
            skipped.append(Done(segment_id, offset, segment.start_offset))
        kept[segment_id] = max(offset, segment.start_offset)
    if removed:
        behind = passed_by(state, kept)
        kept.update(
            (each, offset) for each, offset in earliest(state).items() if each not in behind and each not in kept
        )
    return _Passed(kept, skipped, removed)


def _make_ready(
    claims: QueueClaims,
    state: TopicState,
    known: Positions,
    runs: Sequence[Run],
    reached: Positions,
    wall_ms: int,
) -> None:
    """Have the next record raise the horizons over what was read, and leave segments that are read to their end."""
    by_segment: dict[int, list[Run]] = {segment: [] for segment in (*known, *reached)}
    for run in runs:
        by_segment.setdefault(run.segment, []).append(run)
    # A successor has a higher id than its predecessors, so messages of a key line up in their order.
    for segment_id, found in sorted(by_segment.items()):
        segment = state.segment(segment_id)
        if segment is None:
            continue
        start = known.get(segment_id, segment.start_offset)
        end = reached.get(segment_id, segment.end_offset or start)
        if segment_id in known and end == start and segment_id in reached:
            continue
        rested, expired = _timed(segment_id, found, wall_ms)
        skipped = _gaps(segment_id, start, end, found)
        claims.raise_horizon(segment_id, start, end, rested=rested, expired=expired, skipped=skipped)
        if claims.keeps_order:
            _line_up(claims, segment_id, found, {each.start for each in expired})
        if segment_id not in reached:
            claims.leave(segment_id)


def _line_up(claims: QueueClaims, segment: int, runs: Iterable[Run], expired: Set[int]) -> None:
    for run in runs:
        first = run.end - run.table.num_rows
        keys = run.table["key"].to_pylist()
        for start, stop in _between(first, run.end, expired):
            claims.line_up(segment, start, keys[start - first : stop - first])


def _between(first: int, end: int, left_out: Set[int]) -> Iterator[tuple[int, int]]:
    """`[first, end)` without some offsets."""
    for offset in sorted(each for each in left_out if first <= each < end):
        yield first, offset
        first = offset + 1
    yield first, end


def _timed(segment: int, runs: Iterable[Run], wall_ms: int) -> tuple[list[Rested], list[Done]]:
    rested, expired = list[Rested](), list[Done]()
    for run in runs:
        first = run.end - run.table.num_rows
        for row, due_ms in timed_rows(run.table["headers"], wall_ms):
            start = first + row
            if due_ms is None:
                expired.append(Done(segment, start, start + 1))
            else:
                rested.append(Rested(segment, start, start + 1, due_ms))
    return rested, expired


def _gaps(segment: int, start: int, end: int, runs: Iterable[Run]) -> list[Done]:
    """What lies between the messages that were read: it is given up, or expired while it was read."""
    gaps: list[Done] = []
    for run in runs:
        first = run.end - run.table.num_rows
        if first > start:
            gaps.append(Done(segment, start, first))
        start = run.end
    return [*gaps, Done(segment, start, end)] if start < end else gaps
