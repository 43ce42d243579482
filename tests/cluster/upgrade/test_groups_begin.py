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


async def topic_group_begun_early(cluster: UpgradingCluster, new: str, old: str) -> list[str]:
    """A topic group while there are brokers of the version before: they cannot read it, and leave it alone.

    What could be published to it: nothing, if the one that is to own it is such a broker.
    """
    url = cluster.brokers[new].announced_url
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        settings = {"topics": ["orders", "payments"], "value_type": "string"}
        (await client.put("/v1/topic-groups/shop", json=settings)).raise_for_status()
        stored: list[str] = []
        for number in range(4):
            body = {"messages": [{"key": "k", "value": f"early {number}"}]}
            answer = await client.post(f"/v1/topics/{('orders', 'payments')[number % 2]}/messages", json=body)
            assert answer.status_code in (200, 503), answer.text
            if answer.status_code == 200 and not number % 2:
                stored.append(f"early {number}")
    async with httpx.AsyncClient(base_url=cluster.brokers[old].announced_url, timeout=60, trust_env=False) as client:
        for name in ("shop", "orders"):
            answer = await client.get(f"/v1/topics/{name}/messages")
            assert answer.status_code >= 500, answer.text
            refused = await client.post(f"/v1/topics/{name}/messages", json={"messages": [{"value": "x"}]})
            assert refused.status_code >= 500, refused.text
            assert (await client.put(f"/v1/topics/{name}")).status_code >= 500
        (await client.get("/v1/topics/work")).raise_for_status()
    return stored


async def work_through_member(url: str, early: list[str]) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        for topic in ("orders", "payments"):
            body = {"messages": [{"key": "k", "value": f"late of {topic}"}]}
            (await client.post(f"/v1/topics/{topic}/messages", json=body)).raise_for_status()
        answer = await client.post("/v1/topics/orders/groups/g/claims", json={"wait": 10})
        found = [message["value"] for message in answer.raise_for_status().json()["messages"]]
        # One whose answer said that it may come may be there as well.
        assert found[-1] == "late of orders" and set(early) <= set(found) and found[:-1] == sorted(found[:-1])


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
        early = await topic_group_begun_early(cluster, first, rest[0])
        for name in rest:
            await cluster.upgrade(name)
        await cluster.wait_until_settled("work", "__groups")
        assert (await claim(cluster.brokers[rest[0]].announced_url)).status_code == 200
        await cluster.wait_until_settled("shop")
        await work_through_member(cluster.brokers[rest[0]].announced_url, early)
        load = QueueLoad(lambda: cluster.urls, "work", order="none", seed=1, scattered=False)
        try:
            async with load.running():
                await load.each_acknowledged(10)
            verdict = await load.verdict()
        finally:
            await load.close()
        assert verdict.complaints == []
