"""A request in flight, which can be ended without leaving connections open."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import anyio
import httpx


class Exchange:
    """Waits for a response in a task of its own, which is cancelled only through anyio.

    httpcore shields itself from anyio's cancellation while it closes connections. asyncio's cancellation interrupts it
    in the middle, and the connections that it had not closed yet stay open.
    """

    def __init__(self, sending: Coroutine[Any, Any, httpx.Response]) -> None:
        self._scope = anyio.CancelScope()
        self._task = asyncio.create_task(self._run(sending))

    async def _run(self, sending: Coroutine[Any, Any, httpx.Response]) -> httpx.Response | None:
        with self._scope:
            try:
                return await sending
            except AttributeError as failure:
                if _tells_of_a_lost_connection(failure):
                    raise httpx.ConnectError("the connection was closed at once") from failure
                raise
        return None

    async def response(self) -> httpx.Response | None:
        """Return the response, or None if `end` came first. Raises what httpx raises."""
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            await self.end()
            await self._close_unused()
            raise

    async def end(self) -> None:
        """End it, and wait until it has ended."""
        self._scope.cancel()
        await asyncio.wait([self._task])

    async def _close_unused(self) -> None:
        """Close a response that arrived during the cancellation, since no caller takes it."""
        if self._task.cancelled() or self._task.exception() is not None:
            return
        if (response := self._task.result()) is not None:
            await response.aclose()


def _tells_of_a_lost_connection(failure: AttributeError) -> bool:
    """Whether anyio asked uvloop for the peer of a connection that was lost as soon as it was made.

    Then uvloop has no socket to ask. asyncio's own loop still has one, and anyio knows the error of that loop. httpcore
    asks before it sends the first byte, so nothing was sent.
    """
    return failure.name == "getpeername" and failure.obj is None
