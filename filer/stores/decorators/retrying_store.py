"""A store that repeats the calls that are safe to repeat."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from filer.backoff import backoff_seconds
from filer.clock import Clock
from filer.errors import OutcomeUnknown
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.store import Fetched, ObjectInfo, Store

R = TypeVar("R")
# Stores list so many objects with one request.
LIST_PAGE = 1000


class RetryingStore(ForwardingStore):
    """Tries reads, lists and deletes up to `tries` times while their outcome is unknown, with growing pauses.

    It never repeats a write: only the writer knows how to recognise its own earlier try. A read, with all its tries, or
    a page of a listing, takes at most `limit_seconds`, if they are given: a store that hangs must not keep its readers.
    """

    def __init__(
        self,
        inner: Store,
        *,
        clock: Clock,
        tries: int = 5,
        first_pause_seconds: float = 0.1,
        longest_pause_seconds: float = 2,
        limit_seconds: float | None = None,
    ) -> None:
        super().__init__(inner)
        self._limit_seconds = limit_seconds
        self._clock = clock
        self._tries = tries
        self._first_pause_seconds = first_pause_seconds
        self._longest_pause_seconds = longest_pause_seconds

    async def tell_time(self) -> int:
        """As `Store.tell_time`."""
        return await self._repeat(self.inner.tell_time)

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        """As `Store.get`."""
        tries = self._repeat(lambda: self.inner.get(key, start=start, stop=stop))
        return await self._in_time(f"get of {key!r}", tries)

    async def head(self, key: str) -> ObjectInfo:
        """As `Store.head`."""
        return await self._in_time(f"head of {key!r}", self._repeat(lambda: self.inner.head(key)))

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ObjectInfo]:
        """As `Store.list`; a new try continues after the last object that was listed."""
        failures = 0
        while limit is None or limit > 0:
            taken = 0
            try:
                objects = aiter(self.inner.list(prefix, after=after, limit=limit))
                while True:
                    following = anext(objects, None)
                    is_request = taken % LIST_PAGE == 0
                    info = await (self._in_time(f"list of {prefix!r}", following) if is_request else following)
                    if info is None:
                        return
                    yield info
                    after, limit, failures, taken = info.key, None if limit is None else limit - 1, 0, taken + 1
            except _TimeIsOver:
                raise
            except OutcomeUnknown:
                failures += 1
                if failures == self._tries:
                    raise
            await self._pause(failures)

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """As `Store.list_folders`."""
        tries = self._repeat(lambda: self.inner.list_folders(prefix))
        return await self._in_time(f"list_folders of {prefix!r}", tries)

    async def delete(self, keys: Iterable[str]) -> None:
        """As `Store.delete`."""
        names = tuple(keys)
        await self._repeat(lambda: self.inner.delete(names))

    async def _in_time(self, what: str, work: Awaitable[R]) -> R:
        """The result of the work. Raises `OutcomeUnknown` if it takes longer than the limit."""
        if self._limit_seconds is None:
            return await work
        limit = asyncio.timeout(self._limit_seconds)
        try:
            async with limit:
                return await work
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise _TimeIsOver(f"{what}: no answer within {self._limit_seconds:g} s", cause="timeout") from error

    async def _repeat(self, call: Callable[[], Awaitable[R]]) -> R:
        for failures in range(1, self._tries):
            try:
                return await call()
            except OutcomeUnknown:
                await self._pause(failures)
        return await call()

    async def _pause(self, failures: int) -> None:
        """Sleep between half and all of a time that doubles: callers that failed together do not retry together."""
        pause = backoff_seconds(
            failures, first_seconds=self._first_pause_seconds, longest_seconds=self._longest_pause_seconds
        )
        jitter = int.from_bytes(self._clock.entropy(4), "big") / 2**32
        await self._clock.sleep(pause * (1 + jitter) / 2)


class _TimeIsOver(OutcomeUnknown):
    """A read took longer than its limit, so it is not tried again."""
