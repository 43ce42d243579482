from collections.abc import AsyncGenerator

import pytest

from filer.clock import ManualClock
from filer.errors import EtagMismatch, ObjectExists, ObjectNotFound, OutcomeUnknown, StoreRefused
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import Fault, FaultKind, ScriptedFaults
from filer.stores.decorators.instrumented_store import InstrumentedStore
from filer.stores.decorators.store_metrics import OperationMetrics, StoreMetrics
from filer.stores.memory_store import MemoryStore
from tests.support.instant_clock import InstantClock


async def test_calls_are_counted_by_outcome() -> None:
    metrics = StoreMetrics()
    faults = ScriptedFaults()
    clock = ManualClock()
    store = InstrumentedStore(FailingStore(MemoryStore(), faults, clock=clock), clock=clock, metrics=metrics)
    await store.create("key", b"12345")
    with pytest.raises(ObjectExists):
        await store.create("key", memoryview(b"123"))
    faults.add("create", FaultKind.LOSE_ANSWER)
    with pytest.raises(OutcomeUnknown):
        await store.create("key2", b"12")
    with pytest.raises(StoreRefused):
        await store.create("../key", b"1")
    with pytest.raises(EtagMismatch):
        await store.replace("key", b"1", etag="no")
    await store.get("key", start=2)
    await store.get("key")
    with pytest.raises(ObjectNotFound):
        await store.head("missing")
    await store.list_folders("")
    await store.delete(["key2"])
    assert [info.key async for info in store.list("")] == ["key"]
    assert list(metrics.snapshot()) == [
        OperationMetrics("create", "exists", 1, 3),
        OperationMetrics("create", "ok", 1, 5),
        OperationMetrics("create", "refused", 1, 1),
        OperationMetrics("create", "unknown", 1, 2),
        OperationMetrics("delete", "ok", 1),
        OperationMetrics("get", "ok", 2, 8),
        OperationMetrics("head", "not_found", 1),
        OperationMetrics("list", "ok", 1),
        OperationMetrics("list_folders", "ok", 1),
        OperationMetrics("replace", "etag_mismatch", 1, 1),
    ]


async def test_seconds_are_the_clocks() -> None:
    metrics = StoreMetrics()
    clock = InstantClock()
    faults = ScriptedFaults()
    faults.add("create", Fault(FaultKind.DELAY, 1.5), Fault(FaultKind.DELAY, 0.25))
    store = InstrumentedStore(FailingStore(MemoryStore(), faults, clock=clock), clock=clock, metrics=metrics)
    await store.create("a", b"")
    await store.create("b", b"")
    assert metrics.snapshot()[0].seconds == pytest.approx(1.75)


async def test_list_that_is_left_early_is_counted() -> None:
    metrics = StoreMetrics()
    store = InstrumentedStore(MemoryStore(), clock=ManualClock(), metrics=metrics)
    await store.create("a", b"")
    listing = store.list("")
    await anext(listing)
    assert isinstance(listing, AsyncGenerator)
    await listing.aclose()
    assert metrics.snapshot()[-1] == OperationMetrics("list", "stopped", 1)
