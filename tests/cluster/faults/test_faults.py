"""Each fault that a cluster must bear, once, under a load on a stored and a replicated topic.

A real ZooKeeper, an S3 server over the network, three brokers; nothing acknowledged may be lost, doubled or out of
order, and no version of any topic.json may be broken. All faults strike the same brokers, one after the other, each
with topics of its own. `make chaos` repeats them at random, for longer each, for as long as you like.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.checker.stalls import longest_stall_seconds
from tests.cluster.faults.faults import PASSING, FaultKind, Strike, kill_all
from tests.cluster.faults.mixed_workload import LONG_PAUSE_SECONDS, demand_clean, mixed_workload, topics_for_a_while
from tests.cluster.faults.scene import Scene
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.reused_cluster import ReusedCluster
from tests.support.store.shared_store import S3Bucket

# One worker has them all, and so one cluster.
pytestmark = [pytest.mark.xdist_group("faults"), pytest.mark.timeout(300)]

RECOVER_SECONDS = 90.0
# Of each producer; those that send one message at a time need a second and more for that.
BEFORE_AND_AFTER = 3
STORED = {"segments": 3}
REPLICATED = {"segments": 3, "acks": "replicated", "replicas": 3}
# Most faults last for some sessions, and a broker that has died is missed for one.
SESSION_TIMEOUT_SECONDS = 2.5
# For so long the store or ZooKeeper is away: past every session and every first retry, and no longer than it takes.
AWAY_SECONDS = 6.0
# Splits and merges without more are tried by `make chaos`; here the owner dies in the middle of one. A storm of them
# has a test of its own, and so has a broker that refuses: `test_early_failover.py`.
KINDS = [kind for kind in PASSING if kind.name not in ("split", "merge", "storm", "refuse")]


@pytest.fixture(scope="module")
def reused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReusedCluster]:
    def cluster() -> Cluster:
        folder = tmp_path_factory.mktemp("cluster")
        return Cluster(folder, S3Bucket(), session_timeout_seconds=SESSION_TIMEOUT_SECONDS)

    with ReusedCluster(cluster) as reused:
        yield reused


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_a_fault(reused: ReusedCluster, kind: FaultKind, rounds: int, tmp_path: Path) -> None:
    with reused.use() as cluster:
        for seed in seeds(rounds):
            settings = {f"stored-{kind.name}-{seed}": STORED, f"replicated-{kind.name}-{seed}": REPLICATED}
            async with topics_for_a_while(cluster, settings) as topics:
                print(await strike(kind.name, kind.strike, cluster, topics, seed, tmp_path))


async def test_all_brokers_die_at_once(reused: ReusedCluster, tmp_path: Path) -> None:
    """What is stored needs no broker to live."""
    with reused.use() as cluster:
        async with topics_for_a_while(cluster, {"stored-kill-all": STORED}) as topics:
            print(await strike("kill-all", kill_all, cluster, topics, 0, tmp_path))


def seeds(rounds: int) -> range:
    """As many as are asked for (BRAIDMQ_TEST_ROUNDS), of which one is enough for each run of all tests."""
    return range(max(1, rounds // 3))


async def strike(name: str, fault: Strike, cluster: Cluster, topics: tuple[str, ...], seed: int, folder: Path) -> str:
    """One fault under load; raises `AssertionError` where the verdict on all that happened is not clean."""
    load = mixed_workload(cluster, topics, seed=seed, pause_seconds=LONG_PAUSE_SECONDS)
    scene = Scene(cluster, load, topics, random.Random(f"{name} {seed}"), away_seconds=AWAY_SECONDS)
    async with load.running():
        await load.each_acknowledged(BEFORE_AND_AFTER)
        with load.fault(name) as struck:
            await fault(scene)
            await cluster.wait_until_settled(*topics)
        await load.each_acknowledged(BEFORE_AND_AFTER, timeout_seconds=RECOVER_SECONDS)
        verdict = await demand_clean(load, cluster, folder)
    return f"{name}: longest stall {longest_stall_seconds(load.history, struck):.2f} s; {verdict}"
