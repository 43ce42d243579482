"""A store that is read no faster than at a given rate, so that reading everything leaves room for others."""

from filer.clock import Clock
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.store import Fetched, Store

LEAST_BYTES = 16 * 1024
"""Each read counts as at least this many bytes. A request costs something too, however few bytes it gets."""


class ByteRate:
    """A bound on bytes a second, which several tasks may share. `bytes_per_second` may be changed at any time."""

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self._clock, self.bytes_per_second = clock, bytes_per_second
        self._paid_until_seconds = 0.0

    async def spend(self, size_bytes: int) -> None:
        """Sleep until the rate allows these bytes, after those that other tasks have spent before.

        Unused time is lost: there are no bursts after it.
        """
        now_seconds = self._clock.monotonic_seconds()
        begin_seconds = max(self._paid_until_seconds, now_seconds)
        self._paid_until_seconds = begin_seconds + size_bytes / self.bytes_per_second
        await self._clock.sleep(self._paid_until_seconds - now_seconds)


class PacedStore(ForwardingStore):
    """Rests after each `get` as its rate asks for, and counts what was read in `read_bytes`. Paces nothing else."""

    def __init__(self, inner: Store, rate: ByteRate) -> None:
        super().__init__(inner)
        self._rate = rate
        self.read_bytes = 0

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        """As `Store.get`."""
        fetched = await self.inner.get(key, start=start, stop=stop)
        self.read_bytes += len(fetched.data)
        await self._rate.spend(max(len(fetched.data), LEAST_BYTES))
        return fetched
