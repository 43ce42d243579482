"""A flood splits a topic over three real brokers, and its end merges it again, under the checker's eyes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.checker.consumers import Consumer
from tests.cluster.checker.producers import Producer
from tests.cluster.checker.workload import Workload
from tests.cluster.mixed_load import TIMEOUT_SECONDS, demand_clean
from tests.support.cluster import POLL_SECONDS, Cluster
from tests.support.shared_store import SharedDirectory

pytestmark = [pytest.mark.xdist_group("faults"), pytest.mark.timeout(180)]

TOPIC = "river"
SETTINGS = {
    "max_segments": 6,
    "target": {"messages": 40, "bytes": 1e9},
    "scaling": {
        "split": [{"times_target": 1, "for_seconds": 2}],
        "merge": {"times_target": 0.5, "for_seconds": 3},
        "cooldown_seconds": 3,
    },
}
FLOOD_PAUSE_SECONDS, CALM_PAUSE_SECONDS = 0.02, 5.0
PATIENCE_SECONDS = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    arguments = ("--report-interval", "0.2")
    with Cluster(tmp_path, SharedDirectory(tmp_path / "store"), arguments=arguments) as cluster:
        yield cluster


def producers() -> list[Producer]:
    """Every form, with and without an id."""
    return [
        Producer("raw", TOPIC, "raw", identified=True, pause_seconds=FLOOD_PAUSE_SECONDS),
        Producer("json", TOPIC, "json", keys=7, identified=True, repeat_every=10, pause_seconds=FLOOD_PAUSE_SECONDS),
        Producer("ndjson", TOPIC, "ndjson", keys=5, pause_seconds=FLOOD_PAUSE_SECONDS),
        Producer("arrow", TOPIC, "arrow", keys=11, rows=20, identified=True, pause_seconds=FLOOD_PAUSE_SECONDS),
    ]


def consumers() -> list[Consumer]:
    return [
        Consumer("stream", TOPIC, "stream", reconnect_seconds=3.0),
        Consumer("pages", TOPIC, "browse", rewinds=True, pause_seconds=0.2),
        Consumer("late", TOPIC, "stream", start="latest"),
    ]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():
            await asyncio.sleep(POLL_SECONDS)


async def test_a_flood_and_its_end(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.create_topic(TOPIC, **SETTINGS)
    publishing = producers()
    load = Workload(cluster.urls, producers=publishing, consumers=consumers(), timeout_seconds=TIMEOUT_SECONDS)

    async def is_spread() -> bool:
        return set(await cluster.owners(TOPIC)) == set(cluster.brokers)

    async def is_one() -> bool:
        return len(await cluster.segments(TOPIC)) == 1

    async with load.running():
        await until(is_spread)
        await load.each_acknowledged(20)
        for producer in publishing:
            producer.pause_seconds = CALM_PAUSE_SECONDS
        await until(is_one)
        print(await demand_clean(load, cluster, tmp_path))
