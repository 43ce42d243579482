"""Memory for work under way, if the size is known before the work begins."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from mq.limits.fair_line import FairLine
from mq.limits.turns import ASKER

_BYTES_PER_SECOND = 1e9
"""The line counts costs in seconds. So much memory counts as one second."""


class Budget:
    """At most so many bytes at once. Others wait, and each client gets its share. Belongs to one event loop."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._line: FairLine[tuple[int, asyncio.Future[None]]] = FairLine()
        self._next: tuple[int, asyncio.Future[None]] | None = None

    @contextlib.asynccontextmanager
    async def held(self, size_bytes: int) -> AsyncIterator[None]:
        """A context in which so many bytes are held. A size above the whole budget is held alone."""
        size_bytes = min(size_bytes, self.limit_bytes)
        asker = ASKER.get()
        if self._next is not None or self.held_bytes + size_bytes > self.limit_bytes:
            waiter = asyncio.get_running_loop().create_future()
            self._line.add(asker, (size_bytes, waiter))
            self._serve()
            try:
                await waiter
            except asyncio.CancelledError:
                self._gave_up(size_bytes, waiter)
                raise
        else:
            self.held_bytes += size_bytes
        self._line.charge(asker, size_bytes / _BYTES_PER_SECOND)
        try:
            yield
        finally:
            self.held_bytes -= size_bytes
            self._serve()

    def _gave_up(self, size_bytes: int, waiter: "asyncio.Future[None]") -> None:
        if not waiter.cancelled():  # it had got its room
            self.held_bytes -= size_bytes
        self._serve()

    def _serve(self) -> None:
        """Let waiting callers go on that have room, in the order of the line: none overtakes the next one."""
        while self._next is not None or self._line:
            if self._next is None:
                self._next = self._line.pop()[1]
            size_bytes, waiter = self._next
            if not waiter.done():
                if self.held_bytes + size_bytes > self.limit_bytes:
                    return
                self.held_bytes += size_bytes
                waiter.set_result(None)
            self._next = None
