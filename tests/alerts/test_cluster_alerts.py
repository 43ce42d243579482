"""Brokers die, are paused, lose ZooKeeper, are too few, and are of two clusters."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.alerts.conftest import OpenDesk
from tests.support.broker.broker_process import BrokerProcess
from tests.support.cluster.cluster import UPKEEP, Cluster
from tests.support.cluster.zookeeper_process import ZooKeeperProcess
from tests.support.store.shared_store import SharedDirectory

pytestmark = pytest.mark.timeout(600)
SESSION_SECONDS = 4.0


@contextlib.asynccontextmanager
async def cluster_of(
    folder: Path, brokers: int, *more: str, **settings: Any
) -> AsyncIterator[tuple[Cluster, Mapping[str, str]]]:
    """A cluster with a topic `orders`, and what commands take to reach it."""
    with Cluster(folder, SharedDirectory(folder / "store"), brokers=brokers, arguments=(*UPKEEP, *more)) as cluster:
        await cluster.create_topic("orders", **settings)
        store = (folder / "store").absolute().as_uri()
        yield cluster, {"BRAIDMQ_URL": ",".join(cluster.urls), "BRAIDMQ_STORE": store}


@pytest.mark.alerts("BraidMQBrokerDown", "BraidMQNoBrokerReady")
async def test_brokers_are_killed(tmp_path: Path, open_desk: OpenDesk) -> None:
    async with cluster_of(tmp_path, 2) as (cluster, environment):
        desk = open_desk(environment)
        first = list(cluster.urls)
        desk.prometheus.watch(first)
        await desk.prometheus.until_scraped(2)
        await cluster.kill("b0")
        await desk.fires("BraidMQBrokerDown")
        assert "BraidMQNoBrokerReady" not in await desk.prometheus.firing()
        await cluster.kill("b1")
        await desk.fires("BraidMQNoBrokerReady")
        for name in ("b0", "b1"):
            await cluster.start(name)
        desk.prometheus.watch(cluster.urls)
        await desk.end("BraidMQBrokerDown", "BraidMQNoBrokerReady")


@pytest.mark.alerts("BraidMQNoLeader", "BraidMQZooKeeperLost")
async def test_zookeeper_stops(tmp_path: Path, open_desk: OpenDesk) -> None:
    async with cluster_of(tmp_path, 2) as (cluster, environment):
        desk = open_desk(environment)
        desk.prometheus.watch(cluster.urls)
        await desk.prometheus.until_scraped(2)
        await cluster.stop_zookeeper(kill=True)
        await desk.fires("BraidMQNoLeader")
        await desk.fires("BraidMQZooKeeperLost")
        await cluster.start_zookeeper()
        await desk.end("BraidMQNoLeader", "BraidMQZooKeeperLost")


@pytest.mark.alerts("BraidMQZooKeeperSessionsLost", "BraidMQSegmentsLost")
async def test_a_broker_is_cut_off_and_paused(tmp_path: Path, open_desk: OpenDesk) -> None:
    async with cluster_of(tmp_path, 3, segments=6) as (cluster, environment):
        desk = open_desk(environment, window_seconds=45)
        desk.prometheus.watch(cluster.urls)
        await desk.prometheus.until_scraped(3)
        lost = f'in_touch{{instance="{cluster.brokers["b0"].process.url.removeprefix("http://")}"}}'
        for _ in range(4):
            cluster.cut_from_zookeeper("b0")
            await _until(desk, f"braidmq_{lost} == 0")
            cluster.heal("b0")
            await _until(desk, f"braidmq_{lost} == 1")
        await desk.fires("BraidMQZooKeeperSessionsLost")
        await cluster.wait_until_settled("orders")
        owner = (await cluster.owners("orders"))[0]
        cluster.pause(owner)
        async with asyncio.timeout(90):
            while owner in await cluster.owners("orders"):
                await asyncio.sleep(0.2)
        cluster.resume(owner)
        await desk.fires("BraidMQSegmentsLost")
        await desk.end("BraidMQZooKeeperSessionsLost", "BraidMQSegmentsLost")


async def _until(desk: Any, query: str) -> None:
    async with asyncio.timeout(90):
        while not await desk.prometheus.query(query):
            await asyncio.sleep(0.2)


@pytest.mark.alerts("BraidMQSeveralLeaders")
async def test_brokers_of_one_store_have_two_zookeepers(tmp_path: Path, open_desk: OpenDesk) -> None:
    async with cluster_of(tmp_path, 1) as (cluster, environment):
        desk = open_desk(environment)
        (tmp_path / "other").mkdir()
        with ZooKeeperProcess(tmp_path / "other", session_timeout_seconds=SESSION_SECONDS) as zookeeper:
            arguments = ["--zookeeper", zookeeper.address, *cluster.store.arguments(None)]
            with BrokerProcess(args=arguments) as stranger:
                desk.prometheus.watch([*cluster.urls, stranger.url])
                await desk.prometheus.until_scraped(2)
                await desk.fires("BraidMQSeveralLeaders")
                await asyncio.to_thread(stranger.terminate)
        desk.prometheus.watch(cluster.urls)
        await desk.end("BraidMQSeveralLeaders")


@pytest.mark.alerts("BraidMQTooFewBrokers")
async def test_the_traffic_calls_for_more_brokers(tmp_path: Path, open_desk: OpenDesk) -> None:
    target = {"messages": 20}
    settings = {"segments": 2, "target": target, "max_segments": 2}
    more = ("--segments-per-broker", "1", "--report-interval", "0.5")
    async with cluster_of(tmp_path, 1, *more, **settings) as (cluster, environment):
        desk = open_desk(environment)
        desk.prometheus.watch(cluster.urls)
        await desk.prometheus.until_scraped(1)
        publishing = asyncio.create_task(_publish(cluster.urls[0]))
        try:
            await desk.fires("BraidMQTooFewBrokers")
            await cluster.add()
            await cluster.add()
            desk.prometheus.watch(cluster.urls)
            await desk.end("BraidMQTooFewBrokers")
        finally:
            publishing.cancel()


async def _publish(url: str) -> None:
    """More than one broker is to have, and less than three."""
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as client:
        while True:
            body = {"messages": [{"key": str(number), "value": number} for number in range(25)]}
            await client.post("/v1/topics/orders/messages", json=body)
            await asyncio.sleep(0.5)
