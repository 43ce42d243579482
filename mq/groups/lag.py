"""How far behind a group is, in messages and in seconds."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from filer.clock import Clock
from filer.topic.positions import passed_by
from filer.topic.topic_state import TopicState
from groups.fold import GroupProgress
from groups.offset_set import OffsetSet
from groups.queue.progress import QueueProgress
from groups.stream.progress import StreamProgress
from mq.groups.group_source import GroupSource
from mq.topic.topic_reader import TopicReader
from mq.topic.topic_view import TopicView

COUNTED_ROWS, COUNTED_BYTES = 10_000, 1024 * 1024
"""To count messages of a member of a topic group, so many of all members are looked at, about so much at a time."""


class Lag(NamedTuple):
    """The messages that are not done, and the age of the oldest of them in seconds; 0.0 if there are none.

    `unread`: how many of them nobody has looked at for the group, by segment. Of a member of a topic group only so many
    are looked at as `COUNTED_ROWS` allow; where there are more, all members' messages count, and it `is_exact` no more.
    """

    messages: int
    seconds: float
    unread: Mapping[int, int]
    is_exact: bool = True


class _Unread(NamedTuple):
    """How many messages of a segment are not read, where the oldest of them is, and whether both are certain."""

    messages: int
    oldest: int
    is_exact: bool = True


OldestTimes = dict[tuple[int, int], int]
"""When messages came, in microseconds since the epoch, by segment and offset."""


async def lag_of(
    progress: GroupProgress,
    positions: Mapping[int, int],
    source: GroupSource,
    clock: Clock,
    known_us: OldestTimes | None = None,
) -> Lag:
    """The lag of a group for which nothing was looked at from these positions on.

    `known_us` has the times of the oldest messages afterwards; what it has before is not read again. Raises as
    `TopicReader.read_segment`, and as `GroupSource.view`.
    """
    view = await source.view()
    behind = not_looked_at(progress, positions, view.state)
    found = await asyncio.gather(*(_unread(view, source, each, offset) for each, offset in behind.items()))
    unread = {segment: each for segment, each in zip(behind, found, strict=True) if each.messages}
    unfinished = {} if isinstance(progress, StreamProgress) else _unfinished(progress)
    messages = sum(each.messages for each in unread.values()) + sum(map(len, unfinished.values()))
    oldest = [(segment, offsets.first) for segment, offsets in unfinished.items() if offsets.first is not None]
    oldest += [(segment, each.oldest) for segment, each in unread.items()]
    known_us = {} if known_us is None else known_us
    for place in known_us.keys() - set(oldest):
        del known_us[place]
    new, reader = [place for place in oldest if place not in known_us], source.make_reader(TopicView(view.runtime))
    for place, time_us in zip(new, await asyncio.gather(*(_time_us(reader, *place) for place in new)), strict=True):
        if time_us is not None:
            known_us[place] = time_us
    seconds = max((clock.now_us() - min(known_us.values())) / 1e6, 0.0) if known_us else 0.0
    is_exact = all(each.is_exact for each in unread.values())
    return Lag(messages, seconds, {segment: each.messages for segment, each in unread.items()}, is_exact)


async def _unread(view: TopicView, source: GroupSource, segment: int, offset: int) -> _Unread:
    """The messages of a segment from that offset on."""
    end = await view.reads.end_of(segment)
    if view.member is None or end <= offset:
        return _Unread(max(end - offset, 0), offset)
    own, oldest, stop = 0, None, min(end, offset + COUNTED_ROWS)
    reader = source.make_reader(view)
    while offset < stop:
        run = await reader.read_segment(segment, offset, max_rows=stop - offset, max_bytes=COUNTED_BYTES)
        if run.table.num_rows and oldest is None:
            oldest = run.table["_offset"][0].as_py()
        own += run.table.num_rows
        if run.end <= offset:
            break
        offset = run.end
    rest = max(end - offset, 0)
    return _Unread(own + rest, offset if oldest is None else oldest, not rest)


def _unfinished(progress: QueueProgress) -> dict[int, OffsetSet]:
    return {segment: each.unfinished() for segment, each in progress.segments.items()}


def not_looked_at(progress: GroupProgress, positions: Mapping[int, int], state: TopicState) -> dict[int, int]:
    """From which offsets on nothing was looked at for the group, by segment."""
    ahead = {segment.id for segment in state.segments} - passed_by(state, positions)
    return {
        segment.id: max(positions.get(segment.id, 0), segment.start_offset)
        for segment in state.segments
        if segment.id in ahead and (segment.id in positions or segment.id not in progress.segments)
    }


async def _time_us(reader: TopicReader, segment: int, offset: int) -> int | None:
    run = await reader.read_segment(segment, offset, max_rows=1, max_bytes=1)
    return run.table["_timestamp"].cast("int64")[0].as_py() if run.table.num_rows else None
