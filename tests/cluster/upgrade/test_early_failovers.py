"""Brokers that refuse connections, where only some brokers fail them over early, and look at them for the leader.

A leader of the version before waits for the session, as it did. So does one of this version that has none of its own
version to ask. Whose process has died does not matter.
"""

import asyncio
from pathlib import Path

import pytest

from tests.cluster.faults.mixed_workload import demand_clean, light_load
from tests.support.cluster.upgrading_cluster import UpgradingCluster
from tests.support.store.shared_store import SharedDirectory

pytestmark = pytest.mark.timeout(300)

SESSION_SECONDS = 8.0
RECOVER_SECONDS = 60.0
BEFORE_AND_AFTER = 3
TOPICS = {
    "stored": {"segments": 6},
    "replicated": {"segments": 6, "acks": "replicated", "replicas": 2},
}
EARLY = "broker_refuses"


async def test_old_and_new_brokers_side_by_side(tmp_path: Path) -> None:
    store = SharedDirectory(tmp_path / "store")
    with UpgradingCluster(tmp_path, store, session_timeout_seconds=SESSION_SECONDS, arguments=()) as cluster:
        await cluster.wait_until_settled()
        for topic, settings in TOPICS.items():
            await cluster.create_topic(topic, **settings)
        await cluster.wait_until_settled(*TOPICS)
        load = light_load(cluster, tuple(TOPICS), seed=1)

        async def early_failovers_of(victim: str) -> int:
            """Kill an owner, wait until others have its segments, and start it again."""
            async with asyncio.timeout(RECOVER_SECONDS):
                # It may have been spread before the victim was there again.
                while victim not in [*await cluster.owners("stored"), *await cluster.owners("replicated")]:
                    await cluster.wait_until_spread()
                    await asyncio.sleep(0.2)
            before = cluster.logged(EARLY)
            await load.each_acknowledged(BEFORE_AND_AFTER, timeout_seconds=RECOVER_SECONDS)
            with load.fault("kill", victim):
                await cluster.kill(victim)
                await load.each_acknowledged(BEFORE_AND_AFTER, timeout_seconds=RECOVER_SECONDS)
                early = cluster.logged(EARLY) - before
                await cluster.wait_until_settled(*TOPICS)
            await cluster.start(victim)
            await cluster.wait_until_settled(*TOPICS)
            return early

        async with load.running():
            first = await cluster.leader()
            assert first is not None
            second, third = sorted(cluster.brokers.keys() - {first})
            # Whoever is the first to look once the leader has gone leads. One that has just restarted is not.
            await cluster.upgrade(second)
            await cluster.wait_until_settled(*TOPICS)
            assert (await cluster.leader(), await early_failovers_of(second)) == (first, 0)
            await cluster.upgrade(first)
            await cluster.wait_until_settled(*TOPICS)
            assert await cluster.leader() != first
            await cluster.restart(third)
            await cluster.wait_until_settled(*TOPICS)
            # Only the third is old now, and leads no more.
            leader = await cluster.leader()
            other = {first: second, second: first}[leader or ""]
            assert (await early_failovers_of(other), await cluster.leader()) == (0, leader)
            assert (await early_failovers_of(third), await cluster.leader()) == (1, leader)
            print(await demand_clean(load, cluster, tmp_path))
