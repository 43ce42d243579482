"""Work that many ask for at once is begun a little at a time, and the event loop serves others in between."""

import asyncio
from collections import deque


class RoundLimiter:
    """Lets `per_round` of its callers go on in each round of the event loop, first come, first served.

    Without it, 200 readers who are woken together keep everybody else waiting for the work of all 200. A caller that
    has no one before it does not wait. Of one event loop.
    """

    def __init__(self, per_round: int) -> None:
        self._per_round = self._left = per_round
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._refilling = False

    async def wait(self) -> None:
        """Wait until the caller may go on."""
        if self._left and not self._waiting:
            self._use()
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter

    def _use(self) -> None:
        self._left -= 1
        if not self._refilling:
            self._refilling = True
            asyncio.get_running_loop().call_soon(self._refill)

    def _refill(self) -> None:
        self._refilling = False
        self._left = self._per_round
        while self._left and self._waiting:
            waiter = self._waiting.popleft()
            # Nobody waits any more where it was cancelled.
            if not waiter.done():
                self._use()
                waiter.set_result(None)
