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
from mq.topic.topic_reader import TopicReader
from mq.topic.topic_runtime import TopicRuntime


class Lag(NamedTuple):
    """The messages that are not done, and the age of the oldest of them in seconds; 0.0 if there are none.

    `unread`: how many of them nobody has looked at for the group, by segment.
    """

    messages: int
    seconds: float
    unread: Mapping[int, int]


OldestTimes = dict[tuple[int, int], int]
"""When messages came, in microseconds since the epoch, by segment and offset."""


async def lag_of(
    progress: GroupProgress,
    runtime: TopicRuntime,
    reader: TopicReader,
    clock: Clock,
    known_us: OldestTimes | None = None,
) -> Lag:
    """The lag of a group. Raises as `TopicReader.read_segment`.

    `known_us` has the times of the oldest messages afterwards; what it has before is not read again.
    """
    behind = not_looked_at(progress, runtime.state)
    ends = dict(zip(behind, await asyncio.gather(*(runtime.reads.end_of(each) for each in behind)), strict=True))
    unread = {segment: ends[segment] - offset for segment, offset in behind.items() if ends[segment] > offset}
    unfinished = {} if isinstance(progress, StreamProgress) else _unfinished(progress)
    messages = sum(unread.values()) + sum(map(len, unfinished.values()))
    oldest = [(segment, offsets.first) for segment, offsets in unfinished.items() if offsets.first is not None]
    oldest += [(segment, behind[segment]) for segment in unread]
    known_us = {} if known_us is None else known_us
    for place in known_us.keys() - set(oldest):
        del known_us[place]
    new = [place for place in oldest if place not in known_us]
    for place, time_us in zip(new, await asyncio.gather(*(_time_us(reader, *place) for place in new)), strict=True):
        if time_us is not None:
            known_us[place] = time_us
    seconds = max((clock.now_us() - min(known_us.values())) / 1e6, 0.0) if known_us else 0.0
    return Lag(messages, seconds, unread)


def _unfinished(progress: QueueProgress) -> dict[int, OffsetSet]:
    return {segment: each.unfinished() for segment, each in progress.segments.items()}


def not_looked_at(progress: GroupProgress, state: TopicState) -> dict[int, int]:
    """From which offsets on nothing was looked at for the group, by segment."""
    positions = progress.positions()
    ahead = {segment.id for segment in state.segments} - passed_by(state, positions)
    return {
        segment.id: max(positions.get(segment.id, 0), segment.start_offset)
        for segment in state.segments
        if segment.id in ahead and (segment.id in positions or segment.id not in progress.segments)
    }


async def _time_us(reader: TopicReader, segment: int, offset: int) -> int | None:
    run = await reader.read_segment(segment, offset, max_rows=1, max_bytes=1)
    return run.table["_timestamp"].cast("int64")[0].as_py() if run.table.num_rows else None
