"""Recovery follows what is new: a restart asks the store as often behind 1,000 files as behind 100,000."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from filer.clock import ManualClock
from filer.keys import FileName
from filer.segment.next_file import Single
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, recover_index
from filer.stores.decorators.instrumented_store import InstrumentedStore
from filer.stores.decorators.store_metrics import StoreMetrics
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Store
from filer.topic.catalogue import Catalogue
from filer.topic.cluster_record import open_cluster
from filer.topic.topic_config import TopicConfig
from filer.upkeep.index_snapshots import write_snapshot
from leader.membership.coordinator import InProcessCoordinator
from leader.transitions import new_topic
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from tests.support.topic.segment_files import append

REF = SegmentRef("events", 0)
NEW_FILES = 20


async def store_with(old_files: int, clock: ManualClock) -> Store:
    """A segment whose owner is gone: files behind the snapshot, and some after it.

    The old ones all hold the bytes of the first: whoever reads one of them finds it corrupt.
    """
    store = MemoryStore(clock=clock)
    await open_cluster(store, clock, BrokerSettings().cluster, grace_seconds=BrokerSettings().grace)
    state = new_topic(REF.topic, TopicConfig(), 1, lambda number: ("gone.1",), now_us=clock.now_us())
    assert await Catalogue(store, clock).create(state)
    index = SegmentIndex()
    first = await append(store, REF, index, 1)
    data = (await store.get(REF.key(first.name))).data
    for base in range(1, old_files):
        name = FileName(base)
        await store.create(REF.key(name), data)
        index.append(replace(first, name=name, end=base + 1, start=base))
    with ThreadPoolExecutor(1) as executor:
        await write_snapshot(store, REF, index, etag=None, executor=executor)
    for _ in range(NEW_FILES):
        await append(store, REF, index, 1)
    return store


async def requests_of_a_restart(store: Store, clock: ManualClock) -> int:
    """Start a broker on the store, and publish until it owns a successor; how often the store was asked."""
    metrics = StoreMetrics()
    counted = InstrumentedStore(store, clock=clock, metrics=metrics)
    broker = Broker(counted, clock, InProcessCoordinator(), BrokerSettings(maintenance_interval=3600))
    await broker.start("http://here")
    try:
        runtime = await broker.topics.topic(REF.topic)
        await runtime.publisher.publish_single(Single(b"k", b"v", None, None), 1)
        state = broker.topics[REF.topic].state
        assert [(s.state, s.end_offset) for s in state.segments][1:] == [("open", None)]
        return sum(operation.calls for operation in metrics.snapshot())
    finally:
        await broker.close()


async def test_a_restart_costs_as_much_behind_any_number_of_files() -> None:
    costs: dict[int, int] = {}
    for old_files in (1_000, 10_000, 100_000):
        clock = ManualClock()
        store = await store_with(old_files, clock)
        costs[old_files] = await requests_of_a_restart(store, clock)
        sealed = await recover_index(store, REF)
        assert (sealed.end, sealed.sealed) == (old_files + NEW_FILES, True)
    assert len(set(costs.values())) == 1, costs
    # One footer for each new file; the rest is the check of the store, the transition and the seal.
    assert max(costs.values()) < NEW_FILES + 70


@pytest.mark.parametrize("new_files", [0, 100])
async def test_each_file_after_the_snapshot_costs_one_request(new_files: int) -> None:
    clock = ManualClock()
    store = await store_with(50, clock)
    index = await recover_index(store, REF)
    for _ in range(new_files):
        await append(store, REF, index, 1)
    metrics = StoreMetrics()
    recovered = await recover_index(InstrumentedStore(store, clock=clock, metrics=metrics), REF)
    assert recovered.end == 50 + NEW_FILES + new_files
    calls = {operation.operation: 0 for operation in metrics.snapshot()}
    for operation in metrics.snapshot():
        calls[operation.operation] += operation.calls
    # The snapshot, each new footer, and the name that must be missing.
    assert calls == {"get": 1 + NEW_FILES + new_files + 1, "list": 1}
