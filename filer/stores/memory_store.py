"""A store in the memory of this process, for tests of BraidMQ and of its users."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from filer.clock import Clock, SystemClock
from filer.errors import EtagMismatch, ObjectExists, ObjectNotFound
from filer.stores.byte_range import resolve_range
from filer.stores.exact_stream import ExactStream
from filer.stores.object_keys import check_folder, check_key, check_prefix
from filer.stores.store import Data, Fetched, MakeData, ObjectInfo, PresignedRequest, StoreTraits
from filer.stores.store_time import StoreTime

_TRAITS = StoreTraits(puts_are_billed=False, puts_at_once=1)


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    info: ObjectInfo


class MemoryStore:
    """Objects in a dict. They are lost when the process ends, and no other process can see them.

    For one event loop only: a call does not yield to other tasks before it is done.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._objects: dict[str, _Object] = {}
        # Python orders strings by code point, which is also the order of their UTF-8 bytes.
        self._keys: list[str] = []
        self._writes = 0
        self._time = StoreTime()

    @property
    def traits(self) -> StoreTraits:
        """A put is a copy in memory."""
        return _TRAITS

    @property
    def time(self) -> StoreTime:
        """The time of the clock that it was given, at its last call."""
        return self._time

    async def tell_time(self) -> int:
        """As `Store.tell_time`."""
        now_us = self._clock.now_us()
        self._time.record(now_us)
        return now_us

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        """As `Store.create`; drops the metadata."""
        contents = bytes(data() if callable(data) else data)
        self._time.record(self._clock.now_us())
        if check_key(key) in self._objects:
            raise ObjectExists(f"{key} exists already")
        insort(self._keys, key)
        self._put(key, contents)

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        """As `Store.replace`."""
        self._time.record(self._clock.now_us())
        found = self._objects.get(check_key(key))
        if found is None or found.info.etag != etag:
            raise EtagMismatch(f"{key} has changed since it was read, or is gone")
        return self._put(key, bytes(data)).etag

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        """As `Store.get`."""
        found = self._find(key)
        first, last = resolve_range(start, stop, found.info.size_bytes)
        return Fetched(found.data[first:last], found.info)

    async def head(self, key: str) -> ObjectInfo:
        """As `Store.head`."""
        return self._find(key).info

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ObjectInfo]:
        """As `Store.list`; never lags behind."""
        check_prefix(prefix)
        position = bisect_left(self._keys, prefix)
        if after is not None:
            position = max(position, bisect_right(self._keys, after))
        given = 0
        while position < len(self._keys) and (limit is None or given < limit):
            key = self._keys[position]
            if not key.startswith(prefix):
                return
            yield self._objects[key].info
            given += 1
            # Keys may have been added or removed meanwhile: find the position again.
            position = bisect_right(self._keys, key)

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """As `Store.list_folders`."""
        check_folder(prefix)
        parts = (key[len(prefix) :].split("/", 1) for key in self._keys if key.startswith(prefix))
        return sorted({first for first, *rest in parts if rest})

    async def delete(self, keys: Iterable[str]) -> None:
        """As `Store.delete`."""
        for key in keys:
            if self._objects.pop(check_key(key), None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    async def create_from_stream(
        self, key: str, chunks: AsyncIterator[bytes], *, size_bytes: int, sha256: str | None
    ) -> str:
        """As `StreamingStore.create_from_stream`; holds the whole object in memory, as it does every object."""
        stream = ExactStream(size_bytes=size_bytes, sha256=sha256)
        data = bytearray()
        async for chunk in chunks:
            stream.add(chunk)
            data += chunk
        digest = stream.finish()
        await self.create(key, data)
        return digest

    async def presign_get(self, key: str, *, expires_seconds: int) -> PresignedRequest | None:
        """None: no other process can reach this memory."""
        return None

    async def presign_create(
        self, key: str, *, size_bytes: int, sha256: str | None, expires_seconds: int
    ) -> PresignedRequest | None:
        """None: no other process can reach this memory."""
        return None

    def uri(self, key: str) -> str:
        """`memory:///<key>`. It distinguishes objects, and no program can open it."""
        return f"memory:///{check_key(key)}"

    async def close(self) -> None:
        """Do nothing: the objects stay readable."""

    def _find(self, key: str) -> _Object:
        self._time.record(self._clock.now_us())
        found = self._objects.get(check_key(key))
        if found is None:
            raise ObjectNotFound(f"there is no object {key}")
        return found

    def _put(self, key: str, data: bytes) -> ObjectInfo:
        self._writes += 1
        info = ObjectInfo(key, len(data), str(self._writes), self._clock.now_us())
        self._time.record(info.modified_us)
        self._objects[key] = _Object(data, info)
        return info
