"""A look at a group's messages without claiming any: the backlog, what is in flight, and dead letters."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from filer.topic.topic_state import TopicState
from groups.queue.backlog import Seen, State
from groups.queue.progress import QueueProgress
from mq.groups.dead_letter_rows import deliveries_of, of_group
from mq.groups.lag import not_looked_at
from mq.groups.redriver import GroupName, Redriver
from mq.topic.run import Run
from mq.topic.topic_reader import TopicReader

MOST_SHOWN = 1_000


class Place(NamedTuple):
    """A message by its segment and offset."""

    segment: int
    offset: int


@dataclass(slots=True)
class Shown:
    """Messages that are shown, each run with what is known of it, and whether there may be more behind them."""

    found: list[tuple[Seen, Run]] = field(default_factory=list)
    has_more: bool = False
    rows: int = 0
    size_bytes: int = 0

    def add(self, seen: Seen, run: Run) -> None:
        """Show these too."""
        self.found.append((seen, run))
        self.rows += run.table.num_rows
        self.size_bytes += run.size_bytes


def places(seen: Sequence[Seen], progress: QueueProgress, state: TopicState, which: State) -> list[Seen]:
    """All ranges to show, in order. Those of the backlog that were not looked at are without an end."""
    if which == "in_flight":
        return list(seen)
    ahead = [Seen(segment, offset, -1, 0) for segment, offset in not_looked_at(progress, state).items()]
    return sorted((*seen, *ahead), key=lambda each: each[:2])


async def read_places(
    reader: TopicReader, ranges: Sequence[Seen], *, after: Place | None, most: int, max_bytes: int
) -> Shown:
    """The messages of these ranges that come behind `after`. Raises as `TopicReader.read_segment`."""
    shown = Shown()
    for seen in _behind(ranges, after):
        offset, stop = seen.start, inf if seen.stop < 0 else seen.stop
        while offset < stop:
            if shown.rows >= most or shown.size_bytes >= max_bytes:
                shown.has_more = True
                return shown
            rows = int(min(stop - offset, most - shown.rows))
            run = await reader.read_segment(seen.segment, offset, max_rows=rows, max_bytes=max_bytes - shown.size_bytes)
            if not run.table.num_rows or (first := run.end - run.table.num_rows) >= stop:
                break
            end = int(min(run.end, stop))
            shown.add(seen, run if end == run.end else Run.of(run.segment, end, run.table.slice(0, end - first)))
            offset = run.end
    return shown


async def read_dead_letters(
    redriver: Redriver,
    name: GroupName,
    topic: str,
    progress: QueueProgress,
    *,
    after: Place | None,
    most: int,
    max_bytes: int,
) -> Shown:
    """The dead letters of a group that were neither redriven nor discarded."""
    shown = Shown()
    segment, offset = (0, 0) if after is None else (after.segment, after.offset + 1)
    async for run in redriver.unsettled(topic, progress.redrives, segment=segment, offset=offset):
        first = run.end - run.table.num_rows
        for row, headers in enumerate(run.table["headers"].to_pylist()):
            if not of_group(headers, *name) or progress.redrives.is_settled(topic, run.segment, first + row):
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
