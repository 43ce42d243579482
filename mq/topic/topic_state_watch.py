"""Waits for a newer state of a topic: woken by its arrival, and reading the record if none arrives."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from filer.clock import Clock
from filer.errors import BraidError
from mq.base.single_flight import SingleFlight
from mq.topic.wakeup import Wakeup

# All publishes that a split holds up wait for the same record.
READ_APART_SECONDS = 0.25


class TopicStateWatch:
    """Lets tasks wait for a newer state of a topic. `refresh` reads its record and broadcasts it if it is newer.

    All waiting tasks share one read at a time, with a pause between two reads. A read for each of them would use up the
    connections to the store, and delay the very puts they wait for, and those of all other segments.
    """

    def __init__(self, clock: Clock, refresh: Callable[[], Awaitable[None]]) -> None:
        self._refresh = refresh
        self._reads = SingleFlight(
            self._try_refresh, clock, name="read a topic's newer state", rest_seconds=READ_APART_SECONDS
        )
        self._newer = Wakeup()
        self._closed = False

    def broadcast(self) -> None:
        """Wake all waiting tasks: there is a newer state."""
        self._newer.wake()

    async def wait_for_newer(self, patience_seconds: float) -> None:
        """Return when there is a newer state, or after `patience_seconds` and one read of the record."""
        newer = self._newer.next()
        await asyncio.wait([newer], timeout=patience_seconds)
        if not newer.done() and not self._closed:
            # Cancelling the caller cancels neither of these: others wait for the same.
            await asyncio.wait([newer, self._reads.ask()], return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Stop reading, and wake all waiting tasks."""
        self._closed = True
        self.broadcast()
        await self._reads.close()

    async def _try_refresh(self) -> None:
        # The waiting task tries again, and reports in the end what went wrong.
        with contextlib.suppress(BraidError):
            await self._refresh()
