import asyncio

from filer.clock import ManualClock
from filer.stores.decorators.paced_store import LEAST_BYTES, ByteRate, PacedStore
from filer.stores.memory_store import MemoryStore
from tests.support.instant_clock import InstantClock

MIB = 1024 * 1024


async def test_reads_take_at_least_the_time_of_their_bytes() -> None:
    clock = InstantClock()
    store = MemoryStore()
    await store.create("large", bytes(10 * MIB))
    paced = PacedStore(store, ByteRate(clock, MIB))
    began_seconds = clock.monotonic_seconds()
    for start in range(0, 10 * MIB, MIB):
        await paced.get("large", start=start, stop=start + MIB)
    assert clock.monotonic_seconds() - began_seconds >= 10
    assert paced.read_bytes == 10 * MIB


async def test_a_small_read_counts_as_a_request() -> None:
    clock = InstantClock()
    store = MemoryStore()
    await store.create("small", b"x")
    paced = PacedStore(store, ByteRate(clock, LEAST_BYTES))
    began_seconds = clock.monotonic_seconds()
    await paced.get("small")
    assert clock.monotonic_seconds() - began_seconds >= 1
    assert paced.read_bytes == 1


async def test_tasks_share_a_rate_and_idle_time_is_lost() -> None:
    clock = ManualClock()
    rate = ByteRate(clock, 100)
    await clock.advance(1000)
    spending = [asyncio.create_task(rate.spend(100)) for _ in range(3)]
    for done in range(4):
        await clock.advance(0.01)
        assert sum(task.done() for task in spending) == done
        await clock.advance(1)
