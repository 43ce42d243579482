"""Each fault that a cluster must bear, with random timing, under a load on a stored and a replicated topic.

A real ZooKeeper, an S3 server over the network, three brokers; nothing acknowledged may be lost, doubled or out of
order, and no version of any topic.json may be broken. `make faults` runs them, on a machine that does nothing else;
`make chaos` repeats them for as long as you like.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.checker.stalls import longest_stall_seconds
from tests.cluster.faults import KINDS, FaultKind, Scene, kill_all
from tests.cluster.mixed_load import demand_clean, mixed_load
from tests.support.cluster import Cluster
from tests.support.shared_store import S3Bucket

pytestmark = pytest.mark.faults

BROKERS = 3
RECOVER_SECONDS = 90.0
STORED, REPLICATED = "stored", "replicated"
SETTINGS = {
    STORED: {"segments": 3},
    REPLICATED: {"segments": 3, "acks": "replicated", "replicas": 3},
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, S3Bucket(), brokers=BROKERS) as cluster:
        yield cluster


async def create_topics(cluster: Cluster, *topics: str) -> tuple[str, ...]:
    for topic in topics:
        await cluster.create_topic(topic, **SETTINGS[topic])
    await cluster.wait_until_settled(*topics)
    return topics


def seeds(rounds: int) -> range:
    """As many as are asked for (BRAIDMQ_TEST_ROUNDS), of which one is enough for each run of all tests."""
    return range(max(1, rounds // 3))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_a_fault(cluster: Cluster, kind: FaultKind, rounds: int, tmp_path: Path) -> None:
    topics = await create_topics(cluster, STORED, REPLICATED)
    load = mixed_load(cluster, topics, seed=rounds)
    async with load.running():
        for seed in seeds(rounds):
            await load.each_acknowledged(10)
            with load.fault(kind.name) as fault:
                await kind.strike(Scene(cluster, load, topics, random.Random(f"{kind.name} {seed}")))
                await cluster.wait_until_settled(*topics)
            await load.each_acknowledged(10, timeout_seconds=RECOVER_SECONDS)
            print(f"{kind.name}: longest stall {longest_stall_seconds(load.history, fault):.2f} s")
        print(await demand_clean(load, cluster, tmp_path))


@pytest.mark.timeout(600)
async def test_all_brokers_die_at_once(cluster: Cluster, tmp_path: Path) -> None:
    """What is stored needs no broker to live."""
    topics = await create_topics(cluster, STORED)
    load = mixed_load(cluster, topics, seed=0)
    async with load.running():
        await load.each_acknowledged(10)
        with load.fault("kill-all"):
            await kill_all(Scene(cluster, load, topics, random.Random(0)))
            await cluster.wait_until_settled(*topics)
        await load.each_acknowledged(10, timeout_seconds=RECOVER_SECONDS)
        await demand_clean(load, cluster, tmp_path)
