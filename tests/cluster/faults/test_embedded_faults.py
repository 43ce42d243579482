"""The faults that one broker can suffer which is a cluster of its own, but for kills on a directory: test_kill.py."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.checker.stalls import longest_stall_seconds
from tests.cluster.faults.faults import kill_all, kind_named
from tests.cluster.faults.mixed_workload import demand_clean, mixed_workload
from tests.cluster.faults.scene import Scene
from tests.support.cluster.cluster import Cluster
from tests.support.store.shared_store import S3Bucket, SharedDirectory, SharedStore

TOPICS = ("one", "four")
AWAY_SECONDS = 4.0


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SharedStore:
    return S3Bucket() if request.param == "s3" else SharedDirectory(tmp_path / "store")


@pytest.fixture
def cluster(store: SharedStore, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, store, brokers=1, zookeeper=False, session_timeout_seconds=1.0) as cluster:
        yield cluster


async def create_topics(cluster: Cluster) -> None:
    for topic, segments in zip(TOPICS, (1, 4), strict=True):
        await cluster.create_topic(topic, segments=segments)


CASES = [
    ("directory", "pause-owner"),
    ("s3", "cut-owner-from-store"),
    ("s3", "store-unavailable"),
    ("s3", "store-silent"),
]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("store", "kind"), CASES, indirect=["store"])
async def test_each_fault(cluster: Cluster, kind: str, tmp_path: Path) -> None:
    await create_topics(cluster)
    load = mixed_workload(cluster, TOPICS, seed=1, identified=False)
    async with load.running():
        await load.each_acknowledged(5)
        with load.fault(kind) as fault:
            await kind_named(kind).strike(Scene(cluster, load, TOPICS, random.Random(1), away_seconds=AWAY_SECONDS))
        await load.each_acknowledged(5)
        print(await demand_clean(load, cluster, tmp_path))
    print(f"longest stall {longest_stall_seconds(load.history, fault):.2f} s")


@pytest.mark.parametrize("store", ["s3"], indirect=True)
async def test_one_kill_after_the_other(cluster: Cluster, tmp_path: Path, rounds: int) -> None:
    await create_topics(cluster)
    load = mixed_workload(cluster, TOPICS, seed=rounds, identified=False)
    scene = Scene(cluster, load, TOPICS, random.Random(rounds), away_seconds=AWAY_SECONDS)
    async with load.running():
        for _ in range(rounds):
            # A topic that nobody uses is not failed over.
            await load.each_acknowledged(2)
            with load.fault("kill"):
                await kill_all(scene)
        await load.each_acknowledged(5)
        await demand_clean(load, cluster, tmp_path)
    versions = [history.versions for history in cluster.store.topic_histories()]
    # Each life of the broker fails over what the one before had open.
    assert len(versions) == len(TOPICS)
    assert all(count > 2 * rounds for count in versions), versions
