"""The newest messages of an open segment that another broker owns, for readers of this broker."""

import asyncio
from collections.abc import Callable

from filer import request_ids
from filer.clock import Clock
from filer.errors import BraidError
from filer.segment.segment_log import SegmentRef
from mq.limits.front_store import FrontStore, Tail
from mq.peers.peers import Peers

PAGE_ROWS, PAGE_BYTES = 10_000, 4 * 1024 * 1024
WAIT_SECONDS = 10.0
# A tail without a reader ends after this time. The next reader begins a new one.
IDLE_SECONDS = 30.0
RETRY_SECONDS = 0.2


class RemoteTail:
    """Asks the owner for the next messages by long polls, as long as they have a reader here.

    The owner is asked once for any number of readers. `on_news` is called when there is more, and at the end.
    """

    def __init__(
        self,
        peers: Peers,
        clock: Clock,
        front_store: FrontStore,
        ref: SegmentRef,
        *,
        url: Callable[[], str | None],
        offset: int,
        on_news: Callable[[], None],
    ) -> None:
        self.tail = Tail(offset)
        self._peers, self._clock, self._front_store, self._ref = peers, clock, front_store, ref
        self._url, self._on_news = url, on_news
        self._wanted_seconds = clock.monotonic_seconds()
        self._task = asyncio.create_task(
            self._run(), name=f"tail {ref.topic}/{ref.segment}", context=request_ids.of_nobody()
        )

    @property
    def ended(self) -> bool:
        """Whether nothing is added any more."""
        return self._task.done()

    def keep_alive(self) -> None:
        """Note that a reader reads it."""
        self._wanted_seconds = self._clock.monotonic_seconds()

    def stop(self) -> None:
        """End it soon."""
        self._task.cancel()

    async def close(self) -> None:
        """End it and wait until it has ended."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._clock.monotonic_seconds() - self._wanted_seconds < IDLE_SECONDS:
                if not await self._take_page():
                    # The topic's record soon says why. Readers that are woken at once would ask again at once.
                    await self._clock.sleep(RETRY_SECONDS)
                    return
        finally:
            self._on_news()

    async def _take_page(self) -> bool:
        """Fetch a page; returns False if the owner is gone or the segment sealed, as the topic's record says."""
        url = self._url()
        if url is None:
            return False
        try:
            page = await self._peers.tail(
                url,
                self._ref.topic,
                self._ref.segment,
                self.tail.end,
                max_rows=PAGE_ROWS,
                max_bytes=PAGE_BYTES,
                wait_seconds=WAIT_SECONDS,
            )
        except BraidError:
            return False
        if page.table.num_rows:
            if page.end - page.table.num_rows != self.tail.end:
                return False  # retention took what lies between
            self._front_store.keep(self.tail, page.table, page.table.nbytes)
            self._on_news()
        return bool(page.table.num_rows) or not page.sealed
