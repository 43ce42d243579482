"""What owners count and report of their segments is shown by them and by the leader, not by the others."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from filer.slots import slot_of
from tests.support.cluster.http_cluster import HttpCluster, until

T = "/v1/topics/t"


@pytest.fixture
async def cluster() -> AsyncIterator[HttpCluster]:
    """Three brokers that report when they are told to, with one of a topic's three segments each."""
    cluster = HttpCluster()
    try:
        await cluster.start("a", "b", "c", report_interval=3600)
        await cluster.create("a", "t", segments=3)
        yield cluster
    finally:
        await cluster.stop_all()


async def segment_of(cluster: HttpCluster, name: str, key: str) -> dict[str, Any]:
    """The segment that has the key, as that broker tells it after all have reported."""
    for running in cluster.up.values():
        await running.broker.traffic_reporter.report()
    segments = (await cluster.get(name, T))["segments"]
    return next(s for s in segments if s["range"][0] <= slot_of(key.encode()) < s["range"][1])


def key_of_another(cluster: HttpCluster, segments: list[dict[str, Any]]) -> tuple[str, str]:
    """A key whose segment's owner does not lead, and that owner's name."""
    leader = next(each.broker.id for each in cluster.up.values() if each.broker.coordinator.leads())
    for key in map(str, range(100)):
        owner = next(s["brokers"][0] for s in segments if s["range"][0] <= slot_of(key.encode()) < s["range"][1])
        if owner != leader:
            return key, owner.partition(".")[0]
    raise AssertionError("the leader owns everything")


def leader_of(cluster: HttpCluster) -> str:
    return next(name for name, each in cluster.up.items() if each.broker.coordinator.leads())


async def test_reads_through_another_broker_are_reads_of_the_owner(cluster: HttpCluster) -> None:
    key, owner = key_of_another(cluster, (await cluster.get("a", T))["segments"])
    leader = leader_of(cluster)
    (other,) = set("abc") - {owner, leader}
    # What the store has is read from there, by anybody: a broker that cannot read it asks the owner.
    cluster.stores[other].can_be_read = False
    await cluster.publish(owner, "t", *[(key, "x" * 100)] * 10)
    segment = (await segment_of(cluster, leader, key))["segment"]
    page = await cluster.get(other, f"{T}/segments/{segment}/messages")
    assert len(page["messages"]) == 10
    for name in (owner, leader, other):
        load = (await segment_of(cluster, name, key))["traffic"]
        assert load["messages_per_second"] > 0
        assert load["read_bytes_per_second"] > 100 * load["read_messages_per_second"] > 0, name
    read = (await cluster.up[other].client.get("/metrics")).text
    assert 'braidmq_messages_read_total{topic="t"} 10.0' in read, "readers are counted where they are served"
    assert 'braidmq_messages_read_total{topic="t"} 0.0' in (await cluster.up[owner].client.get("/metrics")).text


async def test_what_waits_to_be_stored_is_told_per_segment(cluster: HttpCluster) -> None:
    key, owner = key_of_another(cluster, (await cluster.get("a", T))["segments"])
    cluster.stores[owner].hold()
    publishing = asyncio.create_task(cluster.publish(owner, "t", (key, "x" * 1000)))
    try:

        async def is_told() -> bool:
            load = (await segment_of(cluster, leader_of(cluster), key))["traffic"]
            return bool(load["pending_bytes"] > 1000)

        await until(is_told)
        loads = [s["traffic"] for s in (await cluster.get(leader_of(cluster), T))["segments"]]
        assert sorted(load["pending_bytes"] > 0 for load in loads) == [False, False, True]
        brokers = (await cluster.get(leader_of(cluster), "/v1/cluster"))["brokers"]
        assert sum(broker["pending_bytes"] > 1000 for broker in brokers) == 1
    finally:
        cluster.stores[owner].release()
        await publishing
    assert (await segment_of(cluster, owner, key))["traffic"]["pending_bytes"] == 0
