"""Opens a store for a job or for one of its Spark tasks: each process opens its own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from filer.clock import Clock, SystemClock
from filer.stores.decorators.retrying_store import RetryingStore
from filer.stores.open_store import open_store
from filer.stores.store import Store
from filer.stores.store_address import StoreAddress

T = TypeVar("T")


def open_retrying(address: StoreAddress, clock: Clock) -> Store:
    """Open the store at that address; it repeats reads that fail. Raises `InvalidInput`, `StoreRefused`."""
    return RetryingStore(open_store(address, clock), clock=clock)


def run_on_store(address: StoreAddress, work: Callable[[Store, Clock], Awaitable[T]]) -> T:
    """Run the coroutine on an event loop of its own, with the store open meanwhile; returns its result."""

    async def opened() -> T:
        clock = SystemClock()
        store = open_retrying(address, clock)
        try:
            return await work(store, clock)
        finally:
            await store.close()

    return asyncio.run(opened())
