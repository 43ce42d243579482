"""Run a command's coroutine with a client."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import uvloop

from braidmq import AsyncClient

T = TypeVar("T")


def with_client(url: str, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
    """Run `work` with a client for the broker at `url`, close the client, and return the result."""

    async def run() -> T:
        async with AsyncClient(url) as client:
            return await work(client)

    return uvloop.run(run())
