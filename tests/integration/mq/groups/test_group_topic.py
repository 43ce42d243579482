"""The topic `__groups` is made when it is first needed, once, whoever needs it, and is replicated as brokers come."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from filer import keys
from filer.clock import SystemClock
from filer.keys import GROUPS_TOPIC
from filer.segment.next_file import Single
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Store
from filer.topic.topic_config import TopicConfig
from leader import leader_loop
from leader.membership.coordinator import InProcessCoordinator
from mq.base.errors import Conflict
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.groups import group_topic
from mq.topic.topic_runtime import TopicRuntime
from tests.support.cluster.http_cluster import HttpCluster, until
from tests.support.store.dying_store import DyingStore, Killed


@pytest.fixture
async def cluster() -> AsyncIterator[HttpCluster]:
    """Brokers that a test starts."""
    made = HttpCluster()
    try:
        yield made
    finally:
        await made.stop_all()


@contextlib.asynccontextmanager
async def alone(store: Store) -> AsyncIterator[Broker]:
    """A broker without a cluster."""
    broker = Broker(store, SystemClock(), InProcessCoordinator(), BrokerSettings(maintenance_interval=3600))
    await broker.start("http://here")
    try:
        yield broker
    finally:
        await broker.close()


async def ensure(broker: Broker) -> TopicRuntime:
    return await group_topic.ensure(broker.topics, broker.administration)


async def store_record(broker: Broker) -> None:
    """Publish what a group would."""
    runtime = await ensure(broker)
    message = Single(b"t/g", b'{"position":1}', None, None)
    await runtime.publisher.publish_single(message, 20, replicated=True)


async def test_any_number_of_brokers_make_it_once(cluster: HttpCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    await cluster.start("a", "b", "c")
    brokers = [each.broker for each in cluster.up.values()]
    made = await asyncio.gather(*(ensure(broker) for broker in brokers * 3))
    assert caplog.text.count("topic_created topic=__groups") == 1
    assert {runtime.state for runtime in made} == {made[0].state}
    (segment,) = made[0].state.open_segments
    assert len(segment.brokers) == 2
    assert made[0].state.config.retention.seconds is made[0].state.config.retention.bytes is None
    await asyncio.gather(*(store_record(broker) for broker in brokers))


async def test_it_gets_a_second_replica_when_a_second_broker_comes(
    cluster: HttpCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_loop, "SETTLE_SECONDS", 0.05)
    await cluster.start("a")
    await store_record(cluster.up["a"].broker)
    assert await cluster.brokers_of("a", GROUPS_TOPIC) == [["a"]]
    await cluster.start("b")

    async def replicated() -> bool:
        return await cluster.brokers_of("a", GROUPS_TOPIC) == [["a", "b"]]

    await until(replicated)
    await store_record(cluster.up["b"].broker)


async def test_a_broker_without_a_cluster_makes_it_too() -> None:
    async with alone(MemoryStore()) as broker:
        await store_record(broker)
        assert (await ensure(broker)).state.config == group_topic.CONFIG


@pytest.mark.parametrize("was_deleted", [False, True])
async def test_a_broker_that_is_killed_while_it_makes_it_leaves_the_whole_topic_or_none(was_deleted: bool) -> None:
    """Stopped at every request, each time before and after it takes effect."""
    outcomes = set()
    for request in range(20):
        for before in (True, False):
            memory = MemoryStore()
            if was_deleted:
                async with alone(memory) as earlier:
                    await ensure(earlier)
                    await earlier.administration.delete(GROUPS_TOPIC)
            async with alone(DyingStore(memory)) as killed:
                assert isinstance(killed.store, DyingStore)
                killed.store.die_at(request, before=before)
                try:
                    await ensure(killed)
                    outcomes.add("lived")
                except Killed:
                    outcomes.add("killed")
            async with alone(memory) as next_one:
                await ensure(next_one)
                state = next_one.topics[GROUPS_TOPIC].state
                assert state.config == group_topic.CONFIG and len(state.open_segments) == 1
        if "lived" in outcomes:
            break
    assert outcomes == {"lived", "killed"}


async def test_a_topic_of_that_name_which_a_user_had_made_is_told() -> None:
    store = MemoryStore()
    async with alone(store) as broker:
        await broker.administration.ensure(GROUPS_TOPIC, TopicConfig())
        record = (await store.get(keys.topic(GROUPS_TOPIC))).data
        with pytest.raises(Conflict, match="its keys are binary and its values binary, where groups need string"):
            await ensure(broker)
        assert (await store.get(keys.topic(GROUPS_TOPIC))).data == record
