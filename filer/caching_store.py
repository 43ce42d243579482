"""A store that keeps what was read lately, of objects that never change."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable

from filer.byte_range import resolve_range
from filer.forwarding_store import ForwardingStore
from filer.store import Fetched, Store

# What an entry costs beside its bytes, so that many small ones are bounded too.
ENTRY_OVERHEAD_BYTES = 512
_Range = tuple[int, int | None]
_WHOLE: _Range = (0, None)


class CachingStore(ForwardingStore):
    """Keeps up to `capacity_bytes` of reads, the least recently used go first.

    `immutable` tells by its key whether an object never changes once it is there; only those are kept. Reads of
    the same bytes at the same time become one.
    """

    def __init__(self, inner: Store, *, capacity_bytes: int, immutable: Callable[[str], bool]) -> None:
        super().__init__(inner)
        self._capacity_bytes = capacity_bytes
        self._immutable = immutable
        self._entries: OrderedDict[tuple[str, _Range], Fetched] = OrderedDict()
        self._ranges: dict[str, set[_Range]] = {}
        self._reading: dict[tuple[str, _Range], asyncio.Task[Fetched]] = {}
        self.size_bytes = 0

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        """As `Store.get`."""
        if not self._immutable(key):
            return await self.inner.get(key, start=start, stop=stop)
        kept = self._find(key, start, stop)
        if kept is not None:
            return kept
        wanted = (key, (start, stop))
        reading = self._reading.get(wanted)
        if reading is None:
            reading = asyncio.create_task(self._read(key, start, stop))
            self._reading[wanted] = reading
            reading.add_done_callback(lambda done: self._finish(wanted, done))
        # Whoever is cancelled while waiting does not take the others' answer away.
        return await asyncio.shield(reading)

    async def delete(self, keys: Iterable[str]) -> None:
        """As `Store.delete`; forgets them as well."""
        names = tuple(keys)
        for key in names:
            for part in tuple(self._ranges.get(key, ())):
                self._drop(key, part)
        await self.inner.delete(names)

    async def close(self) -> None:
        """Forget everything, and as `Store.close`."""
        for reading in tuple(self._reading.values()):
            reading.cancel()
        self._entries.clear()
        self._ranges.clear()
        self.size_bytes = 0
        await self.inner.close()

    def _find(self, key: str, start: int, stop: int | None) -> Fetched | None:
        """The part as it was read before, or cut out of the whole object."""
        kept = self._entries.get((key, (start, stop)))
        if kept is not None:
            self._entries.move_to_end((key, (start, stop)))
            return kept
        whole = self._entries.get((key, _WHOLE))
        if whole is None:
            return None
        self._entries.move_to_end((key, _WHOLE))
        first, last = resolve_range(start, stop, len(whole.data))
        return Fetched(whole.data[first:last], whole.info)

    async def _read(self, key: str, start: int, stop: int | None) -> Fetched:
        return await self.inner.get(key, start=start, stop=stop)

    def _finish(self, wanted: tuple[str, _Range], done: asyncio.Task[Fetched]) -> None:
        del self._reading[wanted]
        if not done.cancelled() and done.exception() is None:
            self._keep(*wanted, done.result())

    def _keep(self, key: str, part: _Range, fetched: Fetched) -> None:
        cost_bytes = len(fetched.data) + ENTRY_OVERHEAD_BYTES
        if cost_bytes > self._capacity_bytes:
            return
        self._entries[key, part] = fetched
        self._ranges.setdefault(key, set()).add(part)
        self.size_bytes += cost_bytes
        while self.size_bytes > self._capacity_bytes:
            self._drop(*next(iter(self._entries)))

    def _drop(self, key: str, part: _Range) -> None:
        dropped = self._entries.pop((key, part))
        self.size_bytes -= len(dropped.data) + ENTRY_OVERHEAD_BYTES
        parts = self._ranges[key]
        parts.discard(part)
        if not parts:
            del self._ranges[key]
