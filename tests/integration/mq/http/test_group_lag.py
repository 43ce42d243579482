"""The lag of a group: what it may have and is not done with. What is delayed, gone or cannot be read is told apart."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from braidmq import AsyncClient as Client
from filer.clock import ManualClock, SystemClock
from filer.stores.local.local_store import LocalStore
from filer.stores.memory_store import MemoryStore
from mq.groups import lag
from tests.integration.mq.http.test_group_metrics import scraped, watch_of
from tests.support.broker.group_requests import G, T, group, publish, values
from tests.support.broker.http_broker import HttpBroker, http_broker

LABEL = '{group="g",topic="t"}'


def after(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


async def told(broker: HttpBroker) -> tuple[int, int]:
    found = await group(broker)
    return found["lag"]["messages"], found["delayed"]


async def backlog(broker: HttpBroker) -> list[tuple[str, bool]]:
    """What waits, each with whether it tells when it is due."""
    answer = await broker.client.get(f"{G}/messages?state=backlog")
    return [(each["value"], "deliver_at" in each) for each in answer.raise_for_status().json()["messages"]]


@pytest.mark.parametrize("is_claimed", [False, True])
async def test_what_is_not_due_is_told_apart(memory_broker: HttpBroker, is_claimed: bool) -> None:
    """Whether anybody has claimed before or not."""
    await memory_broker.client.put(T)
    await memory_broker.client.put(G)
    await publish(memory_broker, "x", "y", **{"braid-deliver-at": after(60)})
    if is_claimed:
        assert await values(memory_broker) == []
    found = await group(memory_broker)
    assert (found["lag"], found["delayed"]) == ({"messages": 0, "seconds": 0.0}, 2)
    await publish(memory_broker, "a")
    await publish(memory_broker, "z", **{"braid-deliver-at": after(60)})
    await publish(memory_broker, "b")
    assert await told(memory_broker) == (2, 3)
    assert await backlog(memory_broker) == [("x", True), ("y", True), ("a", False), ("z", True), ("b", False)]
    watch = watch_of(memory_broker)
    for _ in range(2):  # what lies ahead is looked at once the group stays where it is
        await watch.look()
    found = await scraped(memory_broker)
    assert (found[f"braidmq_group_lag_messages{LABEL}"], found[f"braidmq_group_delayed_messages{LABEL}"]) == (2, 3)
    assert await values(memory_broker) == ["a", "b"]


async def test_the_backlog_goes_on_by_pages_over_delays(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G)
    await publish(memory_broker, "a")
    await publish(memory_broker, "x", **{"braid-expires-at": after(-60)})
    await publish(memory_broker, "z", **{"braid-deliver-at": after(60)})
    await publish(memory_broker, "b")
    found, next_ = list[str](), None
    while next_ is not None or not found:
        query = {"state": "backlog", "limit": 1} | ({} if next_ is None else {"after": next_})
        page = (await memory_broker.client.get(f"{G}/messages", params=query)).raise_for_status().json()
        found += [each["value"] for each in page["messages"]]
        next_ = page["next"]
    assert found == ["a", "z", "b"]


async def test_what_was_delayed_is_late_since_it_is_due(memory_broker: HttpBroker) -> None:
    """And not since it was published; what is older is the oldest all the same."""
    await memory_broker.client.put(T)
    await memory_broker.client.put(G)
    await publish(memory_broker, "a", **{"braid-deliver-at": after(0.5)})
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(20):
        while await told(memory_broker) != (1, 0):
            await asyncio.sleep(0.05)
    passed_seconds = asyncio.get_running_loop().time() - began
    assert (await group(memory_broker))["lag"]["seconds"] < max(passed_seconds - 0.2, 0.3)


async def test_what_has_expired_is_no_lag(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await memory_broker.client.put(G)
    await publish(memory_broker, "a", **{"braid-expires-at": after(-1)})
    await publish(memory_broker, "b")
    assert await told(memory_broker) == (1, 0)
    assert await values(memory_broker) == ["b"]
    found = await group(memory_broker)
    assert (found["lag"]["messages"], found["expired"]) == (1, 1)


async def test_only_so_much_is_looked_at(memory_broker: HttpBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind that everything counts."""
    monkeypatch.setattr(lag, "COUNTED_ROWS", 2)
    await memory_broker.client.put(T)
    await memory_broker.client.put(G)
    await publish(memory_broker, *"abc", **{"braid-deliver-at": after(60)})
    assert await told(memory_broker) == (1, 2)


@pytest.mark.parametrize("mode", ["queue", "stream"])
async def test_without_the_oldest_message_the_rest_is_told(tmp_path: Path, mode: str) -> None:
    """It lies in a file that is damaged: for how long it has been due, nobody knows."""
    root = tmp_path / "data"
    async with http_broker(LocalStore(root, clock=SystemClock())) as broker:
        await broker.client.put(T)
        await broker.client.put(G, json={"mode": mode})
        await broker.client.put(f"{T}/groups/other", json={"mode": mode, "from": "latest"})
        await publish(broker, *"abc")
        await publish(broker, *"de")
    first, *_ = sorted((root / "topics" / "t" / "segments").rglob("*.parquet"))
    first.write_bytes(b"not a file of messages")
    async with http_broker(LocalStore(root, clock=SystemClock())) as broker:
        watch = watch_of(broker)
        found = await group(broker)
        assert found["lag"]["messages"] == 5 and found["lag"]["seconds"] is None
        (await broker.client.get(f"{T}/groups/other")).raise_for_status()
        assert len((await broker.client.get(f"{T}/groups")).json()["groups"]) == 2
        await watch.look()
        series = await scraped(broker)
        assert series[f"braidmq_group_lag_messages{LABEL}"] == 5
        assert f"braidmq_group_lag_seconds{LABEL}" not in series
        async with Client(broker.url) as client:
            described = await client.group("t", "g").describe()
            assert described.lag.seconds is None and described.lag.messages == 5


async def test_what_retention_has_removed_is_skipped_and_no_lag() -> None:
    """Whether a group had looked at it or not, also of segments that are gone as a whole, and while nobody asks."""
    clock = ManualClock()
    settings = {"maintenance_interval": 5, "report_interval": 60, "grace": 1}
    async with http_broker(MemoryStore(clock=clock), clock=clock, **settings) as broker:
        (await broker.client.put(T, json={"segments": 1, "retention": {"seconds": 60}})).raise_for_status()
        groups = {"q": "queue", "looked": "queue", "s": "stream"}
        for name, mode in groups.items():
            (await broker.client.put(f"{T}/groups/{name}", json={"mode": mode})).raise_for_status()
        await publish(broker, *"abc")
        await publish(broker, *"de")
        claimed = (await broker.client.post(f"{T}/groups/looked/claims", json={"max": 2})).raise_for_status().json()
        acks = {"messages": [{"claim": each["claim"]} for each in claimed["claims"]]}
        (await broker.client.post(f"{T}/groups/looked/acks", json=acks)).raise_for_status()
        await clock.advance(3600)
        (await broker.client.post(f"{T}/segments/0/split", json={})).raise_for_status()
        await publish(broker, "new")
        async with asyncio.timeout(20):
            while any(each["segment"] == 0 for each in (await broker.client.get(T)).json()["segments"]):
                await clock.advance(5)
                await asyncio.sleep(0.01)
        assert [await skipped(broker, name) for name in groups] == [(1, 5), (1, 3), (1, 5)]
        watch = watch_of(broker)
        await watch.look()
        series = await scraped(broker)
        assert [series[f'braidmq_group_skipped_messages_total{{group="{name}",topic="t"}}'] for name in groups] == [
            5,
            3,
            5,
        ]
        # And so it stays once consumers come.
        for name in ("q", "looked"):
            found: list[dict[str, Any]] = []
            while not found:  # what was made ready before is found to be gone, and not answered
                found = (await broker.client.post(f"{T}/groups/{name}/claims")).raise_for_status().json()["messages"]
            assert [each["value"] for each in found] == ["new"]
        (await broker.client.post(f"{T}/groups/s/members", json={"member_id": "m"})).raise_for_status()
        assert [await skipped(broker, name) for name in groups] == [(1, 5), (1, 3), (1, 5)]


async def skipped(broker: HttpBroker, name: str) -> tuple[int, int]:
    found = (await broker.client.get(f"{T}/groups/{name}")).raise_for_status().json()
    return found["lag"]["messages"], found["skipped"]
