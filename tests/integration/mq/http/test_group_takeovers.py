"""What another coordinator of a queue group knows: who may have what, what nobody has got, and how much may be out."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from filer.keys import GROUPS_TOPIC
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Data, MakeData
from tests.support.broker.group_requests import G, T, claim, decide, group, publish, publish_keys, values
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.store.dying_store import DyingStore

LONGEST_LEASE_SECONDS = 12 * 3600
KEYS = [f"{key}{number}" for number in range(10) for key in "abc"]


def names(answer: dict[str, Any]) -> list[str]:
    return [message["value"] for message in answer["messages"]]


async def all_at_once(broker: HttpBroker) -> list[str]:
    """What can be claimed and acked without waiting, until nothing is left."""
    found: list[str] = []
    while (answer := await claim(broker, max=10_000))["messages"]:
        found += names(answer)
        (await decide(broker, "acks", answer)).raise_for_status()
    return found


@pytest.mark.parametrize("order", ["none", "key"])
@pytest.mark.parametrize("dies", [True, False])
async def test_what_was_never_handed_out_comes_at_once(order: str, dies: bool) -> None:
    """Also where leases run for half a day: what one consumer has got waits, and what nobody has got does not."""
    kept = MemoryStore()
    store = DyingStore(kept)
    async with http_broker(store) as broker:
        await broker.client.put(T)
        await broker.client.put(G, json={"order": order, "lease_seconds": LONGEST_LEASE_SECONDS})
        await publish_keys(broker, *KEYS)
        first = await claim(broker, max=4)
        assert names(first) == ["a0", "b0", "c0", "a1"]
        (await decide(broker, "acks", first)).raise_for_status()
        kept_back = await claim(broker, max=1)
        assert names(kept_back) == ["b1"]
        store.dead = dies
    async with http_broker(kept) as broker:
        left = [each for each in KEYS[4:] if each != "b1" and (order == "none" or each[0] != "b")]
        assert sorted(await all_at_once(broker)) == sorted(left)
        # Whoever has the other one may ack it still.
        assert (await decide(broker, "acks", kept_back)).json()["accepted"] == 1
        rest = [each for each in KEYS if each[0] == "b"][2:] if order == "key" else []
        assert await all_at_once(broker) == rest
        assert (await group(broker))["lag"]["messages"] == 0


class SlowStore(DyingStore):
    """Records take so long that claims which follow one another come within a few of them."""

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        await asyncio.sleep(0.15)
        await super().create(key, data, metadata=metadata)


@pytest.mark.parametrize("is_acked", [True, False], ids=["each acked", "none acked"])
async def test_on_a_slow_store_what_was_never_handed_out_comes_at_once_too(is_acked: bool) -> None:
    """Where a record takes long, none exposes messages ahead of a consumer that claims one after the other."""
    kept = MemoryStore()
    store = SlowStore(kept)
    async with http_broker(store) as broker:
        await broker.client.put(T)
        await broker.client.put(G, json={"lease_seconds": LONGEST_LEASE_SECONDS})
        await publish_keys(broker, *KEYS)
        for _ in range(8):
            last = await claim(broker, max=1)
            if is_acked:
                (await decide(broker, "acks", last)).raise_for_status()
        store.dead = True
    async with http_broker(kept) as broker:
        assert await all_at_once(broker) == KEYS[8:]


async def test_what_was_given_back_comes_at_once() -> None:
    """Its next delivery has not begun: nobody can have it, whoever coordinates the group."""
    kept = MemoryStore()
    store = DyingStore(kept)
    async with http_broker(store) as broker:
        await broker.client.put(T)
        await broker.client.put(G, json={"lease_seconds": LONGEST_LEASE_SECONDS})
        await publish(broker, "a", "b")
        first = await claim(broker, max=1)
        (await decide(broker, "releases", first, delay_seconds=0)).raise_for_status()
        store.dead = True
    async with http_broker(kept) as broker:
        found = await claim(broker)
        assert [(m["value"], m["deliveries"]) for m in found["messages"]] == [("a", 2), ("b", 1)]


async def test_the_death_of_coordinators_kills_no_message() -> None:
    """Neither what was never handed out, nor what a consumer has got, and may well work on."""
    kept = MemoryStore()
    for number, value in enumerate("abc"):
        store = DyingStore(kept)
        async with http_broker(store) as broker:
            if not number:
                await broker.client.put(T)
                await broker.client.put(G, json={"lease_seconds": 1, "max_deliveries": 1})
                await publish(broker, *"abcde")
            assert await values(broker, max=1) == [value]
            store.dead = True
    async with http_broker(kept) as broker:
        assert await all_at_once(broker) == ["d", "e"]
        again = await claim(broker, wait=10)
        assert [(m["value"], m["deliveries"]) for m in again["messages"]] == [("a", 2), ("b", 2), ("c", 2)]
        assert (await group(broker))["dead"] == 0


async def test_what_a_dead_coordinator_had_handed_out_is_told_to_the_next_but_one() -> None:
    """One that hands over in the middle of the wait: acks count, and the end of the wait is no delivery."""
    kept = MemoryStore()
    store = DyingStore(kept)
    async with http_broker(store) as broker:
        await broker.client.put(T)
        await broker.client.put(G, json={"lease_seconds": 2, "max_deliveries": 1})
        await publish(broker, *"abc")
        await claim(broker, max=1)
        second = await claim(broker, max=1)
        store.dead = True
    async with http_broker(kept) as broker:
        assert await values(broker, max=1) == ["c"]
    async with http_broker(kept) as broker:
        assert (await decide(broker, "acks", second)).json()["accepted"] == 1
        found = await claim(broker, max=1, wait=10)
        assert [(m["value"], m["deliveries"]) for m in found["messages"]] == [("a", 2)]


@pytest.mark.parametrize("dies", [True, False])
async def test_the_limit_holds_after_a_takeover(dies: bool) -> None:
    kept = MemoryStore()
    store = DyingStore(kept)
    async with http_broker(store) as broker:
        await broker.client.put(T)
        await broker.client.put(G, json={"lease_seconds": 1, "max_in_flight": 5, "backoff_seconds": [0]})
        await publish(broker, *(str(number) for number in range(50)))
        assert len(await values(broker, max=1000)) == 5
        store.dead = dies
    async with http_broker(kept) as broker:
        assert await values(broker, max=1000) == []
        for _ in range(2):
            assert len(await values(broker, max=1000, wait=10)) == 5
            assert await values(broker, max=1000) == []


async def test_a_claim_out_of_a_backlog_takes_one_record_and_one_that_waits_takes_none_more() -> None:
    async with http_broker(MemoryStore()) as broker:
        await broker.client.put(T)
        await broker.client.put(G)
        end = await _records(broker)
        waiting = asyncio.create_task(claim(broker, max=2, wait=10))
        while not (await group(broker))["waiting_consumers"]:
            await asyncio.sleep(0)
        await publish(broker, *"abcdef")
        assert names(await waiting) == ["a", "b"]
        assert await _records(broker) == end + 1
        assert await values(broker, max=2) == ["c", "d"]
        assert await _records(broker) == end + 2


async def _records(broker: HttpBroker) -> int:
    (writer,) = (await broker.broker.topics.topic(GROUPS_TOPIC)).writers.values()
    return writer.accepted_end
