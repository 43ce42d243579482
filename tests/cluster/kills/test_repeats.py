"""Publishers that send a request again until it is answered, and a broker that is killed: each message exactly once."""

import asyncio
import contextlib
import random
from pathlib import Path

import pytest

from tests.cluster.checker.consumers import read_topic
from tests.cluster.checker.log_verdict import judge_log
from tests.cluster.checker.producers import Producer
from tests.cluster.checker.workload import Workload
from tests.cluster.kills.test_kill import BUSY_UPKEEP, NO_ROLLUPS, UNDER_LOAD, create_topic
from tests.support.broker.broker_process import BrokerProcess
from tests.support.broker.deadly_broker import STEPS
from tests.support.topic.segment_glob import read_files

# Steps at which what the publishers sent stands already, or is about to be handed on.
LEFT_UNANSWERED = ("linked", "put returned", "seal put returned", "begun")
assert set(LEFT_UNANSWERED) <= set(STEPS)


def workload(url: str, topic: str) -> Workload:
    producers = [
        Producer("raw", topic, "raw", identified=True, repeat_every=5),
        Producer("json", topic, "json", keys=7, identified=True, repeat_every=5),
        Producer("arrow", topic, "arrow", keys=11, rows=20, identified=True, repeat_every=5),
        # Beside them one that cannot repeat: it does not wait for what the others are known by.
        Producer("other", topic, "json", keys=7),
    ]
    return Workload([url], producers=producers)


async def check_exactly_once(load: Workload, topic: str, broker: BrokerProcess, data: Path) -> None:
    """Whoever repeats was answered in the end, and everything is where it was told, once and in order."""
    unanswered = [request for request in load.history.requests if request.outcome != "acknowledged"]
    assert {request.messages[0].key.partition(".")[0] for request in unanswered} <= {"other"}
    assert judge_log(load.history, topic, await read_topic(broker.url, topic)) == []
    assert await asyncio.to_thread(broker.terminate) == 0
    assert judge_log(load.history, topic, read_files(data, topic)) == []


@pytest.mark.parametrize("upkeep", [NO_ROLLUPS, BUSY_UPKEEP], ids=["no upkeep", "busy upkeep"])
async def test_killed_at_random_moments(tmp_path: Path, rounds: int, upkeep: tuple[str, ...]) -> None:
    """Rolls, roll-ups and deletions go on meanwhile, or nothing but what the kills cause."""
    chance = random.Random(rounds)
    with BrokerProcess(data=tmp_path, args=upkeep) as broker:
        create_topic(broker.url, "events", segments=3, segment_bytes=60_000)
        load = workload(broker.url, "events")
        async with load.running():
            for _ in range(rounds):
                await load.acknowledged(60)
                await asyncio.sleep(chance.uniform(0, 0.3))
                await asyncio.to_thread(broker.restart)
                load.urls[:] = [broker.url]
            await load.acknowledged(60)
        await check_exactly_once(load, "events", broker, tmp_path)


@pytest.mark.parametrize("step", LEFT_UNANSWERED)
async def test_killed_at_each_step(tmp_path: Path, step: str) -> None:
    """The process ends itself there, with requests under way; the next one is sent them again."""
    env = {"DEADLY_STEP": step, "DEADLY_NTH": "9" if step in UNDER_LOAD else "1"}
    deadly = BrokerProcess(
        data=tmp_path, args=["--maintenance-interval", "0.1"], env=env, module="tests.support.broker.deadly_broker"
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(deadly)
        create_topic(deadly.url, "events", segments=2, segment_bytes=1024)
        load = workload(deadly.url, "events")
        async with load.running():
            assert await asyncio.to_thread(deadly.wait) == -9
            next_life = BrokerProcess(data=tmp_path, args=NO_ROLLUPS)
            broker = await asyncio.to_thread(stack.enter_context, next_life)
            load.urls[:] = [broker.url]
            await load.acknowledged(60)
        await check_exactly_once(load, "events", broker, tmp_path)
