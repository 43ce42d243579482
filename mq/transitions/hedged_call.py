"""Hedged calls: ask one broker after the other, without waiting long for one that stays silent."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from filer.clock import Clock, comes_within
from mq.base.end_tasks import end_tasks

T = TypeVar("T")


async def hedged_call(
    clock: Clock, calls: Iterable[Callable[[], Coroutine[Any, Any, T | None]]], *, patience_seconds: float
) -> T | None:
    """Return the first result that is not None; None once all calls have returned None.

    The next call starts when all calls so far have returned None, or after `patience_seconds`. The first result cancels
    the other calls. Raises what a call raises.
    """
    waiting = list(calls)
    running: set[asyncio.Task[T | None]] = set()
    ended = asyncio.Event()
    try:
        while waiting or running:
            if waiting:
                running.add(_begun(waiting.pop(0), ended))
            # Each call has a time limit of its own: after the last one has started, wait for as long as that takes.
            await (comes_within(clock, ended, patience_seconds) if waiting else ended.wait())
            ended.clear()
            for done in [task for task in running if task.done()]:
                running.remove(done)
                try:
                    if (result := done.result()) is not None:
                        return result
                finally:
                    del done  # see `end_tasks`
        return None
    finally:
        await end_tasks(running)
        del running


def _begun(call: Callable[[], Coroutine[Any, Any, T | None]], ended: asyncio.Event) -> "asyncio.Task[T | None]":
    task = asyncio.create_task(call())
    task.add_done_callback(lambda _: ended.set())
    return task
