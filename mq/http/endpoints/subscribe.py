"""`GET /v1/topics/{topic}/subscribe`: messages as they arrive, as server-sent events or NDJSON.

The next page of a stream is read and rendered only when the client has taken the last one, and pages are small for a
slow client, so a stream holds little. Streams at the same place share their pages (`mq/http/streaming`).
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response
from starlette.types import Scope

from filer.clock import Clock
from filer.errors import BraidError, UnreadableObject
from filer.topic.positions import Positions, to_marker
from mq.base.errors import Draining, PositionTooOld, ReadsFull
from mq.broker import Broker
from mq.forms.formats import STREAM_FORMATS
from mq.forms.render import Part
from mq.forms.stream_forms import StreamForm
from mq.http.answers import negotiate
from mq.http.chunks import Chunks, chunks_of
from mq.http.ended_permissions import record_end
from mq.http.reply import PacedStream
from mq.http.routers import new_router
from mq.http.routes import SUBSCRIBE, match_of
from mq.http.streaming.catching_up import catch_up
from mq.http.streaming.live_streams import KEEPALIVE_SECONDS, LiveStreams
from mq.http.streaming.stream_end import StreamEnd, end_of
from mq.http.streaming.stream_pages import LARGEST_PAGE_BYTES, SMALLEST_PAGE_BYTES, Place, StreamPages
from mq.security.caller import credential_of
from mq.security.standing import Over, is_over
from mq.service.start import start_positions
from mq.topic.topic_view import TopicView

BUFFERED_BYTES = 1024 * 1024
"""How much the systems at both ends may take for a client that does not read."""
SLOW_SECONDS = 0.1


class _Pace:
    """The size of the next page of a stream, by how soon its client took the last one."""

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
    router, streams = new_router("subscribe"), _Streams(broker)

    @router.serves(SUBSCRIBE)
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
        view = await broker.topics.view(topic)
        reader = await broker.reader(topic, streaming=True)
        # A browser that reconnects repeats its first URL. The header has the place that it has reached.
        resumed = last_event_id or marker
        positions = await start_positions(topic, reader, resumed, None if last_event_id else from_, default="latest")
        assert chosen.stream is not None
        chunks = chunks_of(request.scope)
        stream = streams.parts(view, positions, chosen.stream, address, chunks, request.scope)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return PacedStream(stream, headers, chosen.media_type, broker.turns.streams, chunks)

    return router


class _Streams:
    """Serves the subscriptions of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._pages = StreamPages(broker)
        self._live = LiveStreams(broker, self._pages)

    async def parts(
        self,
        view: TopicView,
        positions: Positions,
        form: StreamForm,
        address: str,
        chunks: Chunks | None,
        scope: Scope,
    ) -> AsyncGenerator[Part, None]:
        """The parts of one stream, for as long as the request's credential is good."""
        standing_of = self._broker.access.standings.of
        allowed = standing_of(credential_of(scope), match_of(scope).need)
        with self._broker.streams.counted(address), allowed as standing:
            over = None if standing is None else standing.over
            async with contextlib.aclosing(self._parts(view, positions, form, chunks, over, scope)) as parts:
                async for part in parts:
                    yield part

    async def _parts(
        self,
        view: TopicView,
        positions: Positions,
        form: StreamForm,
        chunks: Chunks | None,
        over: Over | None,
        scope: Scope,
    ) -> AsyncGenerator[Part, None]:
        runtime, topic, broker = view.runtime, view.topic, self._broker
        live: set[int] = set()
        pace, written_seconds = _Pace(broker.clock), broker.clock.monotonic_seconds()
        try:
            yield form.keepalive(to_marker(topic, positions))
            while not broker.draining.is_set() and not runtime.state.deleted and not is_over(over):
                news = runtime.reads.news()
                await broker.turns.streams.wait()
                positions = catch_up(runtime, positions, live)
                place = Place.of(runtime, form, positions, view.member)
                try:
                    page = await self._pages.after(place, pace.page_bytes)
                except Draining:
                    break
                except ReadsFull:
                    # Other readers hold all the room. This one shows that it is alive, and tries again.
                    yield form.keepalive(to_marker(topic, positions))
                    continue
                with page:
                    positions = page.reached
                    if page.parts:
                        with pace.page(page.size_bytes):
                            for part in page.parts:
                                yield part
                        page.count(runtime)
                        written_seconds = broker.clock.monotonic_seconds()
                        if page.unreadable is not None:
                            raise page.unreadable
                        continue
                may_go_on = page.may_go_on
                if not may_go_on and chunks is not None and runtime.state.config.overflow != "drop_oldest":
                    positions = await self._follow(place.at(positions), chunks, over)
                    written_seconds = broker.clock.monotonic_seconds()
                    continue
                due_seconds = written_seconds + KEEPALIVE_SECONDS
                if not may_go_on:
                    runtime.reads.follow(positions)
                    awaited: list[asyncio.Future[Any]] = [news] if over is None else [news, over]
                    await asyncio.wait(awaited, timeout=max(due_seconds - broker.clock.monotonic_seconds(), 0.0))
                # Needed also if there is news all the time, but only of other members of a topic group.
                if broker.clock.monotonic_seconds() >= due_seconds:
                    yield form.keepalive(to_marker(topic, positions))
                    written_seconds = broker.clock.monotonic_seconds()
            yield _written(form, end_of(view, positions, None, await self._refusal(over, scope), scope))
        except (PositionTooOld, UnreadableObject) as error:
            # All that could be read before the error was sent.
            yield _written(form, end_of(view, positions, error, await self._refusal(over, scope), scope))

    async def _refusal(self, over: Over | None, scope: Scope) -> BraidError | None:
        """Why the permission is over, once that is recorded; None if it is not over."""
        if (refusal := is_over(over)) is not None:
            await record_end(self._broker, scope, refusal)
        return refusal

    async def _follow(self, place: Place, chunks: Chunks, over: Over | None) -> Positions:
        """Write all new messages to a stream that has got all before. Returns the positions at which that ended."""
        positions, written = await self._live.follow(place, chunks, over)
        with written or contextlib.nullcontext():
            await chunks.drained()
        return positions


def _written(form: StreamForm, end: StreamEnd) -> bytes:
    return form.end(end.reason, end.marker)
