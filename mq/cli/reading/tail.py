"""Finds the start of the last N messages of a topic, or of a key, without holding messages in memory."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from braidmq import AsyncClient
from braidmq.models import TopicPosition
from filer.slots import slot_of
from filer.times import EARLIEST_US, LATEST_US, moment_of
from mq.cli.reading.key_pages import PAGE_ROWS, key_position, of_key
from mq.cli.reading.lineage import ancestors, chain_of, count_between
from mq.cli.reading.reading_end import PastEnd, ReadingEnd
from mq.cli.reading.topic_pages import segments_with

_At = Callable[[int], Awaitable[tuple[TopicPosition, int]]]
_FIRST_STEP_US = 1_000_000
_STEP_FACTOR = 8


class Skip:
    """Leaves out the first `rows` rows that lie before an end."""

    def __init__(self, end: ReadingEnd, rows: int) -> None:
        self._end, self._rows = end, rows

    def apply(self, table: pa.Table) -> pa.Table:
        """Return the rows of the next page that stay."""
        if not self._rows or not table.num_rows:
            return table
        before = np.flatnonzero(self._end.is_before(table))[: self._rows]
        self._rows -= len(before)
        stays = np.ones(table.num_rows, bool)
        stays[before] = False
        return table.filter(pa.array(stays))


@dataclass(frozen=True, slots=True)
class TailStart:
    """The marker from which the tail is read, and a skip of some of the first messages, of the same microsecond."""

    marker: str
    skip: Skip | None = None


async def tail_start(client: AsyncClient, topic: str, count: int, end: TopicPosition, now_us: int) -> TailStart:
    """Find the start of the last `count` messages before `end`: those with the latest timestamps.

    The broker reports the position of a time, and offsets count the messages behind it. So the time is searched by
    bisection, whatever the number of segments and messages.
    """
    if not count:
        return TailStart(end.marker)
    segments = await segments_with(client, topic, end.offsets)
    earliest = await client.position(topic, from_="earliest")
    if count_between(segments, earliest.offsets, end.offsets) <= count:
        return TailStart(earliest.marker)

    async def at(time_us: int) -> tuple[TopicPosition, int]:
        nonlocal segments
        if time_us > LATEST_US:
            return end, 0
        found = await client.position(topic, from_=moment_of(time_us))
        segments = await segments_with(client, topic, found.offsets, segments)
        return found, count_between(segments, found.offsets, end.offsets)

    low_us, high_us = await _bracket(at, count, now_us)
    low, found = await at(low_us)
    while found != count and high_us - low_us > 1:
        middle_us = (low_us + high_us) // 2
        middle, behind = await at(middle_us)
        if behind >= count:
            low_us, low, found = middle_us, middle, behind
        else:
            high_us = middle_us
    if found == count:
        return TailStart(low.marker)
    high = (await at(high_us))[0].offsets
    return TailStart(low.marker, Skip(PastEnd(high, ancestors(segments, high)), found - count))


async def _bracket(at: _At, count: int, now_us: int) -> tuple[int, int]:
    """A time behind which at least `count` messages lie, and a later one behind which fewer do."""
    step_us = _FIRST_STEP_US
    behind = (await at(now_us))[1]
    low_us = high_us = now_us
    while behind >= count:  # the clock of a broker may be ahead of this one
        low_us, high_us = high_us, min(LATEST_US + 1, high_us + step_us)
        behind, step_us = (await at(high_us))[1], step_us * _STEP_FACTOR
    if low_us < high_us:
        return low_us, high_us
    while behind < count and low_us > EARLIEST_US:
        high_us, low_us = low_us, max(EARLIEST_US, low_us - step_us)
        behind, step_us = (await at(low_us))[1], step_us * _STEP_FACTOR
    return low_us, high_us


async def key_tail_start(
    client: AsyncClient, topic: str, key: bytes, count: int, end: Mapping[int, int]
) -> tuple[int, int]:
    """Find the segment and the offset of the first of the last `count` messages of a key before the positions `end`.

    Reads back page by page, only in the segments that hold the key, and keeps only offsets of one page.
    """
    segments = await segments_with(client, topic, end)
    chain = chain_of(segments, slot_of(key))
    last, stop = key_position(segments, key, end)
    begin = (last, stop)
    if not count:
        return begin
    for segment in reversed([each for each in chain if each.segment <= last]):
        stop = stop if segment.segment == last else segment.end_offset or 0
        while stop > segment.start_offset:
            start = max(segment.start_offset, stop - PAGE_ROWS)
            offsets = await _offsets_of_key(client, topic, key, segment.segment, start, stop)
            if len(offsets) >= count:
                return segment.segment, offsets[-count]
            count -= len(offsets)
            stop = start
        begin = (segment.segment, segment.start_offset)
    return begin


async def _offsets_of_key(
    client: AsyncClient, topic: str, key: bytes, segment: int, start: int, stop: int
) -> list[int]:
    """The offsets of the key's messages from `start` to before `stop`."""
    found: list[int] = []
    while start < stop:
        page = await client.segment_page(topic, segment, offset=start, limit=stop - start)
        if page.next_offset == start:
            break
        found += of_key(page.table, key)["_offset"].to_pylist()
        start = page.next_offset
    return [offset for offset in found if offset < stop]
