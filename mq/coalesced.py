"""Doing something once for however many ask for it."""

import asyncio
from collections.abc import Awaitable, Callable


class Coalesced:
    """Calls of `work` that begin after they were asked for: whoever asks while one is under way shares the next.

    Who gives up waiting keeps it from nobody else.
    """

    def __init__(self, work: Callable[[], Awaitable[None]], *, name: str) -> None:
        self._work, self._name = work, name
        self._under_way: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def __call__(self) -> None:
        """Have it done from now on; raises what it raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._run(self._under_way), name=self._name)
            self._next.add_done_callback(_retrieve)
        await asyncio.shield(self._next)

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = [task for task in (self._under_way, self._next) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait([before])
        self._under_way, self._next = self._next, None
        await self._work()


def _retrieve(task: "asyncio.Task[None]") -> None:
    if not task.cancelled():
        task.exception()  # whoever asked has been told
