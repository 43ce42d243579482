"""Limits how many writers of a broker store at a time: on a directory, a put costs more processor time than waiting."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

PATIENCE_SECONDS = 0.025


class WriteLimiter:
    """Lets `at_once` writers store at a time, and also any writer that has waited for `PATIENCE_SECONDS`.

    Files that are written one after another are larger, since messages join them while they wait, and their threads do
    not compete for the interpreter. With 4 segments that gave a quarter to a third more throughput. With a slow store a
    longer wait would gain nothing, so no writer waits longer. `on_free` is called when none stores any more.
    """

    def __init__(self, at_once: int, on_free: Callable[[], None] = lambda: None) -> None:
        self._free, self._on_free = asyncio.Semaphore(at_once), on_free
        self._storing = 0

    @property
    def is_storing(self) -> bool:
        """Whether any writer stores."""
        return self._storing > 0

    @contextlib.asynccontextmanager
    async def permit(self) -> AsyncIterator[None]:
        """Hold a permit, or go on without one if none becomes free in time."""
        acquired = await self._acquire()
        self._storing += 1
        try:
            yield
        finally:
            self._storing -= 1
            if acquired:
                self._free.release()
            if not self._storing:
                self._on_free()

    async def _acquire(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS if self._free.locked() else None):
                return await self._free.acquire()
        except TimeoutError:
            return False
