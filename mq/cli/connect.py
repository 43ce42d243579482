"""Run a command's coroutine with a client."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from braidmq import AsyncClient
from braidmq.transport.patience import patience
from braidmq.transport.retry import NEVER_GIVE_UP, Retry
from filer.clock import Clock, SystemClock
from mq.cli.interrupts import INTERRUPTS
from mq.cli.output import until_closed
from mq.cli.streams import OutputClosed
from mq.cli.waiting import tell_waiting

T = TypeVar("T")
# The command reports a wait on stderr, for as long as it lasts.
logging.getLogger("braidmq.transport").addHandler(logging.NullHandler())


def with_client(
    url: str,
    timeout_seconds: float | None,
    work: Callable[[AsyncClient], Coroutine[Any, Any, T]],
    *,
    ends_with_reader: bool = False,
    is_patient: bool = False,
) -> T:
    """Run `work` with a client for the broker at `url`, close the client, and return the result.

    Meanwhile report on stderr if no broker answers. `timeout_seconds` is the value of `--timeout`. With
    `ends_with_reader`, raise `OutputClosed` as soon as stdout has no reader any more. A command that `is_patient` waits
    for its brokers without `timeout_seconds` even if none has ever answered.
    """
    clock = SystemClock()
    settings = patience(timeout_seconds)
    if is_patient and timeout_seconds is None:
        settings["retry"] = Retry(give_up_after_seconds=NEVER_GIVE_UP, for_all_calls=True)

    async def run() -> T:
        async with AsyncClient(url, **settings) as client, _beside(tell_waiting(client, clock)):
            if ends_with_reader:
                return await _while_read(work(client), clock)
            return await work(client)

    return INTERRUPTS.run(run())


@asynccontextmanager
async def _beside(task: Coroutine[Any, Any, None]) -> AsyncIterator["asyncio.Task[None]"]:
    """Run a task during the block."""
    running = asyncio.create_task(task)
    try:
        yield running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _while_read(work: Coroutine[Any, Any, T], clock: Clock) -> T:
    """Return the result of the work. Raises `OutputClosed` if the reader of stdout closes it before."""
    working = asyncio.create_task(work)
    try:
        async with _beside(until_closed(clock)) as closed:
            await asyncio.wait([working, closed], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise OutputClosed
            return working.result()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
