"""SIGKILL at any moment and at each named step; SIGTERM. What was acknowledged is there once, in order."""

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.deadly_broker import STEPS
from tests.support.segment_glob import read_bare_glob, read_files
from tests.support.workload import Producer, Workload, judge, read_topic

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
        Producer("raw-0", "raw"),
        Producer("raw-1", "raw"),
        Producer("json", "json", keys=7),
        Producer("arrow", "arrow", keys=11, rows=20),
    ]
    return Workload([url], topic, producers=producers)


async def check_everywhere(load: Workload, url: str, data: Path) -> None:
    """Clean over HTTP and over the files, and the same messages by either way."""
    found = await read_topic(url, load.topic)
    assert judge(load.history, found) == []
    in_files = read_files(data, load.topic)
    assert judge(load.history, in_files) == []
    assert sorted(in_files, key=lambda m: (m.segment, m.offset)) == sorted(found, key=lambda m: (m.segment, m.offset))


async def test_at_random_moments(broker: BrokerProcess, data: Path, rounds: int) -> None:
    chance = random.Random(rounds)
    loads = []
    for topic, segments in TOPICS.items():
        create_topic(broker.url, topic, segments=segments)
        loads.append(workload(broker.url, topic))
    for _ in range(rounds):
        async with AsyncExitStack() as stack:
            for load in loads:
                load.urls[:] = [broker.url]
                await stack.enter_async_context(load.running())
            await asyncio.gather(*(load.acknowledged(10) for load in loads))
            await asyncio.sleep(chance.uniform(0, 0.3))
            broker.kill()
        await asyncio.to_thread(broker.start)
        for load in loads:
            await check_everywhere(load, broker.url, data)
            assert judge(load.history, read_bare_glob(data, load.topic)) == []


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
        assert judge(load.history, read_files(data, "busy")) == []
        broker.start()
        assert judge(load.history, await read_topic(broker.url, "busy")) == []


@pytest.mark.parametrize("step", STEPS)
async def test_at_each_step(data: Path, step: str) -> None:
    """The process ends itself there; the next one on the same directory has all that was acknowledged."""
    env = {"DEADLY_STEP": step, "DEADLY_NTH": "9" if step in UNDER_LOAD else "1"}
    deadly = BrokerProcess(
        data=data, args=["--maintenance-interval", "0.1"], env=env, module="tests.support.deadly_broker"
    )
    with deadly:
        # So small that each round of upkeep rolls: one transition after the other, under load.
        create_topic(deadly.url, "events", segments=2, segment_bytes=1024)
        load = workload(deadly.url, "events")
        async with load.running():
            assert await asyncio.to_thread(deadly.wait) == -9
    with BrokerProcess(data=data, args=NO_ROLLUPS) as broker:
        assert judge(load.history, await read_topic(broker.url, "events")) == []
        load.urls[:] = [broker.url]
        async with load.running():
            await load.acknowledged(20)
        await check_everywhere(load, broker.url, data)


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
    assert judge(load.history, stored) == []
    acknowledged = {sent.value for sent in load.history.of("acknowledged")}
    assert {message.value for message in stored} == acknowledged, "something was stored and not answered"
    broker.start()
    await check_everywhere(load, broker.url, data)


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
