"""A second broker is started on the same store by mistake: the store decides, and no acknowledged message is lost."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from ulid import ULID

from tests.cluster.checker.consumers import read_topic
from tests.cluster.checker.history import Form
from tests.cluster.checker.log_verdict import judge_log
from tests.cluster.checker.producers import Producer
from tests.cluster.checker.workload import Workload
from tests.support.broker.broker_process import BrokerProcess
from tests.support.store.s3_server import S3_ENVIRONMENT, s3_server

TOPIC = "events"
UPKEEP = ("--maintenance-interval", "0.2")
# A topic in which nothing happens is looked at once in 60 rounds, and its record read once in 10 s at most.
LOOKS_AGAIN_SECONDS = 40


@pytest.fixture(params=["directory", "s3"])
def new_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], BrokerProcess]]:
    """Makes brokers that share one store."""
    if request.param == "directory":
        yield lambda: BrokerProcess(data=tmp_path / "data", args=UPKEEP)
        return
    with s3_server() as endpoint:
        bucket = f"test-{ULID()}".lower()
        httpx.put(f"{endpoint}/{bucket}").raise_for_status()
        args = [*UPKEEP, "--s3-endpoint", endpoint, "--s3-addressing", "path"]
        yield lambda: BrokerProcess(store=f"s3://{bucket}/some/prefix", args=args, env=S3_ENVIRONMENT)


def workload(urls: list[str]) -> Workload:
    forms: list[Form] = ["raw", "raw", "json", "ndjson", "arrow"]
    return Workload(urls, producers=[Producer(f"{form}-{n}", TOPIC, form) for n, form in enumerate(forms)])


async def test_a_second_broker_under_load(new_broker: Callable[[], BrokerProcess]) -> None:
    first, second = new_broker(), new_broker()
    with first, contextlib.ExitStack() as stack:
        settings = {"segments": 2, "segment_bytes": 100_000}
        httpx.put(f"{first.url}/v1/topics/{TOPIC}", json=settings, timeout=30).raise_for_status()
        load = workload([first.url])
        async with load.running():
            await load.acknowledged(20)
            await asyncio.to_thread(stack.enter_context, second)
            # It takes over what is published to it.
            load.urls[:] = [second.url]
            await load.acknowledged(30)
            # Producers that are refused by one of them go on at the other.
            load.urls[:] = [first.url, second.url]
            await load.acknowledged(30)
            await check_refusals(load)
            for index, broker in enumerate((first, second)):
                await asyncio.to_thread(broker.restart)
                load.urls[index] = broker.url
                await load.acknowledged(30)
        # Either may have the segments that were taken over last.
        await becomes_sound(load, second.url)
        await becomes_sound(load, first.url)


async def check_refusals(load: Workload) -> None:
    """The broker that lost says so, as soon as it is asked, and that a retry is safe."""
    async with asyncio.timeout(20):
        while not (refusals := refusals_of(load)):
            await asyncio.sleep(0.05)
    for refusal in refusals:
        assert "urn:braidmq:segment-moved" in refusal


def refusals_of(load: Workload) -> list[str]:
    return [each.detail for request in load.history.requests for each in request.attempts if each.outcome == "failed"]


async def becomes_sound(load: Workload, url: str) -> None:
    """A broker learns of segments that others own by looking at topic.json now and then; until then it has less."""
    async with asyncio.timeout(LOOKS_AGAIN_SECONDS):
        while problems := judge_log(load.history, TOPIC, await read_topic(url, TOPIC)):
            assert all(problem.startswith("lost") for problem in problems), problems
            await asyncio.sleep(0.2)
