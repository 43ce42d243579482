"""Use a blocking iterator from asyncio: a thread makes the next item while the last one is in use."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def read_ahead(items: Iterator[T]) -> AsyncIterator[T]:
    """Yield the items in order.

    The threads are daemons, unlike those of asyncio's own pool: a thread that waits for the next line of a terminal
    must not delay the end of the process.
    """
    upcoming = _next(items)
    while (item := await upcoming) is not None:
        upcoming = _next(items)
        yield item


def _next(items: Iterator[T]) -> "asyncio.Future[T | None]":
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T | None] = loop.create_future()

    def fetch() -> None:
        try:
            item = next(items, None)
        except Exception as error:
            _call(loop, _fail, future, error)
        else:
            _call(loop, _finish, future, item)

    threading.Thread(target=fetch, name="mq read-ahead", daemon=True).start()
    return future


def _call(loop: asyncio.AbstractEventLoop, work: Callable[[Any, Any], None], future: Any, outcome: Any) -> None:
    with suppress(RuntimeError):  # the loop has ended in the meantime
        loop.call_soon_threadsafe(work, future, outcome)


def _finish(future: "asyncio.Future[T | None]", item: T | None) -> None:
    if not future.done():
        future.set_result(item)


def _fail(future: "asyncio.Future[T | None]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
