"""Running a command's coroutine against a broker."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import uvloop

from braidmq import AsyncClient

T = TypeVar("T")


def with_client(url: str, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
    """The result of `work`, given a client of that broker; the client is closed afterwards."""

    async def run() -> T:
        async with AsyncClient(url) as client:
            return await work(client)

    return uvloop.run(run())
