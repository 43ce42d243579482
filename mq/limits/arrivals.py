"""The bounded memory of bodies that have come only in part."""

import asyncio
from collections.abc import Hashable

from mq.base.errors import FrontStoreFull

# A body that may go on receives about this much before it asks again.
_STEP_BYTES = 64 * 1024


class Arrivals:
    """The memory of arriving bodies, in the order in which they began. Belongs to one event loop.

    The one that began first may always go on, so that no body waits for another in a circle. The others may while they
    hold no more than `limit_bytes` together; above it they wait in their sockets. Half as much again is for pieces that
    arrive before it can be known that they belong to a larger body: above that nothing more is accepted.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        # Bodies that grow are inflated one at a time: side by side they would take all processors.
        self.inflating = asyncio.Semaphore(1)
        # Long bodies of JSON are decoded one after the other: while they are read, they take several times their size.
        self.decoding = asyncio.Semaphore(1)
        self._held: dict[Hashable, int] = {}
        self._total_bytes = 0
        self._waiting: dict[Hashable, asyncio.Future[None]] = {}

    @property
    def total_bytes(self) -> int:
        """The memory that all of them hold."""
        return self._total_bytes

    def begin(self, body: Hashable, size_bytes: int) -> None:
        """Note the first piece of a body; others are to come. Raises `FrontStoreFull`."""
        if self._held and self._others_bytes() + size_bytes > self.limit_bytes + self.limit_bytes // 2:
            raise self.full()
        self._held[body] = size_bytes
        self._total_bytes += size_bytes

    def holds(self, body: Hashable, size_bytes: int) -> None:
        """Note that so much of a body is there now."""
        self._total_bytes += size_bytes - self._held[body]
        self._held[body] = size_bytes

    def may_go_on(self, body: Hashable) -> bool:
        """Whether to receive more of a body."""
        return self._total_bytes <= self.limit_bytes or self._others_bytes() <= self.limit_bytes or self._is_first(body)

    async def turn(self, body: Hashable) -> bool:
        """Return True when a body may go on. Those that began first do so first."""
        turn = self._waiting[body] = asyncio.get_running_loop().create_future()
        try:
            await turn
        finally:
            self._waiting.pop(body, None)
        return True

    def end(self, body: Hashable) -> None:
        """Note that a body is complete, or was given up."""
        self._total_bytes -= self._held.pop(body, 0)
        if self._waiting:
            self._serve()

    def full(self) -> FrontStoreFull:
        """The error of a body for which there is no room."""
        return FrontStoreFull(
            f"bodies that are arriving hold {self._total_bytes} bytes, and besides the one that began first at most "
            f"{self.limit_bytes} may (--arriving-bytes); nothing of this request was stored: send it again later"
        )

    def _is_first(self, body: Hashable) -> bool:
        return next(iter(self._held)) is body

    def _others_bytes(self) -> int:
        return self._total_bytes - next(iter(self._held.values()), 0)

    def _serve(self) -> None:
        room_bytes = self.limit_bytes - self._others_bytes()
        for body in self._held:
            if room_bytes < 0 and not self._is_first(body):
                return
            turn = self._waiting.get(body)
            if turn is not None and not turn.done():
                turn.set_result(None)
                room_bytes -= _STEP_BYTES
