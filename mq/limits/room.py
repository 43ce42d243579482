"""Memory that requests share, in bytes: each takes room as its bytes arrive, and gives it back after its answer."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

# A body that has not got on by this much for so long stalls: it gives way to requests that need its room.
STEP_BYTES = 64 * 1024
STALLED_SECONDS = 2.0


class Arriving(Protocol):
    """A body of which a part is there."""

    def give_up(self) -> None:
        """Give the room back soon, and refuse the request."""
        ...


class Room:
    """Counts the bytes of requests that have come, or are being received. Belongs to one event loop."""

    def __init__(self, limit_bytes: int, now: Callable[[], float] = lambda: 0.0) -> None:
        self.limit_bytes = limit_bytes
        self.pending_bytes = 0
        self._now = now
        # Bodies that arrive in several pieces, in the order in which they last got on.
        self._arriving: OrderedDict[Arriving, float] = OrderedDict()
        self._promised_bytes = 0
        self._waiting_bytes = 0
        self._released: asyncio.Future[None] | None = None

    def try_reserve(self, size_bytes: int) -> bool:
        """Reserve room for a request; False if others leave none."""
        if self.pending_bytes + size_bytes > self.limit_bytes:
            return False
        self.pending_bytes += size_bytes
        return True

    def has_room(self, size_bytes: int) -> bool:
        """Whether `try_reserve` would reserve that now."""
        return self.pending_bytes + size_bytes <= self.limit_bytes

    def try_promise(self, size_bytes: int) -> bool:
        """Promise room to a body that has not come; False if there is none that was not promised to others.

        A promise takes no room. It keeps large bodies of topics with `overflow: block` from beginning all at once: then
        each would wait for the room of the others.
        """
        if not self.has_room(self._promised_bytes + size_bytes):
            return False
        self._promised_bytes += size_bytes
        return True

    def redeem(self, size_bytes: int) -> None:
        """Give back that much of a promise, which is not needed any more."""
        self._promised_bytes -= size_bytes

    def gets_on(self, body: Arriving) -> None:
        """Note that a body begins to arrive, or has got on by `STEP_BYTES`."""
        self._arriving[body] = self._now()
        self._arriving.move_to_end(body)

    def ends(self, body: Arriving) -> None:
        """Note that a body is complete, or was given up."""
        self._arriving.pop(body, None)

    @property
    def has_stalled(self) -> bool:
        """Whether a body has stalled."""
        longest_seconds = next(iter(self._arriving.values()), None)
        return longest_seconds is not None and self._now() - longest_seconds >= STALLED_SECONDS

    def give_way(self) -> bool:
        """Make the body that has stalled longest give its room back; False if none stalls."""
        if not self.has_stalled:
            return False
        self._arriving.popitem(last=False)[0].give_up()
        return True

    def release(self, size_bytes: int) -> None:
        """Give room back: the request was stored, refused or aborted."""
        self.pending_bytes -= size_bytes
        if self._released is not None:
            self._released.set_result(None)
            self._released = None

    async def room(self, held_bytes: int) -> bool:
        """Wait until some room has been given back. The waiting request holds `held_bytes`, or was promised them.

        False at once if waiting requests hold all of the room: none of them could ever go on.
        """
        if self._waiting_bytes + held_bytes >= self.pending_bytes + self._promised_bytes:
            return False
        if self._released is None:
            self._released = asyncio.get_running_loop().create_future()
        self._waiting_bytes += held_bytes
        try:
            await asyncio.shield(self._released)
        finally:
            self._waiting_bytes -= held_bytes
        return True
