"""A store in this process's memory, for tests: those of BraidMQ and those of its users."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from filer.byte_range import resolve_range
from filer.clock import Clock, SystemClock
from filer.errors import EtagMismatch, ObjectExists, ObjectNotFound
from filer.exact_stream import ExactStream
from filer.object_keys import check_folder, check_key, check_prefix
from filer.store import Data, Fetched, MakeData, ObjectInfo, PresignedRequest


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    info: ObjectInfo


class MemoryStore:
    """Objects in a dict. Everything is lost with the process; nothing is shared with another one.

    For one event loop: no call gives way to other tasks half-done.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._objects: dict[str, _Object] = {}
        # Python orders strings by code point, which is the order of their UTF-8 bytes too.
        self._keys: list[str] = []
        self._writes = 0

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        """As `Store.create`; the metadata is dropped."""
        contents = bytes(data() if callable(data) else data)
        if check_key(key) in self._objects:
            raise ObjectExists(f"{key} exists already")
        insort(self._keys, key)
        self._put(key, contents)

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        """As `Store.replace`."""
        found = self._objects.get(check_key(key))
        if found is None or found.info.etag != etag:
            raise EtagMismatch(f"{key} has changed since it was read, or gone")
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
            # Keys may have come and gone meanwhile, so the position is found again.
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
        """As `StreamingStore.create_from_stream`; the whole object is held in memory, like any other here."""
        stream = ExactStream(size_bytes=size_bytes, sha256=sha256)
        data = bytearray()
        async for chunk in chunks:
            stream.add(chunk)
            data += chunk
        digest = stream.finish()
        await self.create(key, data)
        return digest

    async def presign_get(self, key: str, *, expires_seconds: int) -> PresignedRequest | None:
        """None: nobody else can reach this memory."""
        return None

    async def presign_create(
        self, key: str, *, size_bytes: int, sha256: str | None, expires_seconds: int
    ) -> PresignedRequest | None:
        """None: nobody else can reach this memory."""
        return None

    def uri(self, key: str) -> str:
        """`memory:///<key>`, which only tells objects apart."""
        return f"memory:///{check_key(key)}"

    async def close(self) -> None:
        """Nothing to let go of: the objects stay readable."""

    def _find(self, key: str) -> _Object:
        found = self._objects.get(check_key(key))
        if found is None:
            raise ObjectNotFound(f"there is no object {key}")
        return found

    def _put(self, key: str, data: bytes) -> ObjectInfo:
        self._writes += 1
        info = ObjectInfo(key, len(data), str(self._writes), self._clock.now_us())
        self._objects[key] = _Object(data, info)
        return info
