"""How long publishers wait for the store.

A store that hangs would keep them, and their connections, for ever. After the time limit each of them gets an error
that names the cause. The messages stay where they are: the owner still stores them, in order, when the store is back.
So the outcome is unknown, and the room that the messages take in the front store stays reserved.

A broker that ends although the store has not taken everything ends all of this: waiting publishers get that error then.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from filer.stores.decorators.store_health import StoreHealth
from mq.base.errors import Repeatable, StoreTimeout

# Requests that begin within this share of the time limit expire together: a timer for each would slow each publish.
TOGETHER_SHARE = 0.05


class DeadlineGroup:
    """The futures of requests that expire at the same moment. A request removes its future again."""

    __slots__ = ("expired", "expires_seconds", "limits", "waiters")

    def __init__(self, expires_seconds: float) -> None:
        self.waiters: set[asyncio.Future[Any]] = set()
        self.limits: set[asyncio.Timeout] = set()
        self.expires_seconds, self.expired = expires_seconds, False


class PublishDeadlines:
    """Fails the futures of publishes that have waited for `timeout_seconds`. Belongs to one event loop.

    `on_expired` is called right after some have failed: their messages take room that no request holds any more.
    """

    def __init__(self, timeout_seconds: float, health: StoreHealth, *, on_expired: Callable[[], None]) -> None:
        self.timeout_seconds = timeout_seconds
        self._health, self._on_expired = health, on_expired
        self._newest: DeadlineGroup | None = None
        self._running: set[DeadlineGroup] = set()
        self._ended = False

    def group(self) -> DeadlineGroup:
        """Return the group of requests that begin now. Raises `Repeatable` after `end`: appending is over then."""
        return self._newest or self._begin_group()

    def end(self) -> None:
        """Make all requests expire now, and later ones at once: the process ends.

        Safe at any moment, like the end of a time limit: no publisher is told that messages are stored, or that they
        are not unless they were never appended.
        """
        self._ended = True
        now_seconds = asyncio.get_running_loop().time()
        for group in list(self._running):
            group.expires_seconds = now_seconds
            for limit in group.limits:
                limit.reschedule(now_seconds)
            self._expire(group)
        self._close_group()

    @contextlib.asynccontextmanager
    async def within(self, group: DeadlineGroup) -> AsyncIterator[None]:
        """A context for work before anything is appended. Raises `Repeatable` when the group's time is over."""
        limit = asyncio.timeout_at(group.expires_seconds)
        try:
            async with limit:
                group.limits.add(limit)
                try:
                    yield
                finally:
                    group.limits.discard(limit)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise self.nothing_stored() from error

    def nothing_stored(self) -> Repeatable:
        """Return the error of a request without stored messages, and without any that still wait to be stored."""
        why, cause = self._why()
        return Repeatable(StoreTimeout(f"{why}; nothing of this was stored: send it again", cause=cause))

    def _begin_group(self) -> DeadlineGroup:
        if self._ended:
            raise self.nothing_stored()
        loop = asyncio.get_running_loop()
        together_seconds = self.timeout_seconds * TOGETHER_SHARE
        group = self._newest = DeadlineGroup(loop.time() + self.timeout_seconds + together_seconds)
        self._running.add(group)
        loop.call_later(together_seconds, self._close_group)
        loop.call_at(group.expires_seconds, self._expire, group)
        return group

    def _close_group(self) -> None:
        self._newest = None

    def _expire(self, group: DeadlineGroup) -> None:
        group.expired = True
        self._running.discard(group)
        late = [waiter for waiter in group.waiters if not waiter.done()]
        group.waiters.clear()
        if not late:
            return
        why, cause = self._why()
        unknown = (
            "whether it is stored is not known"
            if self._ended
            else "whether it will be stored is not known: it is kept in memory, and stored when the store is back"
        )
        message = f"{why}; {unknown}. Sent again without a producer and a sequence, it may be stored twice"
        for waiter in late:
            waiter.set_exception(StoreTimeout(message, cause=cause))
            # Mark it as retrieved: its publisher may be gone.
            waiter.exception()
        self._on_expired()

    def _why(self) -> tuple[str, str]:
        stall = self._health.why()
        told = (
            "not stored before this broker ended"
            if self._ended
            else f"not stored within {self.timeout_seconds:g} s (publish_timeout)"
        )
        if stall is None:
            return f"{told}: no answer from the store, or from the owner of the segment", "timeout"
        return f"{told}: {stall}", stall.cause
