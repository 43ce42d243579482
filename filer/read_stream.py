"""Reading large objects part by part."""

from collections.abc import AsyncIterator

from filer.errors import EtagMismatch
from filer.store import ObjectInfo, Store

STREAM_CHUNK_BYTES = 1024 * 1024


async def read_stream(store: Store, info: ObjectInfo, *, chunk_bytes: int = STREAM_CHUNK_BYTES) -> AsyncIterator[bytes]:
    """The object's bytes, in chunks of that many; one chunk at a time is in memory.

    Raises `EtagMismatch` where it is no longer the object that `info` (of `Store.head`) describes, and
    `ObjectNotFound` where it was deleted meanwhile.
    """
    for start in range(0, info.size_bytes, chunk_bytes):
        part = await store.get(info.key, start=start, stop=min(start + chunk_bytes, info.size_bytes))
        if part.info.etag != info.etag:
            raise EtagMismatch(f"{info.key} has changed while it was read")
        yield part.data
