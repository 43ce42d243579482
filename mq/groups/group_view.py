"""A look at a group's messages without a claim: the backlog, messages in flight, and dead letters."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from filer.segment.read_room import ReadRoom
from filer.topic.topic_state import TopicState
from groups.queue.backlog import Seen, State
from groups.queue.message_times import timed_rows
from groups.queue.progress import QueueProgress
from mq.groups.dead_letter_rows import deliveries_of
from mq.groups.group_source import GroupSource
from mq.groups.lag import not_looked_at
from mq.groups.letter_owner import owner_of
from mq.groups.queue_group import QueueGroup
from mq.groups.redriver import Redriver
from mq.topic.run import Run
from mq.topic.topic_view import TopicView, as_shown

MOST_SHOWN = 1_000
MOST_PASSED_PAGES = 8


class Place(NamedTuple):
    """A message by its segment and offset."""

    segment: int
    offset: int


@dataclass(slots=True)
class Shown:
    """Messages to show, each run with its state, and whether there may be more behind `reached`."""

    found: list[tuple[Seen, Run]] = field(default_factory=list)
    has_more: bool = False
    rows: int = 0
    size_bytes: int = 0
    reached: Place | None = None

    def add(self, seen: Seen, run: Run) -> None:
        """Add these to the messages to show."""
        self.reached = Place(run.segment, run.end - 1)
        if run.table.num_rows:
            self.found.append((seen, run))
            self.rows += run.table.num_rows
            self.size_bytes += run.size_bytes


def places(
    seen: Sequence[Seen], progress: QueueProgress, positions: Mapping[int, int], state: TopicState, which: State
) -> list[Seen]:
    """Return all ranges to show, in order. Those of the backlog that were not looked at have no end."""
    if which == "in_flight":
        return list(seen)
    ahead = [Seen(segment, offset, -1, 0) for segment, offset in not_looked_at(progress, positions, state).items()]
    return sorted((*seen, *ahead), key=lambda each: each[:2])


async def read_places(
    source: GroupSource,
    ranges: Sequence[Seen],
    *,
    room: ReadRoom,
    after: Place | None,
    most: int,
    max_bytes: int,
    now_ms: int,
) -> Shown:
    """Return the messages of these ranges that come behind `after`.

    Of messages that the group has not looked at, their own headers show which are delayed. Expired ones are left out,
    since no consumer gets them. The search goes on past those, and past messages of other members of a topic group, for
    `MOST_PASSED_PAGES` only; then the next page may find more. Raises as `TopicReader.read_segment` and
    `GroupSource.view`.
    """
    view = await source.view()
    whole, own = source.make_reader(TopicView(view.runtime), room=room), source.make_reader(view, room=room)
    shown, passed_pages = Shown(), 0
    for seen in _behind(ranges, after):
        offset, stop = seen.start, inf if seen.stop < 0 else seen.stop
        while offset < stop:
            if shown.rows >= most or shown.size_bytes >= max_bytes or passed_pages >= MOST_PASSED_PAGES:
                shown.has_more = True
                return shown
            rows, free_bytes = int(min(stop - offset, most - shown.rows)), max_bytes - shown.size_bytes
            # Messages that the group has looked at are the member's own.
            reader = own if seen.stop < 0 else whole
            run = await reader.read_segment(seen.segment, offset, max_rows=rows, max_bytes=free_bytes)
            if run.end <= offset or run.end - run.table.num_rows >= stop:
                break
            end = int(min(run.end, stop))
            table = run.table if end == run.end else run.table.slice(0, run.table.num_rows - (run.end - end))
            rows_before = shown.rows
            _show(shown, seen, Run.of(run.segment, end, as_shown(view, table)), now_ms)
            passed_pages += shown.rows == rows_before
            offset = run.end
    return shown


def _show(shown: Shown, seen: Seen, run: Run, now_ms: int) -> None:
    """Show a page of a range. If the group has not looked at it, each delayed message is shown by itself."""
    if seen.stop >= 0:
        shown.add(seen, run)
        return
    offsets, begin = run.table["_offset"], 0
    for row, due_ms in timed_rows(run.table["headers"], now_ms):
        offset = offsets[row].as_py()
        if row > begin:
            shown.add(seen, Run.of(run.segment, offset, run.table.slice(begin, row - begin)))
        if due_ms is not None:
            shown.add(seen._replace(due_ms=due_ms), Run.of(run.segment, offset + 1, run.table.slice(row, 1)))
        begin = row + 1
    shown.add(seen, Run.of(run.segment, run.end, run.table.slice(begin)))


async def read_dead_letters(
    redriver: Redriver, group: QueueGroup, topic: str, *, after: Place | None, most: int, max_bytes: int
) -> Shown:
    """Return the dead letters of a group that were neither redriven nor discarded."""
    shown = Shown()
    segment, offset = (0, 0) if after is None else (after.segment, after.offset + 1)
    redrives = group.progress.redrives
    owner = await owner_of(group.source, group.name, redrives)
    async for run in redriver.unsettled(topic, redrives, segment=segment, offset=offset):
        first = run.end - run.table.num_rows
        for row, headers in enumerate(run.table["headers"].to_pylist()):
            if not owner.owns(headers) or redrives.is_settled(topic, run.segment, first + row):
                continue
            if shown.rows >= most or shown.size_bytes >= max_bytes:
                shown.has_more = True
                return shown
            start = first + row
            deliveries = deliveries_of(headers)
            shown.add(
                Seen(run.segment, start, start + 1, deliveries), Run.of(run.segment, start + 1, run.table.slice(row, 1))
            )
    return shown


def _behind(ranges: Sequence[Seen], after: Place | None) -> Iterator[Seen]:
    for seen in ranges:
        if after is None or seen.segment > after.segment:
            yield seen
        elif seen.segment == after.segment and (seen.stop < 0 or seen.stop > after.offset + 1):
            yield seen._replace(start=max(seen.start, after.offset + 1))
