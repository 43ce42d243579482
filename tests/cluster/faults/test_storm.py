"""Splits and merges at random by several hands, while owners, leaders, any brokers and consumers are killed.

Three real brokers, a ZooKeeper and a directory; nothing acknowledged may be lost, doubled or out of order, consumers
that are killed go on where they were, and no version of any topic.json may be broken. `make chaos ARGS="--only storm"`
has hundreds of them over S3.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from filer.topic.topic_state import TopicState
from tests.cluster.checker.history import History, Visit
from tests.cluster.checker.stalls import longest_stall_seconds
from tests.cluster.faults.mixed_workload import demand_clean, mixed_workload, topics_for_a_while
from tests.cluster.faults.scene import Scene
from tests.cluster.faults.storm import MOST_OPEN, Storm
from tests.support.cluster.cluster import Cluster
from tests.support.store.shared_store import SharedDirectory

pytestmark = pytest.mark.timeout(600)

SEED, TRANSITIONS = 11, 60
# Who has died is missed for one, and comes back within one and a half.
SESSION_TIMEOUT_SECONDS = 2.5
RECOVER_SECONDS = 90.0
# Streams that begin anew every few seconds have many segments to go through.
FINISH_SECONDS = 180.0
STORED = {"max_segments": MOST_OPEN + 1}
REPLICATED = {**STORED, "acks": "replicated", "replicas": 3}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    store = SharedDirectory(tmp_path / "store")
    with Cluster(tmp_path, store, session_timeout_seconds=SESSION_TIMEOUT_SECONDS) as cluster:
        yield cluster


async def test_a_storm(cluster: Cluster, tmp_path: Path) -> None:
    async with topics_for_a_while(cluster, {"stored": STORED, "replicated": REPLICATED}) as topics:
        consumers = tmp_path / "consumers"
        load = mixed_workload(cluster, topics, seed=SEED, processes_in=consumers, finish_seconds=FINISH_SECONDS)
        storm = Storm(Scene(cluster, load, topics, random.Random(SEED), away_seconds=0.0), transitions=TRANSITIONS)
        async with load.running():
            await load.each_acknowledged(5, timeout_seconds=RECOVER_SECONDS)
            with load.fault("storm") as struck:
                await storm.blow()
                await cluster.wait_until_settled(*topics)
            await load.each_acknowledged(5, timeout_seconds=RECOVER_SECONDS)
            verdict = await demand_clean(load, cluster, tmp_path)
        made = sum(transitions_of(cluster.store.topic_state(topic)) for topic in topics)
    print(f"{storm.report()}; longest stall {longest_stall_seconds(load.history, struck):.2f} s; {verdict}")
    assert made >= storm.transitions >= TRANSITIONS
    assert set(storm.kills) == {"owner", "leader", "any broker", "consumer"}
    assert any(visit.behind for visit in process_visits(load.history)), "no killed consumer went on from a marker"


def transitions_of(state: TopicState) -> int:
    """How many splits and merges a topic's record tells of."""
    return len({s.predecessors for s in state.segments if s.reason in ("split", "merge")})


def process_visits(history: History) -> list[Visit]:
    """The lives of the consumers that are processes."""
    return [visit for reader in history.readers if reader.name.endswith("-process") for visit in reader.visits]
