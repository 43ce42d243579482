"""A stream group of real brokers: coordinators and members are killed and stand still; segments split and merge."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.broker.stream_crew import Watch, Worker, any_broker
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.going_on import going_on
from tests.support.store.shared_store import SharedDirectory

pytestmark = pytest.mark.timeout(240)

T = "/v1/topics/t"
G = f"{T}/groups/g"
KEYS = [f"k{n}" for n in range(12)]
SESSION_SECONDS = 2
SETTLE_SECONDS = 90


async def publish_on(client: httpx.AsyncClient, watch: Watch) -> None:
    """One message of each key after the other, for ever."""
    sequence = 0
    while True:
        body = {"messages": [{"key": key, "value": watch.published[key]} for key in KEYS]}
        answer = await client.post(f"{T}/messages", params={"producer": "p", "sequence": sequence}, json=body)
        answer.raise_for_status()
        sequence += 1
        for key in KEYS:
            watch.published[key] += 1
        await asyncio.sleep(0.02)


async def watch_on(client: httpx.AsyncClient, watch: Watch) -> None:
    while True:
        watch.described((await client.get(G)).raise_for_status().json())
        await asyncio.sleep(0.2)


async def coordinator(client: httpx.AsyncClient) -> str:
    told: str = (await client.get(G)).raise_for_status().json()["coordinator"]
    return told.partition(".")[0]


async def until(condition: Callable[[dict[str, Any]], bool], client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(SETTLE_SECONDS):
        while not condition((await client.get(G)).raise_for_status().json()):
            await asyncio.sleep(0.1)


async def merge(cluster: Cluster) -> None:
    """Merge the first two open neighbours."""
    async with asyncio.timeout(SETTLE_SECONDS):
        while True:
            segments = (await cluster.ask(T))["segments"]
            first, second, *_ = sorted((s["range"], s["segment"]) for s in segments if s["state"] == "open")
            if await cluster.merge("t", first[1], second[1]):
                return


async def test_promises_are_kept_while_everything_fails(tmp_path: Path) -> None:
    watch, chance = Watch(), random.Random(7)
    with Cluster(tmp_path, SharedDirectory(tmp_path / "store"), session_timeout_seconds=2.0) as cluster:
        async with any_broker(cluster.urls) as client:
            (await client.put(T, json={"segments": 3, "key_type": "string", "value_type": "json"})).raise_for_status()
            (await client.put(G, json={"mode": "stream", "session_seconds": SESSION_SECONDS})).raise_for_status()
            workers = [Worker(client, name, watch, G, chance) for name in "abcd"]
            async with going_on(watch_on(client, watch)):
                async with going_on(publish_on(client, watch)):
                    await until(lambda told: len(told["members"]) == 4, client)
                    # A member is killed, and starts again; another stands still for longer than its session.
                    await workers[0].kill()
                    former = workers[0].member
                    workers[0] = Worker(client, "a", watch, G, chance)
                    workers[1].goes_on.clear()
                    first = await coordinator(client)
                    await cluster.kill(first)
                    assert await cluster.split("t", min(await cluster.segments("t")), 2)
                    await until(lambda told: "b" not in {each["member_id"] for each in told["members"]}, client)
                    workers[1].goes_on.set()
                    await cluster.start(first)
                    # One is gone for good, and its coordinator hands over; two processes have one name.
                    await workers[2].kill()
                    second = await coordinator(client)
                    assert await cluster.drain(second) == 0
                    workers.append(Worker(client, "d", watch, G, chance))
                    await merge(cluster)
                    await until(lambda told: "c" not in {each["member_id"] for each in told["members"]}, client)
                    await workers[3].kill()
                    await cluster.start(second)
                    third = await coordinator(client)
                    cluster.pause(third)
                    await until(lambda told: not told["coordinator"].startswith(f"{third}."), client)
                    cluster.resume(third)
                await until(lambda told: told["lag"]["messages"] == 0, client)
            # The process before that one is told that it is over, through all of this.
            assert (await former.beat()).status_code == 409
            for worker in workers:
                await worker.end()
    watch.check()
    messages = sum(watch.published.values())
    print(f"{messages} messages, each delivered {watch.repeated:.2f} times; {watch.fenced} commits were fenced")
    # Whether a commit comes too late is chance; that none counts which does is checked above.
    assert messages > 200
