"""Asking one after the other, without being held up by one that stays silent."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from filer.clock import Clock, comes_within

T = TypeVar("T")


async def first_answer(
    clock: Clock, asks: Iterable[Callable[[], Coroutine[Any, Any, T | None]]], *, patience_seconds: float
) -> T | None:
    """The first that is not None; None where all of them have answered so.

    The next is asked once those before have answered None, or have taken `patience_seconds`; as soon as one has
    answered the others are cancelled. Raises what one of them raises.
    """
    left = list(asks)
    asked: set[asyncio.Task[T | None]] = set()
    news = asyncio.Event()
    try:
        while left or asked:
            if left:
                task = asyncio.create_task(left.pop(0)())
                task.add_done_callback(lambda _: news.set())
                asked.add(task)
            # All of them have bounds of their own: after the last there is nothing to do but to wait for those.
            await (comes_within(clock, news, patience_seconds) if left else news.wait())
            news.clear()
            for done in [task for task in asked if task.done()]:
                asked.remove(done)
                if (answer := done.result()) is not None:
                    return answer
        return None
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
