"""Leases in flight while the coordinators of a queue group are of the version before, and of this one, by turns."""

from pathlib import Path

import pytest

from tests.cluster.group_storms.queue_load import QueueLoad
from tests.support.cluster.upgrading_cluster import UpgradingCluster
from tests.support.process.previous_version import BEFORE_EXPOSING
from tests.support.store.shared_store import SharedDirectory

pytestmark = pytest.mark.timeout(300)

SESSION_TIMEOUT_SECONDS = 2.5
GROUPS = "__groups"


@pytest.mark.parametrize("order", ["none", "key"])
async def test_coordinators_of_both_versions_by_turns(tmp_path: Path, order: str) -> None:
    """Each is killed while consumers have messages, and one of either version takes over."""
    store = SharedDirectory(tmp_path / "store")
    with UpgradingCluster(
        tmp_path, store, commit=BEFORE_EXPOSING, session_timeout_seconds=SESSION_TIMEOUT_SECONDS
    ) as cluster:
        await cluster.wait_until_settled()
        await cluster.create_topic("work", segments=2)
        await cluster.wait_until_settled("work")
        load = QueueLoad(lambda: cluster.urls, "work", order=order, seed=2)
        try:
            async with load.running():
                await load.each_acknowledged(5)
                first, second, third = cluster.brokers
                for name in (first, second):
                    await cluster.upgrade(name)
                    await cluster.wait_until_settled("work", GROUPS)
                    await load.each_acknowledged(3)
                    for owner in {*await cluster.owners(GROUPS)}:
                        await cluster.kill(owner)
                        await load.each_acknowledged(3)
                        await cluster.start(owner)
                        await cluster.wait_until_settled("work", GROUPS)
                await cluster.upgrade(third)
                await load.each_acknowledged(3)
            verdict = await load.verdict()
        finally:
            await load.close()
        print(verdict.figures)
        assert verdict.complaints == []
