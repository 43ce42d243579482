"""Bodies that were answered before their end, most of them refused: their rest is read at a low rate.

A client that sends on before it reads would never see its answer if its connection were closed. Read as fast as they
come, such bodies keep the broker from all other requests.
"""

import asyncio
from collections import OrderedDict
from typing import Protocol

from filer.clock import Clock

STEP_SECONDS = 0.004
"""Between two pieces of all connections together. A piece has at most 256 KiB: 64 MiB take about a second."""


class Sender(Protocol):
    """A connection with a client that sends unwanted bytes."""

    def pause(self) -> None:
        """Read nothing of it for now."""
        ...

    def read_on(self) -> None:
        """Read a piece."""
        ...


class Unwanted:
    """Lets such connections read a piece each in turn."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: OrderedDict[Sender, None] = OrderedDict()
        self._reading: asyncio.Task[None] | None = None

    def came(self, sender: Sender) -> None:
        """Note an unwanted piece. The next one is read when it is the connection's turn."""
        sender.pause()
        self._waiting[sender] = None
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_on(), name="unwanted bodies")

    def gone(self, sender: Sender) -> None:
        """Forget a closed connection."""
        self._waiting.pop(sender, None)

    async def _read_on(self) -> None:
        try:
            while self._waiting:
                await self._clock.sleep(STEP_SECONDS)
                if self._waiting:
                    sender, _ = self._waiting.popitem(last=False)
                    sender.read_on()
        finally:
            self._reading = None
