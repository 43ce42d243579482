"""Streams that have read all messages: the next ones are written to all of them together.

Alone, each stream would wake, look for news, and sleep again: some hundred microseconds for each message and stream.
Here one task does that for all streams at the same place, and a stream costs a write to its socket.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from filer.errors import BraidError
from filer.topic.positions import Positions, to_marker
from mq.broker import Broker
from mq.forms.render import Part
from mq.http.chunks import Chunks, framed
from mq.http.streaming.stream_page import StreamPage
from mq.http.streaming.stream_pages import LARGEST_PAGE_BYTES, Place, StreamPages
from mq.limits.turns import ASKER
from mq.security.standing import Over

KEEPALIVE_SECONDS = 15.0
STREAMS_AT_ONCE = 10
"""A page is written to so many streams in one turn: some 0.15 ms. A publish takes several rounds of the loop."""
LEAST_REST_SECONDS, LONGEST_REST_SECONDS = 0.001, 0.02
"""Between two pages a group rests for as long as the first took to write: so it uses at most half of the time. Messages
that come meanwhile are in the next page: a stream costs as much for many messages as for one."""


class Left(NamedTuple):
    """A stream that goes on by itself: its positions, and the page that it has to drop once its socket is drained."""

    positions: Positions
    page: StreamPage | None


class LiveStreams:
    """The groups of streams, each at one place. Belongs to one event loop."""

    def __init__(self, broker: Broker, pages: StreamPages) -> None:
        self._broker, self._pages = broker, pages
        self._groups: dict[Place, _Group] = {}

    async def follow(self, place: Place, chunks: Chunks, over: Over | None = None) -> Left:
        """Write all new messages to a stream that stands there and has got all before.

        Returns when the stream has to go on by itself: its client takes no more, may read no more (`over`), or needs an
        answer other than messages. The caller then finds the reason by itself, and decides what to send.
        """
        stream = _Stream(chunks, dict(place.positions), asyncio.get_running_loop().create_future())
        self._enter(place, stream)

        def end(_: "asyncio.Future[BraidError]") -> None:
            stream.go(None)

        if over is not None:
            over.add_done_callback(end)
        try:
            return await stream.left
        except asyncio.CancelledError:
            if stream.left.done() and not stream.left.cancelled() and (page := stream.left.result().page) is not None:
                page.drop()
            raise
        finally:
            if over is not None:
                over.remove_done_callback(end)
            stream.group.leave(stream)

    def _enter(self, place: Place, stream: "_Stream") -> None:
        group = self._groups.get(place)
        if group is None:
            group = self._groups[place] = _Group(self._broker, self._pages, place, self._move)
        group.add(stream)

    def _move(self, group: "_Group", place: Place | None) -> bool:
        """Move a group to a place, or away from its own. False if another group is there, which takes its streams."""
        if self._groups.get(group.place) is group:
            del self._groups[group.place]
        if place is None:
            return True
        other = self._groups.setdefault(place, group)
        if other is group:
            group.place = place
            return True
        for stream in list(group.streams):
            del group.streams[stream]
            other.add(stream)
        return False


class _Stream:
    """One stream of a group; `positions` are behind all that was written to it."""

    def __init__(self, chunks: Chunks, positions: Positions, left: "asyncio.Future[Left]") -> None:
        self.chunks, self.positions, self.left = chunks, positions, left
        self.group: _Group

    def go(self, page: StreamPage | None) -> None:
        """Let it go on by itself. It gets nothing more here, and knows its positions."""
        self.group.streams.pop(self, None)
        if not self.left.done():
            if page is not None:
                page.use()
            self.left.set_result(Left(self.positions, page))


class _Group:
    """Streams at one place. It calls `move` for each place that it comes to, and with None while it goes there."""

    def __init__(
        self, broker: Broker, pages: StreamPages, place: Place, move: "Callable[[_Group, Place | None], bool]"
    ) -> None:
        self._broker, self._pages, self._move = broker, pages, move
        self.place = place
        self.streams: dict[_Stream, None] = {}
        self._written_seconds = broker.clock.monotonic_seconds()
        self._rest_seconds = 0.0
        self._task = asyncio.create_task(self._run(), name="live streams")

    def add(self, stream: _Stream) -> None:
        """Add a stream at this place."""
        stream.group = self
        self.streams[stream] = None

    def leave(self, stream: _Stream) -> None:
        """Remove a stream that is gone, or goes on by itself."""
        self.streams.pop(stream, None)
        if not self.streams:
            self._move(self, None)
            self._task.cancel()

    async def _run(self) -> None:
        ASKER.set(self)
        try:
            while await self._go_on():
                pass
        except BraidError:
            pass  # each of them meets the error by itself
        finally:
            self._let_go(None)

    def _let_go(self, page: StreamPage | None) -> None:
        """Let each stream go on by itself."""
        self._move(self, None)
        for stream in list(self.streams):
            stream.go(page)

    async def _go_on(self) -> bool:
        """Write the next page, or wait for one. Returns whether these streams stay together here."""
        broker, runtime = self._broker, self.place.runtime
        if broker.draining.is_set() or runtime.state.version != self.place.version:
            return False
        if self._rest_seconds > LEAST_REST_SECONDS:
            await broker.clock.sleep(min(self._rest_seconds, LONGEST_REST_SECONDS))
        self._rest_seconds = 0.0
        news = runtime.reads.news()
        await broker.turns.streams.wait()
        page = await self._pages.after(self.place, LARGEST_PAGE_BYTES)
        with page:
            if page.parts:
                return await self._write(page)
            # A page without messages may lead on as well: past segments sealed meanwhile, which retention may remove
            # then.
            for stream in self.streams:
                stream.positions = page.reached
            if not self._stand_at(page.reached):
                return False
        runtime.reads.follow(page.reached)
        if not page.may_go_on:
            await asyncio.wait([news], timeout=max(self._due_seconds(), 0.0))
        # Needed also if there is news all the time, but only of other members of a topic group.
        if self._due_seconds() <= 0:
            keepalive = self.place.form.keepalive(to_marker(self.place.view.topic, page.reached))
            await self._give(keepalive, page)
        return True

    def _due_seconds(self) -> float:
        """In how many seconds a sign of life is due."""
        return self._written_seconds + KEEPALIVE_SECONDS - self._broker.clock.monotonic_seconds()

    async def _write(self, page: StreamPage) -> bool:
        """Write a page to all streams. Returns whether they stay together."""
        if page.size_bytes > LARGEST_PAGE_BYTES or page.unreadable is not None:
            # A socket takes a large message in pieces. An unreadable object is reported once all messages before it are
            # sent.
            self._let_go(page)
            return False
        self._move(self, None)
        page.count(self.place.runtime, await self._give(page.parts[0], page))
        self._rest_seconds = self._broker.clock.monotonic_seconds() - self._written_seconds
        return self._stand_at(page.reached)

    async def _give(self, body: Part, page: StreamPage) -> int:
        """Write a body to all streams, which then stand behind the page. Returns their number."""
        given, pieces = 0, framed(body)
        self._written_seconds = self._broker.clock.monotonic_seconds()
        for stream in list(self.streams):
            if given and not given % STREAMS_AT_ONCE:
                await self._broker.turns.streams.wait()
            if stream not in self.streams:
                continue  # gone meanwhile
            stream.chunks.write(pieces, len(body))
            stream.positions = page.reached
            given += 1
            if not stream.chunks.takes_more:
                stream.go(page)
        return given

    def _stand_at(self, positions: Positions) -> bool:
        """Stand at these positions from now on. False if another group does already, which takes these streams."""
        return self._move(self, self.place.at(positions))
