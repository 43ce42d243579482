"""Sends a request once more, on a new connection, while no answer comes.

A connection that loses its packets (a load balancer's node ended, a path broke) reports nothing: the caller waits for a
whole time-out, although the store is there. So after a while the same request goes out on a new connection as well.
This is only for requests that may be served twice: reads, and conditional puts if the stored object names its writer.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from botocore.exceptions import ClientError

from filer.event_log import EventLog
from filer.stores.s3.s3_errors import is_temporary

R = TypeVar("R")
Send = Callable[[bool], Awaitable[R]]
"""Sends the request; on a new connection if that is true."""
CLOSING_SECONDS = 1.0

_log = EventLog(__name__)


async def first_answer(
    send: Send[R], key: str, *, after_seconds: float, discard: Callable[[R], Awaitable[None]] | None = None
) -> R:
    """The first answer to a request, which goes out again whenever none has come for `after_seconds`.

    The first try goes on: a slow store answers it in the end. Of the later tries only the newest goes on, so there are
    two at a time. A try that fails without an answer is dropped while the other one is under way. Raises the error of
    the last try. An answer that came too late goes to `discard`.
    """
    tries: list[asyncio.Task[R]] = [_try(send, is_new=False)]
    try:
        while True:
            done, _ = await asyncio.wait(tries, timeout=after_seconds, return_when=asyncio.FIRST_COMPLETED)
            for each in [each for each in tries if each in done]:
                if len(tries) == 1 or _is_answer(each):
                    tries.remove(each)
                    return await each
                tries.remove(each)
            if not done:
                _log.info("request_sent_again", key=key, after_seconds=after_seconds)
                # Beside the first, only the newest connection is tried: an older one may lose its packets as well.
                await _end(tries[1:], discard)
                tries[1:] = [_try(send, is_new=True)]
    finally:
        await _end(tries, discard)


def _try(send: Send[R], *, is_new: bool) -> "asyncio.Task[R]":
    async def run() -> R:
        return await send(is_new)

    return asyncio.create_task(run(), name="request to S3")


def _is_answer(done: "asyncio.Task[R]") -> bool:
    """Whether the store has answered: with the result, or with an error that decides the request."""
    error = done.exception()
    return error is None or (isinstance(error, ClientError) and not is_temporary(error))


async def _end(tries: "list[asyncio.Task[R]]", discard: Callable[[R], Awaitable[None]] | None) -> None:
    """Cancel these tries, which closes their connections. None of their errors is reported as never retrieved."""
    for each in tries:
        each.cancel()
    if tries:
        await asyncio.wait(tries, timeout=CLOSING_SECONDS)
    for each in tries:
        if each.done() and not each.cancelled() and each.exception() is None and discard is not None:
            await discard(each.result())
