"""A real clock that does not count the time in which the process was not let run."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from filer.clock import SystemClock

TURN_SECONDS = 0.01
LONGEST_TURN_SECONDS = 0.02


class StalledClock(SystemClock):
    """For tests in which somebody must be heard in time: where the machine stalls, all of them are late together."""

    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0

    def monotonic_seconds(self) -> float:
        """Seconds since the start, in which the event loop went round."""
        return self._seconds

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The clock goes while this is open."""
        going = asyncio.create_task(self._go())
        try:
            yield
        finally:
            going.cancel()

    async def _go(self) -> None:
        last_seconds = super().monotonic_seconds()
        while True:
            await asyncio.sleep(TURN_SECONDS)
            now_seconds = super().monotonic_seconds()
            self._seconds += min(now_seconds - last_seconds, LONGEST_TURN_SECONDS)
            last_seconds = now_seconds
