"""How many messages a client still takes: it says so, and gets no more."""

import asyncio

from filer.errors import InvalidInput

MOST_CREDIT = 1_000_000


class Credit:
    """That of one subscription."""

    def __init__(self, given: int = 0) -> None:
        self.left = 0
        self._more = asyncio.Event()
        self.give(given)

    def give(self, messages: int) -> None:
        """The client takes so many more. Raises `InvalidInput` where that is beyond the limit."""
        if self.left + messages > MOST_CREDIT:
            raise InvalidInput(f"credit: {self.left} are left of what was given, and {MOST_CREDIT} may be at most")
        self.left += messages
        if self.left:
            self._more.set()

    def spend(self, messages: int) -> None:
        """The client has been sent so many."""
        self.left = max(self.left - messages, 0)
        if not self.left:
            self._more.clear()

    async def some(self) -> None:
        """Return once there is any."""
        await self._more.wait()
