"""A rolling restart from the version before to this one, under load: both versions run side by side meanwhile."""

import random
from pathlib import Path

import pytest

from tests.cluster.faults.faults import kill_owner, merge_segments, split_segments
from tests.cluster.faults.mixed_workload import LONG_PAUSE_SECONDS, demand_clean, mixed_workload
from tests.cluster.faults.scene import Scene
from tests.support.cluster.upgrading_cluster import UpgradingCluster
from tests.support.store.shared_store import SharedDirectory

pytestmark = pytest.mark.timeout(600)

BEFORE_AND_AFTER = 3
RECOVER_SECONDS = 90.0
SESSION_TIMEOUT_SECONDS = 2.5
TOPICS = {
    "stored": {"segments": 3},
    "replicated": {"segments": 3, "acks": "replicated", "replicas": 3},
}


async def test_old_and_new_brokers_side_by_side(tmp_path: Path) -> None:
    """At each stage segments split and merge, and an owner dies: whoever owns, leads or follows, old or new.

    Every acknowledged message is read exactly once and in order, through every broker.
    """
    with UpgradingCluster(
        tmp_path, SharedDirectory(tmp_path / "store"), session_timeout_seconds=SESSION_TIMEOUT_SECONDS
    ) as cluster:
        await cluster.wait_until_settled()
        for topic, settings in TOPICS.items():
            await cluster.create_topic(topic, **settings)
        await cluster.wait_until_settled(*TOPICS)
        load = mixed_workload(cluster, list(TOPICS), seed=1, pause_seconds=LONG_PAUSE_SECONDS)
        scene = Scene(cluster, load, tuple(TOPICS), random.Random(1), away_seconds=1.0)
        async with load.running():
            await load.each_acknowledged(BEFORE_AND_AFTER)
            for name in list(cluster.brokers):
                with load.fault("upgrade", name):
                    await cluster.upgrade(name)
                    await cluster.wait_until_settled(*TOPICS)
                for strike in (split_segments, merge_segments, kill_owner):
                    with load.fault(strike.__name__):
                        await strike(scene)
                        await cluster.wait_until_settled(*TOPICS)
                await load.each_acknowledged(BEFORE_AND_AFTER, timeout_seconds=RECOVER_SECONDS)
            print(await demand_clean(load, cluster, tmp_path))
