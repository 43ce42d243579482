"""`GET /v1/topics/{topic}/subscribe`: messages as they arrive, as server-sent events or NDJSON.

A stream reads and renders the next page only when the client has taken the last one, and pages are small for a client
that is slow, so it holds little.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import chain
from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse

from filer.clock import Clock
from filer.errors import UnreadableObject
from filer.topic.positions import Positions, to_marker
from mq.base.errors import Draining, PositionTooOld, ReadsFull
from mq.broker import Broker
from mq.http.answers import negotiate
from mq.http.formats import STREAM_FORMATS
from mq.http.large_values import Aside
from mq.http.problems import problem_of
from mq.http.render import MessageRenderer, Part, Written
from mq.http.reply import PacedStream
from mq.http.routers import new_router
from mq.http.start import check_positions, start_positions
from mq.http.stream_forms import StreamForm
from mq.limits.read_budget import ReadLease
from mq.limits.steps import Steps, in_turns
from mq.topic.run import Run
from mq.topic.topic_runtime import TopicRuntime

KEEPALIVE_SECONDS = 15.0
PAGE_ROWS = 1_000
SMALLEST_PAGE_BYTES, LARGEST_PAGE_BYTES = 64 * 1024, 256 * 1024
"""A page is as small as the socket's own buffer for a client that is slow, or not known yet."""
BUFFERED_BYTES = 1024 * 1024
"""What the systems at both ends may take for a client that does not read."""
SLOW_SECONDS = 0.1


class _Pace:
    """How large the next page of a stream is, by how soon its client took the last one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._taken_bytes = 0
        self.page_bytes = SMALLEST_PAGE_BYTES

    @contextlib.contextmanager
    def page(self, size_bytes: int) -> Iterator[None]:
        """A context in which a page of that size is sent."""
        began_seconds = self._clock.monotonic_seconds()
        yield
        self._taken_bytes += size_bytes
        if self._clock.monotonic_seconds() - began_seconds > SLOW_SECONDS:
            self.page_bytes = SMALLEST_PAGE_BYTES
        elif self._taken_bytes > BUFFERED_BYTES:
            self.page_bytes = min(2 * self.page_bytes, LARGEST_PAGE_BYTES)


def subscribe_router(broker: Broker) -> APIRouter:
    """The endpoint of subscriptions."""
    router = new_router("subscribe")

    @router.get("/v1/topics/{topic}/subscribe", response_class=StreamingResponse)
    async def subscribe(
        request: Request,
        topic: str,
        marker: str | None = None,
        from_: Annotated[str | None, Query(alias="from", description="earliest, latest or an RFC 3339 time.")] = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        """Stream messages as they arrive; `from` defaults to latest. The broker keeps no position: keep the marker."""
        chosen = negotiate(request, STREAM_FORMATS)
        address = request.client.host if request.client else ""
        broker.streams.check(address)
        runtime = await broker.topics.topic(topic)
        reader = await broker.reader(topic, streaming=True)
        # A browser that reconnects repeats its first URL. The header says how far it has got.
        resumed = last_event_id or marker
        positions = await start_positions(topic, reader, resumed, None if last_event_id else from_, default="latest")
        assert chosen.stream is not None
        stream = _stream(broker, runtime, positions, chosen.stream, address)
        return PacedStream(stream, {"cache-control": "no-store", "x-accel-buffering": "no"}, chosen.media_type)

    return router


async def _stream(
    broker: Broker,
    runtime: TopicRuntime,
    positions: Positions,
    form: StreamForm,
    address: str,
) -> AsyncGenerator[Part, None]:
    with broker.streams.counted(address):
        lease = broker.read_budget.lease()
        try:
            async with contextlib.aclosing(_parts(broker, runtime, positions, form, lease)) as parts:
                async for part in parts:
                    yield part
        finally:
            lease.close()


async def _parts(
    broker: Broker, runtime: TopicRuntime, positions: Positions, form: StreamForm, lease: ReadLease
) -> AsyncGenerator[Part, None]:
    topic = runtime.topic
    reader = await broker.reader(topic, streaming=True, room=lease)
    live: set[int] = set()
    pace = _Pace(broker.clock)
    try:
        yield form.keepalive(to_marker(topic, positions))
        while not broker.draining.is_set() and not runtime.state.deleted:
            news = runtime.reads.news()
            await broker.turns.streams.wait()
            positions = _catch_up(runtime, positions, live)
            try:
                # A page of small files may take long. It can be read again from the same marker, at another broker.
                async with broker.reads.cut_off(grace_seconds=0.0):
                    await check_positions(topic, reader, positions)
                    runs, reached = await reader.read(positions, max_rows=PAGE_ROWS, max_bytes=pace.page_bytes)
            except Draining:
                break
            except ReadsFull:
                # Other readers hold all the room. This one shows that it is alive, and tries again.
                yield form.keepalive(to_marker(topic, positions))
                continue
            if runs:
                page = await _rendered(broker, runtime, runs, positions, form, lease)
                # A client that does not read holds what was rendered for it, and not the rows, nor what they lay in.
                runs.clear()
                size_bytes = sum(map(len, page))
                lease.keep(size_bytes)
                with pace.page(size_bytes):
                    while page:
                        yield page.pop(0)
                lease.release()
                positions = reached
                if reader.unreadable is not None:
                    raise reader.unreadable
                continue
            positions = reached
            lease.release()
            runtime.reads.follow(positions)
            await asyncio.wait([news], timeout=KEEPALIVE_SECONDS)
            if not news.done():
                yield form.keepalive(to_marker(topic, positions))
        reason = "deleted" if runtime.state.deleted else "draining"
        yield form.end({"end": reason}, to_marker(topic, positions))
    except PositionTooOld as error:
        if runtime.state.deleted:
            yield form.end({"end": "deleted"}, to_marker(topic, positions))
            return
        yield form.end({"end": "expired", "problem": orjson.loads(problem_of(error).body())}, error.earliest)
    except UnreadableObject as error:
        # All that could be read before it was sent. The marker is that of the messages that cannot be read.
        yield form.end(
            {"end": "unreadable", "problem": orjson.loads(problem_of(error).body())}, to_marker(topic, positions)
        )


async def _rendered(
    broker: Broker, runtime: TopicRuntime, runs: Sequence[Run], positions: Positions, form: StreamForm, lease: ReadLease
) -> list[Part]:
    """The runs as parts of the stream, each message with the marker behind it."""
    turns = broker.turns.streams
    steps = _page(runtime, runs, positions, form)
    if sum(run.size_bytes for run in runs) <= LARGEST_PAGE_BYTES:
        pages = await in_turns(steps, turns)
    else:
        async with lease.large_page:
            pages = await in_turns(steps, turns)
    for run, page in zip(runs, pages, strict=True):
        runtime.reads.count_read(run.segment, run.table.num_rows, sum(map(len, page)))
    return list(chain.from_iterable(pages))


def _page(
    runtime: TopicRuntime, runs: Sequence[Run], positions: Positions, form: StreamForm
) -> Steps[list[list[Part]]]:
    """The parts of each run."""
    topic, reached, large = runtime.topic, dict(positions), Aside()
    renderer = MessageRenderer(topic, runtime.state.config, large)
    pages: list[list[Part]] = []
    for run in runs:
        written = Written()
        for message in renderer.in_steps(run):
            if message is None:
                yield
                continue
            reached[run.segment] = message["offset"] + 1
            written.add(large.fill(form.message(message, to_marker(topic, reached))))
        pages.append(written.all_parts())
    return pages


def _catch_up(runtime: TopicRuntime, positions: Positions, live: set[int]) -> Positions:
    """Under `overflow: drop_oldest`, a reader that falls behind the front store goes on at its oldest message.

    `live` collects the segments in which the reader has reached the front store. A reader that starts from older
    messages first reads those from files.
    """
    if runtime.state.config.overflow != "drop_oldest":
        return positions
    caught_up = dict(positions)
    for segment_id, offset in positions.items():
        tail = runtime.reads.tail(segment_id)
        if tail is not None and offset >= tail.start:
            live.add(segment_id)
        elif tail is not None and segment_id in live:
            caught_up[segment_id] = tail.start
    return caught_up
