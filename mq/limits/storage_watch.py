"""Measures the storage of quotas even without publishes, so that metrics show it and cost nothing."""

from collections.abc import Callable

from filer.clock import Clock
from mq.limits.quotas import Quotas

WATCH_SECONDS = 30.0


class StorageWatch:
    """Measures every `WATCH_SECONDS` while this broker leads: once for the whole cluster, for any number of scrapes."""

    def __init__(self, quotas: Quotas, clock: Clock, leads: Callable[[], bool]) -> None:
        self._quotas, self._clock, self._leads = quotas, clock, leads

    async def run(self) -> None:
        """Run until it is cancelled."""
        while True:
            await self._clock.sleep(WATCH_SECONDS)
            if self._leads():
                self._quotas.measure_storage()
