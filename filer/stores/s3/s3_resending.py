"""Sends a request once more, on a new connection, while the answer to it does not come.

A connection whose packets get lost (a load balancer's node that ended, a path that broke) says nothing: whoever waits
for it waits for a whole time-out, although the store is there. So after a while the same request goes out on a new
connection as well. It is only for requests that may be served twice: reads, and conditional puts whose writer is
recognised by what is stored.
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

    The first try goes on: a store that is slow answers it in the end. Of the later ones only the newest does, so there
    are two at a time. A try that fails without an answer is left out while the other one is under way. Raises what the
    last one raised. An answer that came too late goes to `discard`.
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
                # Only the newest line is tried besides the first: an older one may lead into the same hole.
                await _end(tries[1:], discard)
                tries[1:] = [_try(send, is_new=True)]
    finally:
        await _end(tries, discard)


def _try(send: Send[R], *, is_new: bool) -> "asyncio.Task[R]":
    async def run() -> R:
        return await send(is_new)

    return asyncio.create_task(run(), name="request to S3")


def _is_answer(done: "asyncio.Task[R]") -> bool:
    """Whether the store has answered: with what was asked for, or with an error that says what it is."""
    error = done.exception()
    return error is None or (isinstance(error, ClientError) and not is_temporary(error))


async def _end(tries: "list[asyncio.Task[R]]", discard: Callable[[R], Awaitable[None]] | None) -> None:
    """Cancel what is under way, which closes its connection, and have no error of it be reported as forgotten."""
    for each in tries:
        each.cancel()
    if tries:
        await asyncio.wait(tries, timeout=CLOSING_SECONDS)
    for each in tries:
        if each.done() and not each.cancelled() and each.exception() is None and discard is not None:
            await discard(each.result())
