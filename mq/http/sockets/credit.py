"""The number of messages that a client still takes. The client sets it, and gets no more."""

import asyncio

from filer.errors import InvalidInput

MOST_CREDIT = 1_000_000


class Credit:
    """The credit of one subscription."""

    def __init__(self, given: int = 0) -> None:
        self.left = 0
        self._more = asyncio.Event()
        self.give(given)

    def give(self, messages: int) -> None:
        """Add so many messages. Raises `InvalidInput` if that is beyond the limit."""
        if self.left + messages > MOST_CREDIT:
            raise InvalidInput(f"credit: {self.left} are left of what was given, and {MOST_CREDIT} may be at most")
        self.left += messages
        if self.left:
            self._more.set()

    def spend(self, messages: int) -> None:
        """Subtract messages that were sent to the client."""
        self.left = max(self.left - messages, 0)
        if not self.left:
            self._more.clear()

    async def some(self) -> None:
        """Return once there is any credit."""
        await self._more.wait()
