import asyncio

import pytest

from filer.caching_store import ENTRY_OVERHEAD_BYTES, CachingStore
from filer.clock import ManualClock, settle
from filer.errors import ObjectNotFound, OutcomeUnknown
from filer.failing_store import FailingStore
from filer.faults import FaultKind, ScriptedFaults
from filer.instrumented_store import InstrumentedStore
from filer.memory_store import MemoryStore
from filer.store_metrics import StoreMetrics


class Layers:
    """A cache over a store that counts and fails."""

    def __init__(self, capacity_bytes: int = 100_000) -> None:
        self.faults = ScriptedFaults()
        self.metrics = StoreMetrics()
        self.memory = MemoryStore()
        clock = ManualClock()
        self.failing = FailingStore(self.memory, self.faults, clock=clock)
        counting = InstrumentedStore(self.failing, clock=clock, metrics=self.metrics)
        self.store = CachingStore(
            counting, capacity_bytes=capacity_bytes, immutable=lambda key: key.endswith(".parquet")
        )

    @property
    def gets(self) -> int:
        return sum(total.calls for total in self.metrics.snapshot() if total.operation == "get")


async def test_immutable_objects_are_read_once() -> None:
    layers = Layers()
    await layers.store.create("a.parquet", b"0123456789")
    first = await layers.store.get("a.parquet")
    assert await layers.store.get("a.parquet") == first
    assert layers.gets == 1


async def test_other_objects_are_always_read() -> None:
    layers = Layers()
    await layers.store.create("a.json", b"1")
    await layers.store.get("a.json")
    await layers.store.replace("a.json", b"2", etag=(await layers.store.head("a.json")).etag)
    assert (await layers.store.get("a.json")).data == b"2"
    assert layers.gets == 2


async def test_ranges_are_kept_by_themselves_or_cut_out_of_the_whole() -> None:
    layers = Layers()
    await layers.memory.create("a.parquet", b"0123456789")
    for _ in range(2):
        assert (await layers.store.get("a.parquet", start=-3)).data == b"789"
    assert layers.gets == 1
    assert (await layers.store.get("a.parquet", start=2, stop=4)).data == b"23"
    await layers.store.get("a.parquet")
    assert layers.gets == 3
    for start, stop, expected in [(5, None, b"56789"), (0, 3, b"012"), (-1, None, b"9"), (20, 30, b"")]:
        fetched = await layers.store.get("a.parquet", start=start, stop=stop)
        assert fetched.data == expected
        assert fetched.info.size_bytes == 10
    assert layers.gets == 3


async def test_least_recently_used_go_first() -> None:
    layers = Layers(capacity_bytes=3 * (1000 + ENTRY_OVERHEAD_BYTES))
    for name in "abcd":
        await layers.memory.create(f"{name}.parquet", bytes(1000))
    for name in "abcad":
        await layers.store.get(f"{name}.parquet")
        assert layers.store.size_bytes <= 3 * (1000 + ENTRY_OVERHEAD_BYTES)
    assert layers.gets == 4
    for name in "acd":
        await layers.store.get(f"{name}.parquet")
    assert layers.gets == 4
    await layers.store.get("b.parquet")
    assert layers.gets == 5


async def test_many_empty_reads_are_bounded_too() -> None:
    layers = Layers(capacity_bytes=10 * ENTRY_OVERHEAD_BYTES)
    await layers.memory.create("a.parquet", b"x")
    for start in range(1, 100):
        await layers.store.get("a.parquet", start=start)
    assert layers.store.size_bytes == 10 * ENTRY_OVERHEAD_BYTES


async def test_what_is_larger_than_the_cache_is_not_kept() -> None:
    layers = Layers(capacity_bytes=1000)
    await layers.memory.create("a.parquet", bytes(1000))
    for _ in range(2):
        await layers.store.get("a.parquet")
    assert layers.gets == 2
    assert layers.store.size_bytes == 0


async def test_simultaneous_reads_become_one_even_when_one_reader_leaves() -> None:
    layers = Layers()
    await layers.memory.create("a.parquet", b"x")
    layers.faults.add("get", FaultKind.HANG)
    readers = [asyncio.create_task(layers.store.get("a.parquet")) for _ in range(5)]
    await settle()
    readers[0].cancel()
    layers.failing.release()
    results = await asyncio.gather(*readers, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert [result.data for result in results[1:] if not isinstance(result, BaseException)] == [b"x"] * 4
    assert layers.gets == 1


async def test_failures_are_told_to_all_and_not_kept() -> None:
    layers = Layers()
    await layers.memory.create("a.parquet", b"x")
    layers.faults.add("get", FaultKind.UNAVAILABLE)
    results = await asyncio.gather(*(layers.store.get("a.parquet") for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [OutcomeUnknown] * 3
    assert (await layers.store.get("a.parquet")).data == b"x"


async def test_object_that_comes_later_is_found() -> None:
    layers = Layers()
    with pytest.raises(ObjectNotFound):
        await layers.store.get("a.parquet")
    await layers.store.create("a.parquet", b"x")
    assert (await layers.store.get("a.parquet")).data == b"x"


async def test_deleted_objects_are_forgotten() -> None:
    layers = Layers()
    for name in "ab":
        await layers.store.create(f"{name}.parquet", b"0123")
        await layers.store.get(f"{name}.parquet")
        await layers.store.get(f"{name}.parquet", start=-2)
    await layers.store.get("a.parquet", start=-1)
    await layers.store.delete(iter(["a.parquet", "never.parquet"]))
    with pytest.raises(ObjectNotFound):
        await layers.store.get("a.parquet", start=-2)
    before = layers.gets
    assert (await layers.store.get("b.parquet")).data == b"0123"
    assert layers.gets == before
    await layers.store.close()
    assert layers.store.size_bytes == 0
