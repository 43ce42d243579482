"""Topics that split and merge on their own, in windows of fractions of a second: brokers alone and in a cluster."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from filer.slots import slot_of
from filer.stores.memory_store import MemoryStore
from leader.traffic.traffic_averages import KnownAverages
from tests.support.broker.http_broker import http_broker
from tests.support.cluster.http_cluster import HttpCluster, until
from tests.support.topic.numbered_traffic import QUICK_SCALING, REPORT_SECONDS, NumberedPublisher, NumberedReader

RARELY_SECONDS = 600.0
UNSCALED = {"scaling": {"enabled": False}}


@pytest.fixture
async def quick() -> AsyncIterator[HttpCluster]:
    """Three brokers that report often."""
    cluster = HttpCluster()
    try:
        await cluster.start("a", "b", "c", report_interval=REPORT_SECONDS)
        yield cluster
    finally:
        await cluster.stop_all()


def leader_of(cluster: HttpCluster) -> str:
    return next(name for name, each in cluster.up.items() if each.broker.coordinator.leads())


async def open_segments(cluster: HttpCluster, name: str, topic: str) -> list[dict[str, Any]]:
    segments = (await cluster.get(name, f"/v1/topics/{topic}"))["segments"]
    return [segment for segment in segments if segment["state"] == "open"]


async def test_a_flood_spreads_over_the_brokers_and_comes_together_again(quick: HttpCluster) -> None:
    await quick.create("b", "t", max_segments=6, **QUICK_SCALING)
    clients = [quick.up[name].client for name in "abc"]
    load, reader = NumberedPublisher(clients, "t"), NumberedReader(clients[2], "t")

    async def spread() -> bool:
        return set(await quick.owners("a", "t")) == {"a", "b", "c"}

    async def one_again() -> bool:
        return len(await open_segments(quick, "a", "t")) == 1

    async with reader.following():
        async with load.running():
            await until(spread)
        await until(one_again)
    load.check(reader)
    late = NumberedReader(clients[1], "t")
    while await late.read():
        pass
    load.check(late)
    metrics = (await quick.up[leader_of(quick)].client.get("/metrics")).text
    for reason in ("split", "merge"):
        assert f'braidmq_transitions_total{{reason="{reason}",topic="t"}}' in metrics
        assert f'braidmq_transitions_total{{reason="{reason}",topic="t"}} 0.0' not in metrics


async def test_a_broker_alone_scales_its_topics_too() -> None:
    async with http_broker(MemoryStore(), report_interval=REPORT_SECONDS) as broker:
        config = {**QUICK_SCALING, "min_segments": 2, "max_segments": 6, "segments": 2}
        (await broker.client.put("/v1/topics/t", json=config)).raise_for_status()
        load, reader = NumberedPublisher([broker.client], "t"), NumberedReader(broker.client, "t")

        async def count() -> int:
            segments = (await broker.client.get("/v1/topics/t")).json()["segments"]
            return sum(segment["state"] == "open" for segment in segments)

        async def many() -> bool:
            return await count() == 6

        async def few() -> bool:
            return await count() == 2

        async with reader.following():
            async with load.running():
                await until(many)
            await until(few)
        load.check(reader)


async def test_a_minimum_that_is_raised_at_any_broker_is_there_at_once() -> None:
    """Nobody has reported anything before it is there, or will for long."""
    cluster = HttpCluster()
    try:
        await cluster.start("a", "b", "c", report_interval=RARELY_SECONDS)
        await cluster.create("b", "t", **UNSCALED)

        async def are_six() -> bool:
            return len(await open_segments(cluster, "c", "t")) == 6

        await cluster.create("c", "t", min_segments=6)
        await until(are_six)
        assert await cluster.owners("c", "t") == {"a": 2, "b": 2, "c": 2}
        widths = [stop - start for start, stop in (s["range"] for s in await open_segments(cluster, "c", "t"))]
        assert max(widths) - min(widths) <= 1
    finally:
        await cluster.stop_all()


async def test_a_minimum_that_is_raised_at_a_broker_alone_is_there_at_once() -> None:
    async with http_broker(MemoryStore(), report_interval=RARELY_SECONDS) as broker:

        async def count() -> int:
            segments = (await broker.client.get("/v1/topics/t")).json()["segments"]
            return sum(segment["state"] == "open" for segment in segments)

        async def are_six() -> bool:
            return await count() == 6

        (await broker.client.put("/v1/topics/t", json=UNSCALED)).raise_for_status()
        (await broker.client.put("/v1/topics/t", json={"min_segments": 6})).raise_for_status()
        await until(are_six)


async def test_a_minimum_that_is_lowered_lets_segments_merge(quick: HttpCluster) -> None:
    await quick.create("b", "t", min_segments=6, **QUICK_SCALING)

    async def are_two() -> bool:
        return len(await open_segments(quick, "a", "t")) == 2

    await quick.create("c", "t", min_segments=2)
    await until(are_two)


async def test_what_the_owner_and_the_leader_know_of_the_load_is_shown_by_any_broker(quick: HttpCluster) -> None:
    """One key carries everything: it is named, and nothing is split."""
    await quick.create("a", "t", segments=3, **QUICK_SCALING)
    slot = slot_of(b"hot")
    leader = leader_of(quick)
    done = asyncio.Event()

    async def flood() -> None:
        while not done.is_set():
            # So many that they are not a few when the next ones are late: then nobody knows yet whether a cut helps.
            await quick.publish("b", "t", *[("hot", "x")] * 500)

    async def of_hot_slot(name: str) -> dict[str, Any]:
        segments = await open_segments(quick, name, "t")
        return next(s for s in segments if s["range"][0] <= slot < s["range"][1])

    async def is_told_by(name: str) -> bool:
        """What is recent is of a moment, and the load has its pauses."""
        segment = await of_hot_slot(name)
        if segment["hot_slot"] != slot or (traffic := segment["traffic"]) is None:
            return False
        assert traffic["times_target"] == pytest.approx(traffic["messages_per_second"] / 20)
        return traffic["messages_per_second"] > 20 and traffic["bytes_per_second"] > 20 * len("hotx")

    flooding = asyncio.create_task(flood())
    try:
        for name in "abc":
            await until(partial(is_told_by, name))
        assert (await of_hot_slot(leader))["range"] != [slot, slot + 1]
    finally:
        done.set()
        await flooding
    owner = (await of_hot_slot(leader))["brokers"][0].partition(".")[0]
    unconcerned = next(iter(set("abc") - {leader, owner}))

    async def has_heard() -> bool:
        return (await of_hot_slot(unconcerned))["traffic"] is not None

    await until(has_heard)
    quick.peers[unconcerned].parted.add(quick.up[leader].url)
    assert (await of_hot_slot(unconcerned))["traffic"] is None, "nobody tells it"
    wanted = (await quick.up[leader].client.get("/metrics")).text
    assert "braidmq_brokers_wanted 0.0" not in wanted
    pending = (await quick.get(leader, "/v1/cluster"))["brokers"]
    assert all(isinstance(broker["pending_bytes"], int) for broker in pending), "everybody reports to the leader"


async def test_a_new_leader_goes_on(quick: HttpCluster) -> None:
    """It hears of everything from the owners; what was hot stays hot, and nothing merges in between."""
    await quick.create("b", "t", max_segments=3, **QUICK_SCALING)
    leader = leader_of(quick)
    others = [name for name in "abc" if name != leader]
    clients = [quick.up[name].client for name in others]
    load = NumberedPublisher(clients, "t")

    async def are_three() -> bool:
        return len(await open_segments(quick, others[0], "t")) == 3

    async def is_one() -> bool:
        return len(await open_segments(quick, others[0], "t")) == 1

    async with load.running():
        await until(are_three)
        await quick.stop(leader)
    await until(is_one)
    reader = NumberedReader(clients[0], "t")
    while await reader.read():
        pass
    load.check(reader)


async def test_a_drained_brokers_averages_go_on_elsewhere_and_a_dead_ones_begin_anew(quick: HttpCluster) -> None:
    """Each broker in turn owns the only segment, the leader too."""
    await quick.create("a", "t")
    await quick.publish("a", "t", *[("key", "x")] * 1000)

    async def owner() -> str:
        ((owner, *_),) = await quick.brokers_of("a", "t")
        return owner

    async def known() -> KnownAverages:
        name = await owner()
        (segment,) = await open_segments(quick, name, "t")
        found = quick.up[name].broker.topics["t"].traffic.averages(segment["segment"])
        assert found is not None
        return found

    async def has_messages() -> bool:
        return all(messages > 0 for messages, _, _ in (await known()).sums.values())

    async def has_moved() -> bool:
        return await owner() != former

    await until(has_messages)
    for _ in range(3):
        former, before = await owner(), await known()
        answer = await quick.up["a"].client.post(f"/v1/cluster/brokers/{former}/drain")
        answer.raise_for_status()
        await until(has_moved)
        await until(has_messages)
        assert (await known()).age_seconds >= before.age_seconds
        (await quick.up["a"].client.delete(f"/v1/cluster/brokers/{former}/drain")).raise_for_status()
    while await owner() == leader_of(quick):
        former = await owner()
        (await quick.up["a"].client.post(f"/v1/cluster/brokers/{former}/drain")).raise_for_status()
        await until(has_moved)
    former = await owner()
    quick.expel(former)
    await until(has_moved)
    assert all(messages == 0 for messages, _, _ in (await known()).sums.values())
