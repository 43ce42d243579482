"""An event that happens again and again, and tasks that wait for its next occurrence."""

import asyncio


class Wakeup:
    """Wakes all tasks that wait for the next occurrence."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def next(self) -> asyncio.Future[None]:
        """Return a future that is done at the next `wake`. Many tasks share it: wait for it without cancelling it."""
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_future()
        return self._next

    def wake(self) -> None:
        """Wake all tasks that wait now. The next one to wait gets a new future."""
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
