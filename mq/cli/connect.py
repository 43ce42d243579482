"""Run a command's coroutine with a client."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import uvloop

from braidmq import AsyncClient
from braidmq.transport.patience import patience
from filer.clock import SystemClock
from mq.cli.waiting import tell_waiting

T = TypeVar("T")


def with_client(url: str, timeout_seconds: float | None, work: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
    """Run `work` with a client for the broker at `url`, close the client, and return the result.

    Meanwhile tell on stderr if no broker answers. `timeout_seconds` is what `--timeout` says.
    """
    clock = SystemClock()

    async def run() -> T:
        async with AsyncClient(url, **patience(timeout_seconds)) as client, _beside(tell_waiting(client, clock)):
            return await work(client)

    return uvloop.run(run())


@asynccontextmanager
async def _beside(task: Coroutine[Any, Any, None]) -> AsyncIterator["asyncio.Task[None]"]:
    """Run a task during the block."""
    running = asyncio.create_task(task)
    try:
        yield running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
