"""What a store says about its cluster: written once, the same for all brokers, never guessed."""

import asyncio

import orjson
import pytest

from filer import keys
from filer.clock import ManualClock
from filer.errors import CorruptFile, DataMissing, InvalidConfig
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import ScriptedFaults
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Store
from filer.topic.cluster_record import ClusterRecord, check_cluster, open_cluster
from tests.support.store.object_faults import flipped

BOTH = (keys.CLUSTER, keys.CLUSTER_SETTINGS)
SETTINGS = (keys.CLUSTER_SETTINGS, keys.CLUSTER_SETTINGS_COPY)
ALL = (keys.CLUSTER, *SETTINGS)


class Stopped(Exception):
    """The process stops here."""


async def opened(store: Store, name: str = "c", grace_seconds: float = 3600) -> ClusterRecord:
    return await open_cluster(store, ManualClock(), name, grace_seconds=grace_seconds)


async def test_all_brokers_find_the_same() -> None:
    store = MemoryStore()
    first = await opened(store)
    assert len(first.secret) == 32
    assert await opened(store) == first


async def test_brokers_that_start_at_once_agree() -> None:
    store = MemoryStore()
    found = await asyncio.gather(*(open_cluster(store, ManualClock(), "c", grace_seconds=9) for _ in range(5)))
    assert len({record.id for record in found}) == 1


async def test_another_grace_is_refused_and_both_are_named() -> None:
    store = MemoryStore()
    await opened(store, grace_seconds=3600)
    with pytest.raises(InvalidConfig, match=r"--grace 7\.5, but cluster 'c' has 3600"):
        await opened(store, grace_seconds=7.5)
    await store.delete(list(SETTINGS))
    await opened(store, grace_seconds=7.5)
    with pytest.raises(InvalidConfig, match=r"3600, but cluster 'c' has 7\.5"):
        await opened(store, grace_seconds=3600)


async def test_another_name_is_refused() -> None:
    store = MemoryStore()
    await opened(store)
    with pytest.raises(CorruptFile, match="pass --cluster c "):
        await opened(store, "d")


async def test_brokers_of_the_version_before_find_what_they_know() -> None:
    """They refuse a cluster.json with any other member."""
    store = MemoryStore()
    await opened(store)
    assert set(orjson.loads((await store.get(keys.CLUSTER)).data)) == {"format", "cluster", "id", "upload_secret"}


async def test_a_store_of_the_version_before_gets_its_settings() -> None:
    store = MemoryStore()
    first = await opened(store)
    await store.delete(list(SETTINGS))
    assert await opened(store, grace_seconds=60) == first
    assert orjson.loads((await store.get(keys.CLUSTER_SETTINGS)).data)["grace_seconds"] == 60


async def test_a_missing_record_comes_back_from_the_settings() -> None:
    store = MemoryStore()
    first = await opened(store)
    data = (await store.get(keys.CLUSTER)).data
    await store.delete([keys.CLUSTER])
    await store.create(keys.topic("t"), b"")
    assert await opened(store) == first
    assert (await store.get(keys.CLUSTER)).data == data


async def test_no_other_cluster_is_made_over_topics() -> None:
    store = MemoryStore()
    await store.create(keys.topic("orders"), b"")
    with pytest.raises(DataMissing, match=r"cluster/cluster\.json is gone.*'orders'"):
        await opened(store)
    assert [info.key async for info in store.list("cluster/")] == []


@pytest.mark.parametrize("key", ALL)
async def test_a_damaged_record_is_written_again(key: str) -> None:
    store = MemoryStore()
    first = await opened(store)
    whole = (await store.get(key)).data
    for damaged in (b"", b"{}", flipped(whole, 8 * (len(whole) // 2))):
        await store.replace(key, damaged, etag=(await store.head(key)).etag)
        with pytest.raises(CorruptFile) as told:
            await check_cluster(store)
        assert told.value.key == key and "\n" not in str(told.value)
        with pytest.raises(InvalidConfig):
            await opened(store, grace_seconds=7)
        assert await opened(store) == first
        assert (await store.get(key)).data == whole
        await check_cluster(store)


@pytest.mark.parametrize("key", ALL)
async def test_no_single_flipped_bit_keeps_a_broker_from_starting(key: str) -> None:
    store = MemoryStore()
    first = await opened(store)
    whole = (await store.get(key)).data
    for bit in range(8 * len(whole)):
        await store.replace(key, flipped(whole, bit), etag=(await store.head(key)).etag)
        assert await opened(store) == first


@pytest.mark.parametrize("key", SETTINGS)
async def test_the_grace_period_outlives_the_loss_of_its_record(key: str) -> None:
    store = MemoryStore()
    await opened(store, grace_seconds=9)
    await store.delete([key])
    with pytest.raises(InvalidConfig, match="but cluster 'c' has 9"):
        await opened(store, grace_seconds=7)
    assert (await store.get(SETTINGS[0])).data == (await store.get(SETTINGS[1])).data


async def test_two_damaged_records_keep_a_broker_from_starting() -> None:
    store = MemoryStore()
    await opened(store)
    for key in SETTINGS:
        await store.replace(key, b"{}", etag=(await store.head(key)).etag)
    with pytest.raises(CorruptFile, match=f"{keys.CLUSTER_SETTINGS} cannot be read: put it back, or delete it"):
        await opened(store)
    await store.delete(list(ALL))
    await store.create(keys.CLUSTER, b"{}")
    with pytest.raises(CorruptFile, match=f"{keys.CLUSTER} cannot be read: put it back, or delete it"):
        await opened(store)


async def test_settings_that_differ_are_refused() -> None:
    store = MemoryStore()
    await opened(store, grace_seconds=9)
    kept = (await store.get(keys.CLUSTER_SETTINGS)).data
    await store.delete(list(SETTINGS))
    await opened(store, grace_seconds=7)
    await store.replace(keys.CLUSTER_SETTINGS, kept, etag=(await store.head(keys.CLUSTER_SETTINGS)).etag)
    for grace_seconds in (7, 9):
        with pytest.raises(CorruptFile, match=r"settings\.json and .*settings-copy\.json differ"):
            await opened(store, grace_seconds=grace_seconds)


@pytest.mark.parametrize("point", ["before replace", "after replace"])
async def test_a_mending_that_stops_there_is_done_by_the_next_start(point: str) -> None:
    store = MemoryStore()
    first = await opened(store)
    whole = (await store.get(keys.CLUSTER)).data
    await store.replace(keys.CLUSTER, b"{", etag=(await store.head(keys.CLUSTER)).etag)

    def stop(at: str, key: str) -> None:
        if at == point:
            raise Stopped

    with pytest.raises(Stopped):
        await opened(FailingStore(store, ScriptedFaults(), clock=ManualClock(), on_point=stop))
    assert await opened(store) == first
    assert (await store.get(keys.CLUSTER)).data == whole


async def test_records_of_different_clusters_are_refused() -> None:
    store, other = MemoryStore(), MemoryStore()
    await opened(store)
    await opened(other)
    await store.delete([keys.CLUSTER])
    another = ClusterRecord(format=1, cluster="c", id="another", upload_secret="")
    await store.create(keys.CLUSTER, another.model_dump_json().encode())
    with pytest.raises(CorruptFile, match="different clusters"):
        await opened(store)


@pytest.mark.parametrize("key", BOTH)
async def test_another_format_is_refused(key: str) -> None:
    store = MemoryStore()
    record = ClusterRecord(format=2, cluster="c", id="i", upload_secret="")
    await store.create(keys.CLUSTER, record.model_dump_json().encode())
    with pytest.raises(CorruptFile, match="of format 2"):
        await opened(store)
