"""A broker that refuses connections is failed over long before its session ends, whether it has died or lives."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.checker.stalls import longest_stall_seconds
from tests.cluster.faults.mixed_workload import demand_clean, light_load, mixed_workload
from tests.support.cluster.cluster import POLL_SECONDS, Cluster
from tests.support.cluster.steered_cluster import SteeredCluster
from tests.support.store.shared_store import SharedDirectory

pytestmark = pytest.mark.timeout(300)

SESSION_SECONDS = 40.0
"""So long that what waits for the end of a session shows."""
REFUSED_SECONDS = 1.0
MOST_SECONDS = SESSION_SECONDS / 3
RECOVER_SECONDS = 60.0
TOPICS = {
    "stored": {"segments": 3},
    "replicated": {"segments": 3, "acks": "replicated", "replicas": 2},
}
REFUSES = "broker_refuses"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    store = SharedDirectory(tmp_path / "store")
    with Cluster(tmp_path, store, session_timeout_seconds=SESSION_SECONDS, arguments=()) as cluster:
        yield cluster


@pytest.fixture
def steered(tmp_path: Path) -> Iterator[SteeredCluster]:
    store, arguments = SharedDirectory(tmp_path / "store"), ("--refused-timeout", f"{REFUSED_SECONDS:g}")
    with SteeredCluster(
        tmp_path, store, session_timeout_seconds=SESSION_SECONDS, arguments=arguments, peer_lines=True
    ) as cluster:
        yield cluster


async def some_owner(cluster: Cluster) -> str:
    """An owner of some segment of each topic that does not lead."""
    leader = await cluster.leader()
    owned = [set(await cluster.owners(topic)) for topic in TOPICS]
    return min(set.intersection(*owned) - {leader or ""})


async def create_topics(cluster: Cluster) -> None:
    await cluster.wait_until_settled()
    for topic, settings in TOPICS.items():
        await cluster.create_topic(topic, **settings)
    await cluster.wait_until_settled(*TOPICS)


async def until_it_owns_nothing(cluster: Cluster, victim: str) -> None:
    async with asyncio.timeout(MOST_SECONDS):
        while any([victim in await cluster.owners(topic) for topic in TOPICS]):
            await asyncio.sleep(POLL_SECONDS)


async def test_a_broker_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    await create_topics(cluster)
    load = light_load(cluster, tuple(TOPICS), seed=0)
    async with load.running():
        await load.each_acknowledged(3)
        victim = await some_owner(cluster)
        with load.fault("kill") as struck:
            await cluster.kill_for_good(victim)
            await load.each_acknowledged(3, timeout_seconds=RECOVER_SECONDS)
        stall_seconds = longest_stall_seconds(load.history, struck)
        verdict = await demand_clean(load, cluster, tmp_path)
    print(f"longest stall {stall_seconds:.2f} s of a session of {SESSION_SECONDS:g} s; {verdict}")
    assert stall_seconds < MOST_SECONDS
    assert cluster.logged(REFUSES) >= 1


async def test_a_broker_lives_and_refuses(steered: SteeredCluster, tmp_path: Path) -> None:
    """Its clients go on publishing there, and it goes on storing and copying to its followers."""
    await create_topics(steered)
    load = mixed_workload(steered, tuple(TOPICS), seed=0)
    async with load.running():
        await load.each_acknowledged(3)
        victim = await some_owner(steered)
        with load.fault("refuse"):
            steered.refuse_peers_and_say_nothing(victim)
            await until_it_owns_nothing(steered, victim)
            await load.each_acknowledged(3, timeout_seconds=RECOVER_SECONDS)
            steered.heal(victim)
        await load.each_acknowledged(3, timeout_seconds=RECOVER_SECONDS)
        verdict = await demand_clean(load, steered, tmp_path)
    print(verdict)
    assert steered.logged(REFUSES) == 1
    assert steered.logged("broker_answers_again") == 1
