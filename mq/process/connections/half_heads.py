"""Requests with only a part of their head: their next pieces are read a few connections at a time.

Nearly all heads come in one piece. Hundreds of connections that send parts, each of which takes fresh memory, would
otherwise be read in one round of the event loop, and all other connections would wait for that.
"""

import asyncio
from collections import OrderedDict
from typing import Protocol

AT_ONCE = 4
"""So many connections are read in a round of the event loop: some 0.2 ms."""


class Sender(Protocol):
    """A connection with a part of a head."""

    def pause(self) -> None:
        """Read nothing of it for now."""
        ...

    def read_on(self) -> None:
        """Read a piece."""
        ...


class HalfHeads:
    """Lets such connections read a piece each in turn. Belongs to one event loop."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Sender, None] = OrderedDict()

    def came(self, sender: Sender) -> None:
        """Note a part of a head. The next piece is read when it is the connection's turn."""
        sender.pause()
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._read_on)
        self._waiting[sender] = None

    def gone(self, sender: Sender) -> None:
        """Forget the connection: it is closed, or is to be read as others are."""
        self._waiting.pop(sender, None)

    def _read_on(self) -> None:
        for _ in range(min(AT_ONCE, len(self._waiting))):
            sender, _ = self._waiting.popitem(last=False)
            sender.read_on()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._read_on)
