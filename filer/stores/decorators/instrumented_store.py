"""A store that counts its calls, and reports them to the object that follows its health."""

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

from filer.clock import Clock
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.decorators.store_health import Call, StoreHealth
from filer.stores.decorators.store_metrics import StoreMetrics
from filer.stores.store import Data, Fetched, MakeData, ObjectInfo, Store


class InstrumentedStore(ForwardingStore):
    """Records the outcome, bytes and seconds of each call in `metrics`, except presigning, which makes no request.

    `health` gets each call when it begins and when it ends.
    """

    def __init__(self, inner: Store, *, clock: Clock, metrics: StoreMetrics, health: StoreHealth | None = None) -> None:
        super().__init__(inner)
        self._clock = clock
        self.metrics = metrics
        self.health = health or StoreHealth(clock)

    async def tell_time(self) -> int:
        """As `Store.tell_time`."""
        with self._measured("tell_time", ""):
            return await self.inner.tell_time()

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        """As `Store.create`; counts the bytes sent, whatever the outcome."""
        # Each publish waits for such a call. So this does what `_measured` does, without a generator.
        call = self.health.begin("create", key, 0 if callable(data) else len(data))
        error: BaseException | None = None
        try:
            await self.inner.create(key, _counting(data, call) if callable(data) else data, metadata=metadata)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._ended(call, call.began_seconds, error)

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        """As `Store.replace`; counts the bytes sent, whatever the outcome."""
        with self._measured("replace", key, len(data)):
            return await self.inner.replace(key, data, etag=etag)

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        """As `Store.get`; counts the bytes received."""
        with self._measured("get", key, whole=start >= 0 and stop is None) as call:
            fetched = await self.inner.get(key, start=start, stop=stop)
            call.size_bytes = len(fetched.data)
            return fetched

    async def head(self, key: str) -> ObjectInfo:
        """As `Store.head`."""
        with self._measured("head", key):
            return await self.inner.head(key)

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ObjectInfo]:
        """As `Store.list`; counts one call for all pages, with the seconds that the caller takes between objects."""
        with self._measured("list", prefix) as call:
            async for info in self.inner.list(prefix, after=after, limit=limit):
                self.health.pause(call)
                yield info
                self.health.resume(call)

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """As `Store.list_folders`."""
        with self._measured("list_folders", prefix):
            return await self.inner.list_folders(prefix)

    async def delete(self, keys: Iterable[str]) -> None:
        """As `Store.delete`."""
        names = tuple(keys)
        with self._measured("delete", names[0] if names else ""):
            await self.inner.delete(names)

    @contextlib.contextmanager
    def _measured(self, operation: str, key: str, size_bytes: int = 0, *, whole: bool = False) -> Iterator[Call]:
        call = self.health.begin(operation, key, size_bytes, whole=whole)
        start_seconds = call.began_seconds
        error: BaseException | None = None
        try:
            yield call
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._ended(call, start_seconds, error)

    def _ended(self, call: Call, start_seconds: float, error: BaseException | None) -> None:
        self.health.end(call, error)
        seconds = self._clock.monotonic_seconds() - start_seconds
        self.metrics.record(call.operation, error, size_bytes=call.size_bytes, seconds=seconds)


def _counting(make: MakeData, call: Call) -> MakeData:
    """Makes the same bytes and records their number in the call."""

    def counted() -> Data:
        data = make()
        call.size_bytes = len(data)
        return data

    return counted
