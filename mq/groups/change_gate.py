"""The order of changes to groups: one at a time for each group, and none while a checkpoint is written."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class ChangeGate:
    """Groups are created and reset side by side: each waits for a record to be stored, and records share files."""

    def __init__(self) -> None:
        self._entry = asyncio.Lock()
        # A lock exists as long as a change holds it or waits for it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def inside(self) -> int:
        """How many changes are under way, including those that wait for another one of the same group."""
        return self._inside

    @asynccontextmanager
    async def change(self, key: str) -> AsyncIterator[None]:
        """Change one group: after all earlier changes of the same group, and after a checkpoint under way."""
        async with self._entry:
            self._inside += 1
            self._empty.clear()
        try:
            lock = self._locks.setdefault(key, asyncio.Lock())
            async with lock:
                yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @asynccontextmanager
    async def checkpoint(self) -> AsyncIterator[None]:
        """Wait until no change is under way, and let none begin meanwhile."""
        async with self._entry:
            await self._empty.wait()
            yield
