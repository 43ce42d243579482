"""The base of every decorator: it passes each call on to the store it wraps."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

from filer.stores.store import Data, Fetched, MakeData, ObjectInfo, PresignedRequest, Store, StoreTraits
from filer.stores.store_time import StoreTime


class ForwardingStore:
    """Passes every call on to `inner`. A decorator overrides the calls it changes."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    @property
    def traits(self) -> StoreTraits:
        """As `Store.traits`."""
        return self.inner.traits

    @property
    def time(self) -> StoreTime:
        """As `Store.time`."""
        return self.inner.time

    async def tell_time(self) -> int:
        """As `Store.tell_time`."""
        return await self.inner.tell_time()

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        """As `Store.create`."""
        await self.inner.create(key, data, metadata=metadata)

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        """As `Store.replace`."""
        return await self.inner.replace(key, data, etag=etag)

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        """As `Store.get`."""
        return await self.inner.get(key, start=start, stop=stop)

    async def head(self, key: str) -> ObjectInfo:
        """As `Store.head`."""
        return await self.inner.head(key)

    def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> AsyncIterator[ObjectInfo]:
        """As `Store.list`."""
        return self.inner.list(prefix, after=after, limit=limit)

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """As `Store.list_folders`."""
        return await self.inner.list_folders(prefix)

    async def delete(self, keys: Iterable[str]) -> None:
        """As `Store.delete`."""
        await self.inner.delete(keys)

    async def presign_get(self, key: str, *, expires_seconds: int) -> PresignedRequest | None:
        """As `Store.presign_get`."""
        return await self.inner.presign_get(key, expires_seconds=expires_seconds)

    async def presign_create(
        self, key: str, *, size_bytes: int, sha256: str | None, expires_seconds: int
    ) -> PresignedRequest | None:
        """As `Store.presign_create`."""
        return await self.inner.presign_create(
            key, size_bytes=size_bytes, sha256=sha256, expires_seconds=expires_seconds
        )

    def uri(self, key: str) -> str:
        """As `Store.uri`."""
        return self.inner.uri(key)

    async def close(self) -> None:
        """As `Store.close`."""
        await self.inner.close()
