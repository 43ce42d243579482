"""What a store says about its cluster: written once, the same for all brokers, never guessed."""

import asyncio

import orjson
import pytest

from filer import keys
from filer.clock import ManualClock
from filer.errors import CorruptFile, DataMissing, InvalidConfig
from filer.stores.memory_store import MemoryStore
from filer.topic.cluster_record import ClusterRecord, open_cluster

BOTH = (keys.CLUSTER, keys.CLUSTER_SETTINGS)


async def opened(store: MemoryStore, name: str = "c", grace_seconds: float = 3600) -> ClusterRecord:
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
    await store.delete([keys.CLUSTER_SETTINGS])
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
    await store.delete([keys.CLUSTER_SETTINGS])
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


@pytest.mark.parametrize("key", BOTH)
async def test_a_damaged_record_says_how_to_mend_it(key: str) -> None:
    store = MemoryStore()
    first = await opened(store)
    await store.delete([key])
    await store.create(key, b"{}")
    with pytest.raises(CorruptFile, match=f"{key} cannot be read: put it back, or delete it") as damaged:
        await opened(store)
    assert damaged.value.key == key and "\n" not in str(damaged.value)
    await store.delete([key])
    assert await opened(store) == first


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
