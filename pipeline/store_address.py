"""Where a store is, as something that goes to every task of a job: each opens it for itself."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from filer.clock import Clock, SystemClock
from filer.open_store import open_store
from filer.retrying_store import RetryingStore
from filer.s3_settings import AddressingStyle
from filer.store import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A store's address, and for S3 how to reach it; credentials come from each machine's own environment."""

    url: str
    endpoint_url: str | None = None
    region: str | None = None
    addressing_style: AddressingStyle = "auto"

    def open(self, clock: Clock) -> Store:
        """The store, whose reads are repeated. Raises `InvalidInput`, `StoreRefused`."""
        store = open_store(
            self.url,
            clock=clock,
            endpoint_url=self.endpoint_url,
            region=self.region,
            addressing_style=self.addressing_style,
        )
        return RetryingStore(store, clock=clock)

    def run(self, work: Callable[[Store, Clock], Awaitable[T]]) -> T:
        """What the coroutine gives, on an event loop of its own with the store opened for it."""

        async def opened() -> T:
            clock = SystemClock()
            store = self.open(clock)
            try:
                return await work(store, clock)
            finally:
                await store.close()

        return asyncio.run(opened())
