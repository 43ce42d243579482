"""Work for a client that may go away before it is done."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from mq.base.end_tasks import end_tasks
from mq.bodies.intake import ClientGone
from mq.limits.turns import Line
from mq.security.standing import Over, is_over

T = TypeVar("T")
NOBODY_READS = 499
"""No status is defined for it. This is the one of nginx, which shows in the access log."""


async def until_gone(
    receive: Receive, work: Coroutine[Any, Any, T], turns: Line | None = None, *, over: Over | None = None
) -> T:
    """The result of the work. Cancels it if the client goes away. Call this once the request's body has been read.

    With `turns` it cancels in a turn: hundreds of clients may go away at once. Raises `ClientGone`, and the reason if
    the permission is `over` before.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_leave(receive, turns))
    awaited: list[asyncio.Future[Any]] = [working, leaving, *([] if over is None else [over])]
    try:
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise is_over(over) or ClientGone
        return working.result()
    finally:
        await end_tasks((working, leaving))
        del working, awaited


async def _leave(receive: Receive, turns: Line | None) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    if turns is not None:
        await turns.wait()
