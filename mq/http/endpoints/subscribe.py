"""`GET /v1/topics/{topic}/subscribe`: messages as they arrive, as server-sent events or NDJSON.

A stream reads the next page only when the client has taken the last one, so a slow reader costs no memory.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse

from filer.topic.positions import Positions, to_marker
from mq.base.errors import Draining, PositionTooOld
from mq.broker import Broker
from mq.http.answers import MIB, negotiate
from mq.http.formats import STREAM_FORMATS
from mq.http.problems import problem_of
from mq.http.render import MessageRenderer
from mq.http.routers import new_router
from mq.http.start import check_positions, start_positions
from mq.http.stream_forms import StreamForm
from mq.topic.topic_reader import TopicReader
from mq.topic.topic_runtime import TopicRuntime

KEEPALIVE_SECONDS = 15.0
PAGE_ROWS, PAGE_BYTES = 1_000, MIB


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
        runtime = await broker.topics.topic(topic)
        reader = await broker.reader(topic, streaming=True)
        # A browser that reconnects repeats its first URL. The header says how far it has got.
        resumed = last_event_id or marker
        positions = await start_positions(topic, reader, resumed, None if last_event_id else from_, default="latest")
        assert chosen.stream is not None
        stream = _stream(broker, runtime, reader, positions, chosen.stream)
        return StreamingResponse(
            stream, 200, {"cache-control": "no-store", "x-accel-buffering": "no"}, chosen.media_type
        )

    return router


async def _stream(
    broker: Broker,
    runtime: TopicRuntime,
    reader: TopicReader,
    positions: Positions,
    form: StreamForm,
) -> AsyncIterator[bytes]:
    topic = runtime.topic
    renderer = MessageRenderer(topic, runtime.state.config)
    live: set[int] = set()
    broker.metrics.streams.inc()
    try:
        yield form.keepalive(to_marker(topic, positions))
        while not broker.draining.is_set() and not runtime.state.deleted:
            news = runtime.reads.news()
            positions = _catch_up(runtime, positions, live)
            try:
                # A page of small files may take long. It can be read again from the same marker, at another broker.
                async with broker.reads.cut_off(grace_seconds=0.0):
                    await check_positions(topic, reader, positions)
                    runs, reached = await reader.read(positions, max_rows=PAGE_ROWS, max_bytes=PAGE_BYTES)
            except Draining:
                break
            for run in runs:
                page: list[bytes] = []
                for message in renderer.messages(run):
                    positions[run.segment] = message["offset"] + 1
                    page.append(form.message(message, to_marker(topic, positions)))
                body = b"".join(page)
                runtime.reads.count_read(run.segment, run.table.num_rows, len(body))
                yield body
            positions = reached
            if runs:
                continue
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
    finally:
        broker.metrics.streams.dec()


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
