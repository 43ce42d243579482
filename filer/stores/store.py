"""What BraidMQ needs from an object store: few calls, narrow enough for any backend to serve.

Decorators (`RetryingStore`, `InstrumentedStore`, `FailingStore`) wrap a store and are stores themselves, so that
simulation and production share them.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from filer.stores.store_time import StoreTime

Data = bytes | bytearray | memoryview
MakeData = Callable[[], Data]
"""Makes an object's bytes when the store needs them, on a thread that may block. Each call returns the same bytes.

A store that writes from its own threads thus saves one change of threads, which costs as much as a small write.
"""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store knows about an object without reading it.

    `etag` is opaque and has no quotes; it changes whenever the content changes. `modified_us` is in microseconds since
    the Unix epoch.
    """

    key: str
    size_bytes: int
    etag: str
    modified_us: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """The bytes that were read of an object; `info.size_bytes` is the size of the whole object."""

    data: bytes
    info: ObjectInfo


@dataclass(frozen=True, slots=True)
class PresignedRequest:
    """A signed request to the store. Any client that has it may send it until `expires_us`."""

    method: str
    url: str
    expires_us: int
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoreTraits:
    """Properties of a store by which callers batch their puts, without knowing which store it is.

    If `puts_are_billed`, each put costs money, so fewer and larger ones are better. `puts_at_once` says how many puts
    are worth making at the same time: many if a put mostly waits, one if it keeps this machine busy. If it `presigns`,
    clients send requests of their own. `streams_at_once` is the number of streams of chunks for which it has
    connections at the same time; None if it needs none.
    """

    puts_are_billed: bool
    puts_at_once: int
    presigns: bool = False
    streams_at_once: int | None = None


class Store(Protocol):
    """Objects under keys. `/` separates the parts of a key. Keys are relative to the store's root (bucket and prefix).

    Every call may raise `OutcomeUnknown` (time-out, broken connection, 5xx, 409; a write may have taken effect) and
    `StoreRefused` (credentials, missing bucket; repeating does not help).
    """

    @property
    def traits(self) -> StoreTraits:
        """The traits of this store. A decorator has those of the store it wraps."""
        ...

    @property
    def time(self) -> StoreTime:
        """The store's time, as far as its answers have shown it. A decorator has that of the store it wraps.

        Once `create` has returned, `latest_us` is no earlier than the moment at which the object got its name. The same
        holds after a `get` of the object.
        """
        ...

    async def tell_time(self) -> int:
        """The store's time now, in microseconds, by one cheap request; `time` records it as well."""
        ...

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        """Write an object that must not exist yet. It is durable when this returns.

        Raises `ObjectExists` if the key is taken, by any writer: an earlier try of the same call counts as well.
        """
        ...

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        """Replace the object if it still has that ETag; returns the new ETag. It is durable when this returns.

        Raises `EtagMismatch` if the object has changed or is gone.
        """
        ...

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        """Read the bytes `[start, stop)`. A negative `start` counts from the end; without `stop`, read to the end.

        A range that reaches past the end returns the bytes that exist. Raises `ObjectNotFound`.
        """
        ...

    async def head(self, key: str) -> ObjectInfo:
        """Size, ETag and modification time of an object. Raises `ObjectNotFound`."""
        ...

    def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> AsyncIterator[ObjectInfo]:
        """Objects whose keys start with `prefix` and come after `after`, in ascending order of the keys' UTF-8 bytes.

        At most `limit` objects. A listing may lag behind recent writes. Names that begin with a dot are left out.
        """
        ...

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """The distinct next parts of the keys below `prefix` (which ends in `/`), sorted."""
        ...

    async def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; a key without an object is no error."""
        ...

    async def presign_get(self, key: str, *, expires_seconds: int) -> PresignedRequest | None:
        """A request by which any client can read the object for that long; None if the store has no such requests."""
        ...

    async def presign_create(
        self, key: str, *, size_bytes: int, sha256: str | None, expires_seconds: int
    ) -> PresignedRequest | None:
        """A request by which any client can create the object once, with exactly that size (and SHA-256, in hex).

        None if the store has no such requests.
        """
        ...

    def uri(self, key: str) -> str:
        """Where other programs find the object, such as `file:///...` or `s3://bucket/...`."""
        ...

    async def close(self) -> None:
        """Release connections and threads."""
        ...


@runtime_checkable
class StreamingStore(Protocol):
    """A store that takes objects of any size chunk by chunk.

    A store that presigns uploads also does this, for clients that must not get such an address: it names the object.
    """

    async def create_from_stream(
        self, key: str, chunks: AsyncIterator[bytes], *, size_bytes: int, sha256: str | None
    ) -> str:
        """Write an object that must not exist yet from its chunks, in bounded memory; returns its SHA-256 in hex.

        Raises `ObjectExists`, perhaps before all chunks are read. Raises `InvalidInput` if the chunks do not add up to
        exactly `size_bytes` or do not have that `sha256`, and `StoreUnreached` if the store has had none of them; then
        nothing is stored.
        """
        ...
