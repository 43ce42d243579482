"""Carry out a reading of a topic: `read` yields its rows."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pyarrow as pa

from braidmq import AsyncClient
from braidmq.models import Segment, TopicPosition
from filer.clock import Clock
from filer.format.schema import TIMESTAMP
from filer.times import microseconds
from mq.cli.reading.key_pages import KeyPages, key_position
from mq.cli.reading.lineage import ancestors
from mq.cli.reading.reading import Reading
from mq.cli.reading.reading_end import PastEnd, PresentEnd, ReadingEnd, clip
from mq.cli.reading.tail import Skip, key_tail_start, tail_start
from mq.cli.reading.time_order import in_time_order
from mq.cli.reading.topic_pages import Pages, TopicPages, segments_with


async def read(client: AsyncClient, clock: Clock, reading: Reading) -> AsyncGenerator[pa.Table]:
    """Yield the rows in pages, each key in order: without end, or up to where the reading ends."""
    now_us = clock.now_us()
    stop_us = None if reading.stop is None else microseconds(reading.stop)
    is_over = stop_us is not None and stop_us <= now_us
    last = await _last(client, reading) if reading.until_end or is_over or reading.tail is not None else None
    end = await _end(client, reading, last) if last is not None and (reading.until_end or is_over) else None
    pages, tail = await _begun(client, clock, reading, last, now_us, follow=end is None)
    if end is None and stop_us is not None:
        async for rows in _until_time(pages, clock, stop_us):
            yield await tail.apply(rows)
        end, pages = await _end(client, reading, await _last(client, reading)), pages.ending()
    async for rows in _until(pages, end):
        yield await tail.apply(rows)


async def _last(client: AsyncClient, reading: Reading) -> TopicPosition:
    """The present end of the topic, or the start of a reading from the time at which this one ends."""
    return await client.position(reading.topic, from_="latest" if reading.stop is None else reading.stop)


async def _end(client: AsyncClient, reading: Reading, last: TopicPosition) -> ReadingEnd:
    if reading.stop is None:
        return PresentEnd(last.offsets)
    return PastEnd(last.offsets, ancestors(await segments_with(client, reading.topic, last.offsets), last.offsets))


async def _begun(
    client: AsyncClient, clock: Clock, reading: Reading, last: TopicPosition | None, now_us: int, *, follow: bool
) -> tuple[Pages, "_TailRows"]:
    """The pages from the start on, and the filter of their rows."""
    topic, marker, skip = reading.topic, reading.marker, None
    if reading.key is not None:
        at = await _key_start(client, reading, reading.key, last)
        of_key = KeyPages(client, clock, topic, reading.key, at, follow=follow, patient=reading.patient)
        return of_key, _TailRows(client, topic, in_time_order=False)
    if reading.tail is not None:
        assert last is not None, "a tail is counted from the end"
        found = await tail_start(client, topic, reading.tail, last, now_us)
        marker, skip = found.marker, found.skip
    pages = TopicPages(client, topic, reading.start, marker, follow=follow)
    return pages, _TailRows(client, topic, skip, in_time_order=reading.tail is not None)


async def _key_start(client: AsyncClient, reading: Reading, key: bytes, last: TopicPosition | None) -> tuple[int, int]:
    if reading.tail is not None:
        assert last is not None, "a tail is counted from the end"
        return await key_tail_start(client, reading.topic, key, reading.tail, last.offsets)
    start = await client.position(reading.topic, from_=reading.start, marker=reading.marker)
    return key_position(await segments_with(client, reading.topic, start.offsets), key, start.offsets)


class _TailRows:
    """The filter of a page's rows: a tail leaves out some at its start, and sorts the rest by time."""

    def __init__(self, client: AsyncClient, topic: str, skip: Skip | None = None, *, in_time_order: bool) -> None:
        self._client, self._topic, self._skip, self._in_time_order = client, topic, skip, in_time_order
        self._segments: Sequence[Segment] = ()

    async def apply(self, rows: pa.Table) -> pa.Table:
        """The rows that remain."""
        if self._skip is not None:
            rows = self._skip.apply(rows)
        if not self._in_time_order or not rows.num_rows:
            return rows
        ids = set(rows["segment"].to_numpy().tolist())
        if len(ids) == 1:
            return rows
        self._segments = await segments_with(self._client, self._topic, ids, self._segments)
        return in_time_order(rows, {each.segment: each.predecessors for each in self._segments})


async def _until_time(pages: Pages, clock: Clock, stop_us: int) -> AsyncGenerator[pa.Table]:
    """Yield messages before a time that is still to come, and wait until then."""
    import pyarrow.compute as pc  # here: other readings do not need it

    while (left_us := stop_us - clock.now_us()) > 0:
        coming = asyncio.create_task(pages.next_page())
        timer = asyncio.create_task(clock.sleep(left_us / 1_000_000))
        try:
            await asyncio.wait([coming, timer], return_when=asyncio.FIRST_COMPLETED)
            page = coming.result() if coming.done() else None
        finally:
            coming.cancel()
            timer.cancel()
            await asyncio.gather(coming, timer, return_exceptions=True)
        if page is not None and page.num_rows:
            yield page.filter(pc.less(page["_timestamp"], pa.scalar(stop_us, TIMESTAMP)))


async def _until(pages: Pages, end: ReadingEnd | None) -> AsyncGenerator[pa.Table]:
    """Yield messages before the end."""
    while end is None or pages.positions is None or not end.is_reached(pages.positions):
        page = await pages.next_page()
        if page is None:
            return
        rows = page if end is None else clip(page, end)
        if rows.num_rows:
            yield rows
