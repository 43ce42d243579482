"""Each panel of each dashboard shows data for a cluster under load."""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.alerts.load import messages, repeated
from tests.support.cluster.secure_cluster import SecureCluster
from tests.support.monitoring.chart_queries import Panel, panels
from tests.support.monitoring.prometheus import Prometheus
from tests.support.monitoring.short_rules import JOB, short_rules
from tests.support.store.shared_store import S3Bucket

SETTLE_SECONDS, SHOWN_SECONDS = 240, 120
CHOSEN = {"namespace": ".*", "job": JOB, "topic": ".*", "group": ".*", "instance": ".*"}
PRICES = {"put_price": "0.005", "get_price": "0.0004", "storage_price": "0.023"}
GROUP = "/v1/topics/orders/groups/billing"
POLICY = {"quotas": [{"principal": "http*", "storage_bytes": 10**8, "storage_topics": "orders*"}]}
UPKEEP = ("--maintenance-interval", "1", "--rollup-age", "0", "--scrub-days", "0.0005")


def as_grafana_asks(query: str) -> str:
    """A panel's query with everything chosen, as Grafana fills it in for a short time."""
    for name, value in {**CHOSEN, **PRICES, "__rate_interval": "30s"}.items():
        query = query.replace(f"${name}", value)
    return query


@pytest.mark.timeout(900)
async def test_every_panel_shows_data(tmp_path: Path) -> None:
    """With BRAIDMQ_PANELS=FOLDER, what panels show is left there as JSON, to be drawn and looked at."""
    with SecureCluster(tmp_path, S3Bucket(), brokers=2, arguments=UPKEEP) as cluster:
        await cluster.create_topic("orders", segments=4)
        async with cluster.access.client(base_url=cluster.urls[0], timeout=60) as client:
            etag = (await client.get("/v1/cluster/policy")).raise_for_status().headers["etag"]
            changed = await client.put("/v1/cluster/policy", json=POLICY, headers={"if-match": etag})
            changed.raise_for_status()
            (await client.put(GROUP)).raise_for_status()
            token, ca = (Path(os.environ[f"BRAIDMQ_{each}"]) for each in ("TOKEN_FILE", "CA"))
            with Prometheus(tmp_path, short_rules(), token=token.read_text(), ca=ca) as prometheus:
                prometheus.watch(cluster.urls)
                await prometheus.until_scraped(2)
                async with repeated(*_works(client, cluster.urls)):
                    await _until_all_show(prometheus)
                    if folder := os.environ.get("BRAIDMQ_PANELS"):
                        await _leave(prometheus, Path(folder))


def _works(client: httpx.AsyncClient, urls: Sequence[str]) -> Sequence[Callable[[], Awaitable[Any]]]:
    asked = cycle(urls)

    async def consume() -> None:
        """One in ten is given up, the others are done."""
        claimed = (await client.post(f"{GROUP}/claims", json={"max": 10})).json().get("messages", [])
        parts = [{"claim": each["claim"], "id": each["id"]} for each in claimed]
        if parts:
            await client.post(f"{GROUP}/acks", json={"messages": parts[1:] or parts})
            await client.post(f"{GROUP}/releases", json={"messages": parts[:1], "dead": True})

    return (
        lambda: client.post(f"{next(asked)}/v1/topics/orders/messages", json=messages(20, os.urandom(100).hex())),
        lambda: client.get(f"{next(asked)}/v1/topics/orders/messages", params={"from": "earliest"}),
        lambda: client.post("/v1/topics/nowhere/messages", json=messages(1)),
        consume,
    )


async def _until_all_show(prometheus: Prometheus) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS
    while empty := [str(each) for each in panels() if not await _shows(prometheus, each)]:
        assert time.monotonic() < deadline, f"without data: {', '.join(empty)}"
        await asyncio.sleep(2)


async def _shows(prometheus: Prometheus, panel: Panel) -> bool:
    """Whether each of its queries finds a number."""
    for query, _ in panel.queries:
        found = await prometheus.query(as_grafana_asks(query))
        if not any(each["value"][1] != "NaN" for each in found):
            return False
    return True


async def _leave(prometheus: Prometheus, folder: Path) -> None:
    await asyncio.sleep(SHOWN_SECONDS)
    now = time.time()
    folder.mkdir(parents=True, exist_ok=True)
    for number, panel in enumerate(panels()):
        found = [
            (legend, await prometheus.query_range(as_grafana_asks(query), now - SHOWN_SECONDS, now))
            for query, legend in panel.queries
        ]
        told = {"dashboard": panel.dashboard, "title": panel.title, "lines": found}
        (folder / f"{number:03}.json").write_text(json.dumps(told))
