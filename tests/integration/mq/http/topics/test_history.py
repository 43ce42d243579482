"""What a topic tells of all the segments it has had, those that retention has removed included."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from filer.slots import SLOTS
from filer.stores.memory_store import MemoryStore
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem

T = "/v1/topics/t"


@pytest.fixture
async def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def broker(store: MemoryStore) -> AsyncIterator[HttpBroker]:
    async with http_broker(store, maintenance_interval=3600) as running:
        yield running


async def history(broker: HttpBroker, **params: Any) -> Any:
    return (await broker.client.get(f"{T}/history", params=params)).raise_for_status().json()


async def test_a_split_and_a_merge(broker: HttpBroker) -> None:
    await broker.client.put(T, json={})
    body = {"messages": [{"key": f"k{number}", "value": number} for number in range(40)]}
    (await broker.client.post(f"{T}/messages", json=body)).raise_for_status()
    await broker.client.post(f"{T}/segments/0/split")
    (await broker.client.post(f"{T}/messages", json=body)).raise_for_status()
    await broker.client.post(f"{T}/segments/1/merge", json={"with": 2})
    answer = await history(broker)
    assert (answer["topic"], answer["next"]) == ("t", None)
    lives = answer["segments"]
    assert [(s["segment"], s["range"], s["state"], s["reason"]) for s in lives] == [
        (0, [0, SLOTS], "sealed", "create"),
        (1, [0, 32768], "sealed", "split"),
        (2, [32768, SLOTS], "sealed", "split"),
        (3, [0, SLOTS], "open", "merge"),
    ]
    assert [(s["predecessors"], s["successors"]) for s in lives] == [([], [1, 2]), ([0], [3]), ([0], [3]), ([1, 2], [])]
    assert [lives[0]["messages"], lives[1]["messages"] + lives[2]["messages"], lives[3]["messages"]] == [40, 40, 0]
    assert lives[0]["sealed"] > lives[0]["opened"] and lives[3]["sealed"] is None
    seconds = (datetime.fromisoformat(lives[0]["sealed"]) - datetime.fromisoformat(lives[0]["opened"])).total_seconds()
    assert lives[0]["messages_per_second"] == pytest.approx(40 / seconds, abs=0.001)
    assert lives[0]["bytes"] > 0 and lives[1]["bytes"] > 0
    assert lives[0]["bytes_per_second"] == pytest.approx(lives[0]["bytes"] / seconds, abs=0.001)
    assert (lives[3]["messages_per_second"], lives[3]["bytes"]) == (0, 0)


async def test_a_page_at_a_time(broker: HttpBroker) -> None:
    await broker.client.put(T, json={"segments": 5})
    first = await history(broker, limit=2)
    assert ([s["segment"] for s in first["segments"]], first["next"]) == ([0, 1], 1)
    second = await history(broker, limit=3, after=first["next"])
    assert ([s["segment"] for s in second["segments"]], second["next"]) == ([2, 3, 4], None)
    assert (await history(broker, after=4))["segments"] == []
    check_problem(await broker.client.get(f"{T}/history", params={"limit": 0}), 422, "invalid-request")
    check_problem(await broker.client.get("/v1/topics/none/history"), 404, "topic-not-found")


async def test_what_retention_has_removed_stays_in_it(store: MemoryStore, broker: HttpBroker) -> None:
    """Kept before topic.json forgets it: who stops in between leaves it in both, and it is told once."""
    await broker.client.put(T, json={})
    for segment in (0, 2):
        await broker.client.post(f"{T}/messages", content=b"x")
        (await broker.client.post(f"{T}/segments/{segment}/split")).raise_for_status()
    state = broker.broker.topics["t"].state
    gone = [state.segments[0], state.segments[2]]
    for segment in gone:
        await broker.broker.catalogue.write_history("t", [segment])
    before = (await history(broker))["segments"]
    assert [s["state"] for s in before if s["segment"] in (0, 2)] == ["sealed", "sealed"]
    left = tuple(s for s in state.segments if s not in gone)
    await broker.broker.catalogue.change("t", lambda s: s.model_copy(update={"segments": left}))
    await broker.broker.topics.refresh("t")
    after = (await history(broker))["segments"]
    assert [s["segment"] for s in after] == [s["segment"] for s in before]
    assert [s["segment"] for s in after if s["state"] == "removed"] == [0, 2]
    assert (after[0]["messages"], after[0]["successors"]) == (before[0]["messages"], [1, 2])
    assert [s["segment"] for s in (await history(broker, limit=2))["segments"]] == [0, 1]


async def test_a_topic_that_was_deleted_and_made_again_has_had_the_segments_of_both(broker: HttpBroker) -> None:
    await broker.client.put(T, json={"segments": 2})
    await broker.client.post(f"{T}/messages", json={"messages": [{"key": "ann", "value": "x"}]})
    before = (await history(broker))["segments"]
    await broker.client.delete(T)
    check_problem(await broker.client.get(f"{T}/history"), 404, "topic-not-found")
    await broker.client.put(T, json={"segments": 3})
    first, second, *rest = (await history(broker))["segments"]
    assert [(s["segment"], s["state"], s["reason"]) for s in rest] == [
        (2, "open", "create"), (3, "open", "create"), (4, "open", "create"),
    ]  # fmt: skip
    for life, known in zip((first, second), before, strict=True):
        assert (life["state"], life["successors"]) == ("removed", [])
        assert known["opened"] == life["opened"] < life["sealed"] <= rest[0]["opened"]
        assert life["messages"] == known["messages"] and life["bytes"] >= known["bytes"]
    assert first["messages"] == 1
    assert [s["segment"] for s in (await history(broker, limit=2))["segments"]] == [0, 1]


async def test_bytes_are_those_that_were_stored_whatever_became_of_them(store: MemoryStore, broker: HttpBroker) -> None:
    """Rolled up, taken by retention, removed: the segment has carried them."""
    await broker.client.put(T, json={"retention": {"bytes": 1}})
    for value in ("a", "b", "c"):
        await broker.client.post(f"{T}/messages", content=value.encode() * 1000)
    while_open = (await history(broker))["segments"][0]["bytes"]
    sizes = [info.size_bytes async for info in store.list("topics/t/segments/segment=0/")]
    assert while_open == sum(sizes) and len(sizes) == 3
    await broker.client.post(f"{T}/segments/0/split")
    await broker.broker.maintenance.round()
    assert broker.broker.topics["t"].state.segments[0].start_offset == 3
    life = (await history(broker))["segments"][0]
    assert (life["state"], life["messages"]) == ("sealed", 3)
    assert life["bytes"] > while_open, "with the seal"
