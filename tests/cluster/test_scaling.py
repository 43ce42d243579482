"""Floods, hot keys and rolls on three real brokers, whose topics split and merge on their own within seconds."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import datetime
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from filer.slots import slot_of
from tests.cluster.checker.consumers import Consumer
from tests.cluster.checker.history import Start
from tests.cluster.checker.producers import Producer
from tests.cluster.checker.workload import Workload
from tests.cluster.faults.mixed_workload import TIMEOUT_SECONDS, demand_clean
from tests.support.cluster.cluster import POLL_SECONDS, Cluster
from tests.support.cluster.reused_cluster import ReusedCluster
from tests.support.process.mq import mq
from tests.support.store.shared_store import SharedDirectory

# One flood at a time, on one cluster: two side by side would take each other's processors.
pytestmark = [pytest.mark.xdist_group("scaling"), pytest.mark.timeout(180)]

REPORT_SECONDS = 0.2
ARGUMENTS = ("--report-interval", str(REPORT_SECONDS), "--maintenance-interval", "0.2", "--rollup-age", "0")
WINDOW_SECONDS = 1.5
TARGET = 40
SCALING = {
    "target": {"messages": TARGET, "bytes": 1e9},
    "scaling": {
        "split": [{"times_target": 1, "for_seconds": WINDOW_SECONDS}],
        "merge": {"times_target": 0.5, "for_seconds": 2},
        "cooldown_seconds": 2,
    },
}
FLOOD_EVERY_SECONDS, CALM_EVERY_SECONDS = 0.5, 8.0
PATIENCE_SECONDS = 60.0
# What the API tells is of a fraction of a window: a mean over some time says whether a segment is near its target.
NEAR = 1.25
FLOOD_TIMES_TARGET = 2 * (1 + 15 + 15 + 30) / FLOOD_EVERY_SECONDS / TARGET
# So many times the segments that would do, where every one that is a little too hot is cut in two.
MOST_SPARE = 3


@pytest.fixture(scope="module")
def reused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReusedCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with ReusedCluster(lambda: Cluster(folder, SharedDirectory(folder / "store"), arguments=ARGUMENTS)) as reused:
        yield reused


@pytest.fixture
async def cluster(reused: ReusedCluster) -> AsyncIterator[Cluster]:
    with reused.use() as cluster:
        yield cluster


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():
            await asyncio.sleep(POLL_SECONDS)


async def open_segments(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    segments = (await cluster.ask(f"/v1/topics/{topic}"))["segments"]
    return [segment for segment in segments if segment["state"] == "open"]


async def history(cluster: Cluster, topic: str, *reasons: str) -> list[dict[str, Any]]:
    """The segments that were opened for these reasons."""
    lives = (await cluster.ask(f"/v1/topics/{topic}/history"))["segments"]
    return [life for life in lives if life["reason"] in reasons]


def pace(producers: Iterable[Producer], every_seconds: float) -> None:
    for producer in producers:
        producer.every_seconds = every_seconds


# -- a flood and its end -----------------------------------------------------------------------------------


def of_every_form(topic: str) -> list[Producer]:
    """With and without an id, two of each; each key has far less than a segment's target, together six times that."""
    return [
        producer
        for n in "ab"
        for producer in (
            Producer(f"raw-{n}", topic, "raw", identified=True),
            Producer(f"json-{n}", topic, "json", keys=45, rows=15, identified=True, repeat_every=10),
            Producer(f"ndjson-{n}", topic, "ndjson", keys=45, rows=15),
            Producer(f"arrow-{n}", topic, "arrow", keys=90, rows=30, identified=True),
        )
    ]


def readers(name: str, topic: str, *starts: Start) -> list[Consumer]:
    """Every way of reading."""
    return [
        each
        for start in starts
        for each in (
            Consumer(f"{name} {start} stream", topic, "stream", start, reconnect_seconds=3.0),
            Consumer(f"{name} {start} pages", topic, "browse", start, pause_seconds=0.2),
            Consumer(f"{name} {start} client", topic, "client", start, reconnect_seconds=5.0),
        )
    ]


async def mean_loads(cluster: Cluster, topic: str, seconds: float) -> dict[int, float]:
    """Times the target, by open segment; empty where they changed meanwhile or one is not known."""
    loads: Mapping[int, list[float]] = defaultdict(list)
    samples = 0
    until_seconds = time.monotonic() + seconds
    while time.monotonic() < until_seconds:
        segments = await open_segments(cluster, topic)
        if any(segment["traffic"] is None for segment in segments):
            return {}
        for segment in segments:
            loads[segment["segment"]].append(segment["traffic"]["times_target"])
        samples += 1
        await asyncio.sleep(REPORT_SECONDS)
    return {i: fmean(each) for i, each in loads.items()} if all(len(x) == samples for x in loads.values()) else {}


async def test_a_flood_and_its_end(cluster: Cluster, tmp_path: Path) -> None:
    """One segment becomes many, near their target and at all brokers, and one again; every reader sees it all."""
    topic = "river"
    await cluster.create_topic(topic, **SCALING)
    producers = of_every_form(topic)
    pace(producers, FLOOD_EVERY_SECONDS)
    load = Workload(
        cluster.urls,
        producers=producers,
        consumers=readers("first", topic, "earliest", "latest"),
        timeout_seconds=TIMEOUT_SECONDS,
    )

    loads: dict[int, float] = {}

    async def has_begun_to_split() -> bool:
        return len(await cluster.segments(topic)) > 1

    async def all_are_near_target() -> bool:
        loads.clear()
        loads.update(await mean_loads(cluster, topic, 2 * WINDOW_SECONDS))
        return bool(loads) and max(loads.values()) <= NEAR

    async def is_one() -> bool:
        return len(await cluster.segments(topic)) == 1

    async with load.running():
        await until(has_begun_to_split)
        load.add(*readers("middle", topic, "earliest", "latest"))
        await until(all_are_near_target)
        assert len(cluster.brokers) <= len(loads) <= MOST_SPARE * ceil(FLOOD_TIMES_TARGET)
        assert set(await cluster.owners(topic)) == set(cluster.brokers)
        await load.each_acknowledged(20)
        pace(producers, CALM_EVERY_SECONDS)
        await until(is_one)
        load.add(*readers("after it all", topic, "earliest"))
        print(await demand_clean(load, cluster, tmp_path))
    await cluster.delete_topic(topic)


# -- one hot key -------------------------------------------------------------------------------------------


async def test_one_hot_key_is_named_and_split_no_further(cluster: Cluster, tmp_path: Path) -> None:
    topic = "hot"
    await cluster.create_topic(topic, **SCALING)
    producers = [
        Producer("one", topic, "arrow", keys=1, rows=60, identified=True),
        Producer("rest", topic, "ndjson", keys=50, rows=25, identified=True),
    ]
    pace(producers, FLOOD_EVERY_SECONDS)
    slot = slot_of(b"one.0")
    load = Workload(
        cluster.urls, producers=producers, consumers=readers("a", topic, "earliest"), timeout_seconds=TIMEOUT_SECONDS
    )

    async def hot_slots() -> list[int]:
        return [s["hot_slot"] for s in await open_segments(cluster, topic) if s["hot_slot"] is not None]

    async def is_named() -> bool:
        return await hot_slots() == [slot]

    async def has_settled() -> bool:
        """For four windows nothing but the load has moved."""
        version = (await cluster.ask(f"/v1/topics/{topic}"))["version"]
        await load.each_acknowledged(ceil(4 * WINDOW_SECONDS / FLOOD_EVERY_SECONDS) * 25)
        return (await cluster.ask(f"/v1/topics/{topic}"))["version"] == version and await is_named()

    async def is_named_no_more() -> bool:
        return not await hot_slots()

    async with load.running():
        await until(is_named)
        any_url = random.choice(cluster.urls)
        described = (await asyncio.to_thread(mq, "topic", "describe", topic, "--url", any_url)).decode()
        assert f"most of its traffic is in slot {slot}, so a split would not help" in described
        await until(has_settled)
        assert len(await history(cluster, topic, "split")) <= 8
        pace(producers, CALM_EVERY_SECONDS)
        await until(is_named_no_more)
        print(await demand_clean(load, cluster, tmp_path))
    await cluster.delete_topic(topic)


# -- rolls -------------------------------------------------------------------------------------------------


STEADY_EVERY_SECONDS = 5 / (0.8 * TARGET)
FLOOD_TIMES_STEADY = 8


def opened_seconds(life: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(life["opened"]).timestamp()


async def test_segments_that_roll_each_second_split_and_merge_like_those_that_do_not(
    cluster: Cluster, tmp_path: Path
) -> None:
    rolling, plain = "rolling", "plain"
    await cluster.create_topic(rolling, segment_seconds=1, **SCALING)
    await cluster.create_topic(plain, **SCALING)
    producers = {topic: Producer(topic, topic, "arrow", keys=60, identified=True) for topic in (rolling, plain)}
    pace(producers.values(), STEADY_EVERY_SECONDS)
    load = Workload(
        cluster.urls,
        producers=producers.values(),
        consumers=[each for topic in producers for each in readers(topic, topic, "earliest")],
        timeout_seconds=TIMEOUT_SECONDS,
    )

    async def has_rolled() -> bool:
        return len(await history(cluster, rolling, "roll")) >= 5

    async def have_split() -> bool:
        return all([len(await history(cluster, topic, "split")) for topic in producers])

    async def are_one() -> bool:
        return all([len(await cluster.segments(topic)) == 1 for topic in producers])

    async with load.running():
        await until(has_rolled)
        for topic in producers:
            assert await history(cluster, topic, "split", "merge") == [], "nothing but rolls under a steady load"
        for producer in producers.values():
            producer.rows *= FLOOD_TIMES_STEADY
        await until(have_split)
        first = {topic: opened_seconds((await history(cluster, topic, "split"))[0]) for topic in producers}
        assert abs(first[rolling] - first[plain]) <= WINDOW_SECONDS
        pace(producers.values(), CALM_EVERY_SECONDS)
        await until(are_one)
        print(f"the one that rolls split {first[rolling] - first[plain]:+.2f} s later")
        print(await demand_clean(load, cluster, tmp_path))
    for topic in producers:
        await cluster.delete_topic(topic)
