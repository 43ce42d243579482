"""Waiting for a newer state of a topic: woken as soon as there is one, and looking for it where no news comes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from filer.clock import Clock
from filer.errors import BraidError
from mq.coalesced import Coalesced

# All publishes that a split holds back wait for the same record.
LOOK_APART_SECONDS = 0.25


class ShapeNews:
    """Those who wait for a topic's shape to change. `look` reads its record, and has it told here where it is newer.

    They look together, one read at a time and so far apart: a read each would take up the connections to the store, and
    hold up the very puts that they wait for, with those of every other segment.
    """

    def __init__(self, clock: Clock, look: Callable[[], Awaitable[None]]) -> None:
        self._look = look
        self._looks = Coalesced(
            self._try_look, clock, name="look for a topic's newer state", rest_seconds=LOOK_APART_SECONDS
        )
        self._news: asyncio.Future[None] | None = None
        self._closed = False

    def tell(self) -> None:
        """There is a newer state: wake everybody."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def wait(self, patience_seconds: float) -> None:
        """Return when a newer state is told, or when it was waited for so long in vain and then looked for once."""
        news = self._next()
        await asyncio.wait([news], timeout=patience_seconds)
        if not news.done() and not self._closed:
            # Neither is cancelled with whoever waits: others wait for the same.
            await asyncio.wait([news, self._looks.ask()], return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Look no more, and keep nobody waiting."""
        self._closed = True
        self.tell()
        await self._looks.close()

    def _next(self) -> asyncio.Future[None]:
        if self._news is None or self._news.done():
            self._news = asyncio.get_running_loop().create_future()
        return self._news

    async def _try_look(self) -> None:
        # Who waits tries again, and tells in the end what was in the way.
        with contextlib.suppress(BraidError):
            await self._look()
