"""Bodies that were answered before their end, most of them refused: what still comes of them is read at a low rate.

Who sends on before he reads would never see his answer if his connection were closed. Read as fast as they come, such
bodies keep the broker from everybody else's requests.
"""

import asyncio
from collections import OrderedDict
from typing import Protocol

from filer.clock import Clock

STEP_SECONDS = 0.004
"""Between two pieces, of all connections together. A piece has at most 256 KiB, so that 64 MiB take about a second."""


class Sender(Protocol):
    """A connection whose client sends what nobody waits for."""

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
        """A piece has come that nobody waits for. The next one is read when it is the connection's turn."""
        sender.pause()
        self._waiting[sender] = None
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_on(), name="unwanted bodies")

    def gone(self, sender: Sender) -> None:
        """The connection is closed."""
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
