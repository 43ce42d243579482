"""What BraidMQ asks of an object store: eight calls, narrow enough for any backend to serve.

Stores are wrapped in small decorators (`RetryingStore`, `InstrumentedStore`, `CachingStore`, `FailingStore`),
each a `Store` itself, so that simulation and production share them.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

Data = bytes | bytearray | memoryview
MakeData = Callable[[], Data]
"""Makes an object's bytes when they are wanted, on a thread that may block; the same bytes each time it is called.

A store that writes from threads of its own saves one change of threads, which costs as much as a small write.
"""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store tells of one object without reading it.

    `etag` is opaque, without quotes, and another one whenever the content is; `modified_us` is in microseconds
    since the Unix epoch.
    """

    key: str
    size_bytes: int
    etag: str
    modified_us: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """A read object, or the asked part of it; `info.size_bytes` is the size of the whole."""

    data: bytes
    info: ObjectInfo


@dataclass(frozen=True, slots=True)
class PresignedRequest:
    """A request that anybody holding it may send to the store until `expires_us`."""

    method: str
    url: str
    expires_us: int
    headers: Mapping[str, str] = field(default_factory=dict)


class Store(Protocol):
    """Objects under keys with `/` between parts, relative to the store's own root (bucket and prefix).

    Every call may raise `OutcomeUnknown` (time-out, cut connection, 5xx, 409: for a write, it may have taken
    effect) and `StoreRefused` (credentials, missing bucket: repeating does not help).
    """

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        """Write an object that must not exist yet. Durable when this returns.

        Raises `ObjectExists` where the name is taken, by whomever: also by an earlier try of this same call.
        """
        ...

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        """Replace the object only if it still has that ETag; the new ETag. Durable when this returns.

        Raises `EtagMismatch` where it has changed or gone.
        """
        ...

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        """Read bytes `[start, stop)`; a negative `start` counts from the end; to the end without `stop`.

        A range that reaches past the end gives what is there. Raises `ObjectNotFound`.
        """
        ...

    async def head(self, key: str) -> ObjectInfo:
        """Size, ETag and time of an object. Raises `ObjectNotFound`."""
        ...

    def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> AsyncIterator[ObjectInfo]:
        """Objects whose key starts with `prefix`, in ascending key order (UTF-8), from behind `after` on.

        At most `limit` of them. A listing may lag behind recent writes; names with a dot first are left out.
        """
        ...

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """The distinct next path parts below `prefix` (which ends in `/`), sorted."""
        ...

    async def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; one that is not there is no error."""
        ...

    async def presign_get(self, key: str, *, expires_seconds: int) -> PresignedRequest | None:
        """A request by which anybody may read the object for that long; None where the store has none."""
        ...

    async def presign_create(
        self, key: str, *, size_bytes: int, sha256: str | None, expires_seconds: int
    ) -> PresignedRequest | None:
        """A request by which anybody may create the object once, of exactly that size (and SHA-256, as hex).

        None where the store has no such thing.
        """
        ...

    def uri(self, key: str) -> str:
        """Where other programs find the object: `file:///...` or `s3://bucket/...`."""
        ...

    async def close(self) -> None:
        """Let go of connections and threads."""
        ...


@runtime_checkable
class StreamingStore(Protocol):
    """A store that takes objects of any size chunk by chunk; those that presign uploads need not."""

    async def create_from_stream(
        self, key: str, chunks: AsyncIterator[bytes], *, size_bytes: int, sha256: str | None
    ) -> str:
        """Write an object that must not exist yet from its chunks, in bounded memory; its SHA-256, as hex.

        Raises `ObjectExists` (perhaps before the chunks are read to their end), and `InvalidInput` where the
        chunks do not make exactly `size_bytes` or not that `sha256`: then nothing is stored.
        """
        ...
