"""Work for brokers while a fault lasts: requests that may fail."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx

PAUSE_SECONDS = 0.2


@contextlib.asynccontextmanager
async def repeated(*works: Callable[[], Awaitable[Any]], pause_seconds: float = PAUSE_SECONDS) -> AsyncIterator[None]:
    """Do each again and again in the background; that it is not answered is no failure."""

    async def repeat(work: Callable[[], Awaitable[Any]]) -> None:
        while True:
            with contextlib.suppress(httpx.TransportError):
                await work()
            await asyncio.sleep(pause_seconds)

    tasks = [asyncio.create_task(repeat(work)) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def messages(count: int, value: Any = 1) -> dict[str, Any]:
    """The body of a publish."""
    return {"messages": [{"key": str(number), "value": value} for number in range(count)]}
