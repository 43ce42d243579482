"""The order in which loads are checked: principals take turns, by the time that their checks have taken."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable

from mq.limits.fair_line import FairLine

_SCALE = 0.001
"""A line is made for turns of milliseconds. These take seconds."""


class Lane:
    """A number of checks at once; the others wait. Belongs to one event loop."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._line: FairLine[asyncio.Future[None]] = FairLine()

    @property
    def is_awaited(self) -> bool:
        """Whether other checks wait."""
        return len(self._line) > 0

    @contextlib.asynccontextmanager
    async def turn(self, asker: Hashable) -> AsyncIterator[None]:
        """A context that has one of the places."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._line.add(asker, waiter)
        self._serve()
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # it had got its place
                self._leave()
            raise
        began_seconds = loop.time()
        try:
            yield
        finally:
            self._line.charge(asker, _SCALE * (loop.time() - began_seconds))
            self._leave()

    def _leave(self) -> None:
        self._places += 1
        self._serve()

    def _serve(self) -> None:
        while self._places and self._line:
            waiter = self._line.pop()[1]
            if not waiter.done():
                self._places -= 1
                waiter.set_result(None)
