"""Consumer groups begin while a cluster is upgraded: it has no `__groups`, and the version before knows no groups."""

from pathlib import Path

import httpx
import pytest

from tests.cluster.group_storms.queue_load import QueueLoad
from tests.support.cluster.upgrading_cluster import UpgradingCluster
from tests.support.store.shared_store import SharedDirectory

pytestmark = pytest.mark.timeout(300)

SESSION_TIMEOUT_SECONDS = 2.5
GROUP = "/v1/topics/work/groups/early"


async def claim(url: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        return await client.post(f"{GROUP}/claims", json={"max": 1})


async def test_a_group_that_is_used_too_early_is_told_and_works_afterwards(tmp_path: Path) -> None:
    """The owner of `__groups` may be a broker of the version before: whoever asks is told to come again."""
    store = SharedDirectory(tmp_path / "store")
    with UpgradingCluster(tmp_path, store, session_timeout_seconds=SESSION_TIMEOUT_SECONDS) as cluster:
        await cluster.wait_until_settled()
        await cluster.create_topic("work", segments=2)
        await cluster.wait_until_settled("work")
        first, *rest = list(cluster.brokers)
        assert (await claim(cluster.brokers[rest[0]].announced_url)).status_code == 404
        await cluster.upgrade(first)
        await cluster.wait_until_settled("work")
        answer = await claim(cluster.brokers[first].announced_url)
        assert answer.status_code == 200 or (answer.status_code == 503 and answer.json()["retryable"]), answer.text
        for name in rest:
            await cluster.upgrade(name)
        await cluster.wait_until_settled("work", "__groups")
        assert (await claim(cluster.brokers[rest[0]].announced_url)).status_code == 200
        load = QueueLoad(lambda: cluster.urls, "work", order="none", seed=1)
        try:
            async with load.running():
                await load.each_acknowledged(10)
            verdict = await load.verdict()
        finally:
            await load.close()
        assert verdict.complaints == []
