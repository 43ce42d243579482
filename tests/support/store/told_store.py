"""A store that tells the time of a test's own clock, whatever its own is."""

from filer.clock import Clock
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.store import Store
from filer.stores.store_time import StoreTime


class ToldStore(ForwardingStore):
    """Passes everything on but the time."""

    def __init__(self, inner: Store, clock: Clock) -> None:
        super().__init__(inner)
        self._clock, self._time = clock, StoreTime()

    @property
    def time(self) -> StoreTime:
        self._time.record(self._clock.now_us())
        return self._time

    async def tell_time(self) -> int:
        return self.time.latest_us
