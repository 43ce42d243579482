"""Who has messages of a queue group now: told by the names that consumers give themselves."""

import asyncio
from typing import Any

import pytest

from filer.stores.memory_store import MemoryStore
from mq.http.consuming import group_document
from tests.support.broker.group_requests import G, T, claim, decide, group, publish
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.broker.socket_client import socket_client

SECONDS = 20


async def consumers(broker: HttpBroker) -> list[tuple[str | None, int, int]]:
    told = (await group(broker))["consumers"]
    return [(each["consumer"], each["in_flight"], each["waiting"]) for each in told]


async def test_consumers_are_told_with_what_they_have(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G)
    assert await consumers(memory_broker) == []
    await publish(memory_broker, *"abcdef")
    anna = await claim(memory_broker, max=3, consumer="anna")
    await claim(memory_broker, max=1, consumer="ben")
    await claim(memory_broker, max=1)
    assert await consumers(memory_broker) == [("anna", 3, 0), (None, 1, 0), ("ben", 1, 0)]
    first = {"messages": anna["messages"][:1]}
    (await decide(memory_broker, "acks", first)).raise_for_status()
    (await decide(memory_broker, "extensions", {"messages": anna["messages"][1:]}, lease_seconds=20)).raise_for_status()
    assert (await consumers(memory_broker))[0] == ("anna", 2, 0)
    (await decide(memory_broker, "releases", {"messages": anna["messages"][1:]}, delay_seconds=60)).raise_for_status()
    assert await consumers(memory_broker) == [(None, 1, 0), ("ben", 1, 0)]
    assert len((await claim(memory_broker, consumer="ben"))["messages"]) == 1
    waiting = asyncio.create_task(claim(memory_broker, wait=SECONDS, consumer="cleo"))
    async with asyncio.timeout(SECONDS):
        while len(told := await consumers(memory_broker)) < 3:
            await asyncio.sleep(0.02)
    assert told == [("ben", 2, 0), (None, 1, 0), ("cleo", 0, 1)]
    await publish(memory_broker, "g")
    await waiting
    assert ("cleo", 1, 0) in await consumers(memory_broker)


async def test_a_lease_that_runs_out_is_nobodys(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G, json={"lease_seconds": 1, "backoff_seconds": [60]})
    await publish(memory_broker, "a")
    await claim(memory_broker, consumer="anna")
    assert await consumers(memory_broker) == [("anna", 1, 0)]
    async with asyncio.timeout(SECONDS):
        while await consumers(memory_broker):
            await asyncio.sleep(0.05)


async def test_only_so_many_are_told(memory_broker: HttpBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_document, "MOST_CONSUMERS", 2)
    await memory_broker.client.put(T)
    await publish(memory_broker, *"abcdef")
    for number, name in enumerate("zyx", 1):
        await claim(memory_broker, max=number, consumer=name)
    told = await group(memory_broker)
    assert (told["more_consumers"], await consumers(memory_broker)) == (1, [("x", 3, 0), ("y", 2, 0)])


async def test_a_coordinator_that_takes_over_knows_no_names(memory_broker: HttpBroker) -> None:
    """Leases are written down without them: what is left is told, and nobody's by name."""
    kept = MemoryStore()
    async with http_broker(kept) as broker:
        await broker.client.put(T)
        await publish(broker, *"ab")
        await claim(broker, max=2, consumer="anna")
        await broker.broker.drain()
    async with http_broker(kept) as broker:
        told = await group(broker)
        assert (told["in_flight"], await consumers(broker)) == (2, [(None, 2, 0)])


async def test_a_socket_is_told_by_its_own_id(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await publish(memory_broker, *"ab")
    async with socket_client(memory_broker.url, "t") as socket:
        await socket.ok(subscribe={"group": "g", "mode": "queue", "credit": 2})
        async with asyncio.timeout(SECONDS):
            while not (told := await consumers(memory_broker)) or told[0][1] < 2:
                await asyncio.sleep(0.02)
        assert told[0][0] == socket.hello["consumer"]


@pytest.mark.parametrize("name", ["x" * 101, 7, ["a"]])
async def test_wrong_names(memory_broker: HttpBroker, name: Any) -> None:
    await memory_broker.client.put(T)
    answer = await memory_broker.client.post(f"{G}/claims", json={"consumer": name})
    check_problem(answer, 422, "invalid-request", "consumer")
