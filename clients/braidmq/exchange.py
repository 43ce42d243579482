"""A request under way, which can be ended without leaving connections open."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import anyio
import httpx


class Exchange:
    """Waits for a response in a task of its own, which only anyio's way of cancelling ends.

    From that httpcore shields itself while it closes connections. asyncio's own takes it away in the middle, and those
    that were to be closed next are left open.
    """

    def __init__(self, sending: Coroutine[Any, Any, httpx.Response]) -> None:
        self._scope = anyio.CancelScope()
        self._task = asyncio.create_task(self._run(sending))

    async def _run(self, sending: Coroutine[Any, Any, httpx.Response]) -> httpx.Response | None:
        with self._scope:
            return await sending
        return None

    async def response(self) -> httpx.Response | None:
        """The response; None where the exchange was ended before. Raises what httpx raises."""
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            await self.end()
            await self._close_left()
            raise

    async def end(self) -> None:
        """Have it end, and wait for that."""
        self._scope.cancel()
        await asyncio.wait([self._task])

    async def _close_left(self) -> None:
        """A response may have come at the very moment of the cancelling, and nobody takes it."""
        if self._task.cancelled() or self._task.exception() is not None:
            return
        if (left := self._task.result()) is not None:
            await left.aclose()
