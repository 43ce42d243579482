"""The store of a process that is killed at a chosen request. That one takes effect or not; no later one does."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.store import Data, Fetched, MakeData, ObjectInfo, Store

R = TypeVar("R")


class Killed(Exception):
    """The process has ended."""


class DyingStore(ForwardingStore):
    """Counts requests, and dies at a chosen one. If that is a delete, half of it takes effect."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._at, self._before = -1, True
        self.requests = 0
        self.dead = False

    def die_at(self, request: int, *, before: bool) -> "DyingStore":
        """Die before or after a request, counted from 0 starting now."""
        self._at, self._before = self.requests + request, before
        return self

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        await self._live(lambda: self.inner.create(key, data, metadata=metadata))

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        return await self._live(lambda: self.inner.replace(key, data, etag=etag))

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        return await self._live(lambda: self.inner.get(key, start=start, stop=stop))

    async def head(self, key: str) -> ObjectInfo:
        return await self._live(lambda: self.inner.head(key))

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ObjectInfo]:
        listed = [info async for info in self.inner.list(prefix, after=after, limit=limit)]
        await self._live(_nothing)
        for info in listed:
            yield info

    async def delete(self, keys: Iterable[str]) -> None:
        names = list(keys)
        if self.requests == self._at and not self._before:
            await self.inner.delete(names[: len(names) // 2])
            self._before = True
        await self._live(lambda: self.inner.delete(names))

    async def _live(self, call: Callable[[], Awaitable[R]]) -> R:
        number = self.requests
        self.requests += 1
        self.dead = self.dead or (self._before and number == self._at)
        if self.dead:
            raise Killed
        try:
            return await call()
        finally:
            if number == self._at:
                self.dead = True
                raise Killed


async def _nothing() -> None:
    return None
