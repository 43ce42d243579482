"""A store that counts its calls."""

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

from filer.clock import Clock
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.decorators.store_metrics import StoreMetrics
from filer.stores.store import Data, Fetched, MakeData, ObjectInfo, Store


class InstrumentedStore(ForwardingStore):
    """Records the outcome, bytes and seconds of each call in `metrics`, except presigning, which makes no request."""

    def __init__(self, inner: Store, *, clock: Clock, metrics: StoreMetrics) -> None:
        super().__init__(inner)
        self._clock = clock
        self.metrics = metrics

    async def tell_time(self) -> int:
        """As `Store.tell_time`."""
        with self._measured("tell_time"):
            return await self.inner.tell_time()

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        """As `Store.create`; counts the bytes sent, whatever the outcome."""
        with self._measured("create", 0 if callable(data) else len(data)) as call:
            await self.inner.create(key, _counting(data, call) if callable(data) else data, metadata=metadata)

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        """As `Store.replace`; counts the bytes sent, whatever the outcome."""
        with self._measured("replace", len(data)):
            return await self.inner.replace(key, data, etag=etag)

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        """As `Store.get`; counts the bytes received."""
        with self._measured("get") as call:
            fetched = await self.inner.get(key, start=start, stop=stop)
            call.size_bytes = len(fetched.data)
            return fetched

    async def head(self, key: str) -> ObjectInfo:
        """As `Store.head`."""
        with self._measured("head"):
            return await self.inner.head(key)

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ObjectInfo]:
        """As `Store.list`; counts one call for all pages, with the seconds that the caller takes between objects."""
        with self._measured("list"):
            async for info in self.inner.list(prefix, after=after, limit=limit):
                yield info

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """As `Store.list_folders`."""
        with self._measured("list_folders"):
            return await self.inner.list_folders(prefix)

    async def delete(self, keys: Iterable[str]) -> None:
        """As `Store.delete`."""
        with self._measured("delete"):
            await self.inner.delete(keys)

    @contextlib.contextmanager
    def _measured(self, operation: str, size_bytes: int = 0) -> Iterator["_Call"]:
        call = _Call(size_bytes)
        start_seconds = self._clock.monotonic_seconds()
        error: BaseException | None = None
        try:
            yield call
        except BaseException as raised:
            error = raised
            raise
        finally:
            seconds = self._clock.monotonic_seconds() - start_seconds
            self.metrics.record(operation, error, size_bytes=call.size_bytes, seconds=seconds)


def _counting(make: MakeData, call: "_Call") -> MakeData:
    """Makes the same bytes and records their number in the call."""

    def counted() -> Data:
        data = make()
        call.size_bytes = len(data)
        return data

    return counted


class _Call:
    """A running call and the number of bytes it carries."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
