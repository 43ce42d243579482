"""Who has messages of a queue group now: told by the names that consumers give themselves."""

import asyncio
from typing import Any

import pytest

from filer.stores.memory_store import MemoryStore
from mq.service.groups import group_document
from tests.support.broker.group_requests import G, T, claim, decide, group, publish
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.broker.socket_client import socket_client
from tests.support.store.dying_store import DyingStore

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


@pytest.mark.parametrize("how", ["released", "untouched", "rests", "run out", "acked"])
async def test_only_what_is_leased_is_in_flight(memory_broker: HttpBroker, how: str) -> None:
    """The number, the messages and the consumers tell the same."""
    await memory_broker.client.put(T)
    await memory_broker.client.put(G, json={"lease_seconds": 1 if how == "run out" else 30, "backoff_seconds": [0]})
    await publish(memory_broker, *"abcde")
    claimed = await claim(memory_broker, max=3)
    assert await in_flight(memory_broker) == (3, 3, 3)
    if how != "run out":
        body = {"untouched": {"untouched": True}, "rests": {"delay_seconds": 60}}.get(how, {})
        (await decide(memory_broker, "acks" if how == "acked" else "releases", claimed, **body)).raise_for_status()
    async with asyncio.timeout(SECONDS):
        while await in_flight(memory_broker) != (0, 0, 0):
            assert how == "run out"
            await asyncio.sleep(0.05)


async def in_flight(broker: HttpBroker) -> tuple[int, int, int]:
    told = await group(broker)
    shown = (await broker.client.get(f"{G}/messages?state=in_flight")).raise_for_status().json()["messages"]
    return told["in_flight"], len(shown), sum(each["in_flight"] for each in told["consumers"])


@pytest.mark.parametrize("clean", [True, False])
async def test_what_another_coordinator_has_handed_out_is_in_flight_for_a_lease(clean: bool) -> None:
    """Also in the metrics of a coordinator that nobody asks."""
    kept = MemoryStore()
    store = DyingStore(kept)
    async with http_broker(store) as broker:
        await broker.client.put(T)
        await broker.client.put(G, json={"lease_seconds": 1, "backoff_seconds": [0]})
        await publish(broker, *"ab")
        await claim(broker, max=2)
        store.dead = not clean
    async with http_broker(kept) as broker:
        await broker.client.get("/v1/topics/t/groups")
        (known,) = broker.broker.groups.known()
        assert known.in_flight == 2
        assert await in_flight(broker) == (2, 2, 2)
        async with asyncio.timeout(SECONDS):
            while await in_flight(broker) != (0, 0, 0):
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
