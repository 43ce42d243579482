"""SIGKILL at any moment and at each named step; SIGTERM. What was acknowledged is there once, in order."""

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from tests.cluster.checker.consumers import read_topic
from tests.cluster.checker.log_verdict import judge_log
from tests.cluster.checker.producers import Producer
from tests.cluster.checker.workload import Workload
from tests.support.broker.broker_process import BrokerProcess
from tests.support.broker.deadly_broker import STEPS
from tests.support.topic.segment_glob import read_bare_glob, read_files

TOPICS = {"single": 1, "braided": 4}
# Without roll-ups a bare glob must do.
NO_ROLLUPS = ("--maintenance-interval", "3600")
# Steps that each file passes; the others are of transitions.
UNDER_LOAD = ("before put", "temp file written", "linked", "put returned")
BUSY_UPKEEP = ("--maintenance-interval", "0.1", "--rollup-age", "0", "--grace", "1")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(data: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(data=data, args=NO_ROLLUPS) as running:
        yield running


def create_topic(url: str, topic: str, **settings: int) -> None:
    httpx.put(f"{url}/v1/topics/{topic}", json=settings, timeout=30).raise_for_status()


def workload(url: str, topic: str) -> Workload:
    producers = [
        Producer("raw-0", topic, "raw"),
        Producer("raw-1", topic, "raw"),
        Producer("json", topic, "json", keys=7),
        Producer("ndjson", topic, "ndjson", keys=5),
        Producer("arrow", topic, "arrow", keys=11, rows=20),
    ]
    return Workload([url], producers=producers)


async def check_everywhere(load: Workload, topic: str, url: str, data: Path) -> None:
    """Clean over HTTP and over the files, and the same messages by either way."""
    found = await read_topic(url, topic)
    assert judge_log(load.history, topic, found) == []
    in_files = read_files(data, topic)
    assert judge_log(load.history, topic, in_files) == []
    assert sorted(in_files, key=lambda m: (m.segment, m.offset)) == sorted(found, key=lambda m: (m.segment, m.offset))


async def test_at_random_moments(broker: BrokerProcess, data: Path, rounds: int) -> None:
    chance = random.Random(rounds)
    loads = {}
    for topic, segments in TOPICS.items():
        create_topic(broker.url, topic, segments=segments)
        loads[topic] = workload(broker.url, topic)
    for _ in range(rounds):
        async with AsyncExitStack() as stack:
            for load in loads.values():
                load.urls[:] = [broker.url]
                await stack.enter_async_context(load.running())
            await asyncio.gather(*(load.acknowledged(10) for load in loads.values()))
            await asyncio.sleep(chance.uniform(0, 0.3))
            broker.kill()
        await asyncio.to_thread(broker.start)
        for topic, load in loads.items():
            await check_everywhere(load, topic, broker.url, data)
            assert judge_log(load.history, topic, read_bare_glob(data, topic)) == []


async def test_under_upkeep(data: Path, rounds: int) -> None:
    """Rolls, roll-ups and deletions go on while the broker is killed."""
    chance = random.Random(rounds)
    with BrokerProcess(data=data, args=BUSY_UPKEEP) as broker:
        create_topic(broker.url, "busy", segments=2, segment_bytes=60_000)
        load = workload(broker.url, "busy")
        for _ in range(rounds):
            load.urls[:] = [broker.url]
            async with load.running():
                await load.acknowledged(100)
                await asyncio.sleep(chance.uniform(0, 0.5))
                broker.kill()
            await asyncio.to_thread(broker.start)
        assert broker.terminate() == 0
        assert judge_log(load.history, "busy", read_files(data, "busy")) == []
        broker.start()
        assert judge_log(load.history, "busy", await read_topic(broker.url, "busy")) == []


@pytest.mark.parametrize("step", STEPS)
async def test_at_each_step(data: Path, step: str) -> None:
    """The process ends itself there; the next one on the same directory has all that was acknowledged."""
    env = {"DEADLY_STEP": step, "DEADLY_NTH": "9" if step in UNDER_LOAD else "1"}
    deadly = BrokerProcess(
        data=data, args=["--maintenance-interval", "0.1"], env=env, module="tests.support.broker.deadly_broker"
    )
    with deadly:
        # So small that each round of upkeep rolls: one transition after the other, under load.
        create_topic(deadly.url, "events", segments=2, segment_bytes=1024)
        load = workload(deadly.url, "events")
        async with load.running():
            assert await asyncio.to_thread(deadly.wait) == -9
    with BrokerProcess(data=data, args=NO_ROLLUPS) as broker:
        assert judge_log(load.history, "events", await read_topic(broker.url, "events")) == []
        load.urls[:] = [broker.url]
        async with load.running():
            await load.acknowledged(20)
        await check_everywhere(load, "events", broker.url, data)


async def test_sigterm_answers_what_was_accepted(broker: BrokerProcess, data: Path) -> None:
    create_topic(broker.url, "events", segments=4)
    load = workload(broker.url, "events")
    async with load.running():
        streamed = asyncio.create_task(follow(broker.url, "events"))
        await load.acknowledged(100)
        assert await asyncio.to_thread(broker.terminate) == 0
        last = await streamed
    assert last["end"] == "draining"
    stored = read_bare_glob(data, "events")
    assert judge_log(load.history, "events", stored) == []
    acknowledged = {sent.value for sent in load.history.of("acknowledged")}
    assert {message.value for message in stored} == acknowledged, "something was stored and not answered"
    broker.start()
    await check_everywhere(load, "events", broker.url, data)


async def follow(url: str, topic: str) -> dict[str, object]:
    """The last line of a stream that the broker ends."""
    line = "{}"
    headers = {"accept": "application/x-ndjson"}
    async with (
        httpx.AsyncClient(timeout=30) as client,
        client.stream("GET", f"{url}/v1/topics/{topic}/subscribe", headers=headers) as response,
    ):
        async for text in response.aiter_lines():
            line = text
    last: dict[str, object] = json.loads(line)
    return last
