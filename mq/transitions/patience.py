"""How long a request waits for a transition that waits for a stalled store."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from filer.clock import Clock, comes_within
from filer.stores.decorators.store_health import StoreHealth
from mq.base.errors import Repeatable, StoreTimeout

T = TypeVar("T")

_LOOK_AGAIN_SECONDS = 1.0


class Patience:
    """Answers requests after `timeout_seconds` if the store stalls then; their work goes on.

    Before a segment is sealed, all messages accepted for it are stored, however long that takes. Clients would give up
    before, and not learn the reason.
    """

    def __init__(self, clock: Clock, health: StoreHealth, timeout_seconds: float) -> None:
        self._clock, self._health, self._timeout_seconds = clock, health, timeout_seconds
        self._going_on: set[asyncio.Task[Any]] = set()

    async def wait(self, work: Coroutine[Any, Any, T], what: str) -> T:
        """Return the result of the work, which may be repeated and stopped at any line, as a transition may.

        Raises the errors of the work, and `Repeatable`, with the cause, if it goes on without its caller.
        """
        task = asyncio.create_task(work, name=what)
        ended = asyncio.Event()
        task.add_done_callback(lambda _: ended.set())
        try:
            seconds = self._timeout_seconds
            while not await comes_within(self._clock, ended, seconds):
                if (stall := self._health.why()) is not None:
                    self._let_go_on(task)
                    told = f"{what} waits for the store: {stall}; it goes on by itself, and may be asked for again"
                    raise Repeatable(StoreTimeout(told, cause=stall.cause))
                seconds = _LOOK_AGAIN_SECONDS
            return await task
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            del task  # see `end_tasks`: else what it raised, and all that the request holds, would stay

    async def close(self) -> None:
        """Stop the work that goes on: the topic's record names it, and the next broker to read that finishes it."""
        for task in list(self._going_on):
            task.cancel()
        await asyncio.gather(*self._going_on, return_exceptions=True)

    def _let_go_on(self, task: asyncio.Task[Any]) -> None:
        self._going_on.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._going_on.discard(task)
        if not task.cancelled():
            # Mark it as retrieved: no caller waits for it any more, and the executor repairs it.
            task.exception()
