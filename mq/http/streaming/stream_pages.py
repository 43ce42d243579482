"""The pages of subscriptions, each read and rendered once for all streams at the same place."""

import asyncio
from collections import deque
from typing import NamedTuple
from weakref import WeakValueDictionary

from filer.topic.positions import Positions
from mq.broker import Broker
from mq.forms.stream_forms import StreamForm
from mq.http.streaming.stream_page import Counted, StreamPage, rendered_runs
from mq.limits.steps import begun_at_once, in_turns
from mq.service.start import check_positions
from mq.topic.topic_reader import TopicReader
from mq.topic.topic_runtime import TopicRuntime
from mq.topic.topic_view import TopicView

PAGE_ROWS = 1_000
SMALLEST_PAGE_BYTES, LARGEST_PAGE_BYTES = 64 * 1024, 256 * 1024
"""A page is as small as the socket's own buffer for a client that is slow, or not known yet."""
KEPT_SECONDS = 1.0
"""How long a page stays for streams that come to its place after the others."""
KEPT_SHARE = 8
"""Pages that no stream sends take at most this share of the read budget, or there is only one."""


class Place(NamedTuple):
    """A stream's positions, and the form in which it is written: streams at an equal place get the same bytes.

    Positions are `{segment: offset}`. With `member`, the stream has only that member's messages of a topic group. After
    any change of the topic's record it is another place: readers may be allowed less.
    """

    runtime: TopicRuntime
    version: int
    form: StreamForm
    positions: frozenset[tuple[int, int]]
    member: str | None = None

    @classmethod
    def of(cls, runtime: TopicRuntime, form: StreamForm, positions: Positions, member: str | None = None) -> "Place":
        """The place of a stream now."""
        return cls(runtime, runtime.state.version, form, frozenset(positions.items()), member)

    @property
    def view(self) -> TopicView:
        """The topic as the stream's reader knows it."""
        return TopicView(self.runtime, self.member)

    def at(self, positions: Positions) -> "Place":
        """The place of the same stream at other positions, now."""
        return Place.of(self.runtime, self.form, positions, self.member)


class StreamPages:
    """Pages that are made, or sent, or were a moment ago. Belongs to one event loop.

    A page is found as long as any stream sends it. Besides those, some pages are kept for a moment, and always the
    newest one: streams that waited for it have not begun to use it yet.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._most_kept_bytes = broker.read_budget.limit_bytes // KEPT_SHARE
        self._pages: WeakValueDictionary[Place, StreamPage] = WeakValueDictionary()
        self._making: dict[Place, asyncio.Task[StreamPage]] = {}
        self._kept: deque[tuple[float, StreamPage]] = deque()
        self._kept_bytes = 0
        self._expiry: asyncio.TimerHandle | None = None

    async def after(self, place: Place, page_bytes: int) -> StreamPage:
        """The page that begins there, of about so many bytes, for use; without parts if nothing came before this call.

        Raises `Draining`, `ReadsFull`, `PositionTooOld` and `UnreadableObject`.
        """
        while True:
            page = self._pages.get(place)
            if page is None:
                making = self._making.get(place)
                is_first = making is None
                try:
                    page = await asyncio.shield(self._begin(place, page_bytes) if making is None else making)
                finally:
                    del making  # see `end_tasks`
                if not page.parts and not page.may_go_on and not is_first:
                    continue  # the look may have been before the news that woke the caller
            page.use()
            return page

    def _begin(self, place: Place, page_bytes: int) -> "asyncio.Task[StreamPage]":
        # A task of its own: the first caller may go away, and others wait for the same page.
        making = asyncio.create_task(self._make(place, page_bytes), name="page of streams")
        self._making[place] = making
        making.add_done_callback(_see_error)
        return making

    async def _make(self, place: Place, page_bytes: int) -> StreamPage:
        try:
            page = await self._read(place, page_bytes)
        finally:
            # At once, and not when the task is seen to be done: no caller may get a page twice that came too early for
            # it.
            del self._making[place]
        # An unreadable object may be there again for the next caller.
        if page.parts and page.unreadable is None:
            self._pages[place] = page
            self._keep(page)
        else:
            page.drop()
        return page

    def _keep(self, page: StreamPage) -> None:
        loop = asyncio.get_running_loop()
        self._kept.append((loop.time() + KEPT_SECONDS, page))
        self._kept_bytes += page.size_bytes
        while self._kept_bytes > self._most_kept_bytes and len(self._kept) > 1:
            self._drop_oldest()
        if self._expiry is None:
            self._expiry = loop.call_later(KEPT_SECONDS, self._expire)

    def _drop_oldest(self) -> None:
        _, page = self._kept.popleft()
        self._kept_bytes -= page.size_bytes
        page.drop()

    def _expire(self) -> None:
        self._expiry = None
        loop = asyncio.get_running_loop()
        while self._kept and self._kept[0][0] <= loop.time():
            self._drop_oldest()
        if self._kept:
            self._expiry = loop.call_at(self._kept[0][0], self._expire)

    async def _read(self, place: Place, page_bytes: int) -> StreamPage:
        lease = self._broker.read_budget.lease()
        with lease:
            view, positions = place.view, dict(place.positions)
            reader = TopicReader(
                view.runtime, self._broker.segment_reader, streaming=True, room=lease, member=view.member
            )
            # A page of small files may take long. It can be read again from the same marker, at another broker.
            async with self._broker.reads.cut_off(grace_seconds=0.0):
                await check_positions(view.topic, reader, positions)
                runs, reached = await reader.read(positions, max_rows=PAGE_ROWS, max_bytes=page_bytes)
            steps = rendered_runs(view, runs, positions, place.form)
            if sum(run.size_bytes for run in runs) <= LARGEST_PAGE_BYTES:
                # The caller has had a turn for that, a moment ago. A wait for one more, behind the writes of a busy
                # topic, took a quiet one longer than all else.
                pages = await begun_at_once(steps, self._broker.turns.streams) if runs else []
            else:
                async with lease.large_page:
                    pages = await in_turns(steps, self._broker.turns.streams)
            counted = [
                Counted(run.segment, run.table.num_rows, sum(map(len, page)))
                for run, page in zip(runs, pages, strict=True)
            ]
            parts = [part for page in pages for part in page]
            if sum(map(len, parts)) <= LARGEST_PAGE_BYTES:
                parts = [b"".join(parts)] if parts else []
            return StreamPage(parts, reached, counted, reader.unreadable, lease, may_go_on=reader.may_go_on)


def _see_error(making: "asyncio.Task[StreamPage]") -> None:
    """Read the error of a page, so that asyncio does not report it. Callers that waited for the page got the error."""
    if not making.cancelled():
        making.exception()
