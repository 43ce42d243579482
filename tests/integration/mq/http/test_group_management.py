"""Consumer groups over HTTP: which there are, and where they begin anew."""

import asyncio
from typing import Any

import orjson
import pytest

from filer.stores.memory_store import MemoryStore
from filer.topic.record_check import checked, with_check
from tests.support.broker.group_requests import G, T, claim, decide, group, publish, values
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.store.dying_store import DyingStore


async def test_groups_are_listed_by_page(memory_broker: HttpBroker) -> None:
    client = memory_broker.client
    check_problem(await client.get(f"{T}/groups"), 404, "topic-not-found")
    await client.put(T)
    assert (await client.get(f"{T}/groups")).json() == {"groups": [], "next": None}
    await client.put("/v1/topics/other")
    for path in (f"{T}/groups/b", f"{T}/groups/a", "/v1/topics/other/groups/c", f"{T}/groups/c"):
        (await client.put(path)).raise_for_status()
    whole = (await client.get(f"{T}/groups")).json()
    assert whole == {"groups": [{"group": name, "mode": "queue"} for name in "abc"], "next": None}
    first = (await client.get(f"{T}/groups?limit=2")).json()
    assert [each["group"] for each in first["groups"]] == ["a", "b"] and first["next"] == "b"
    rest = (await client.get(f"{T}/groups?limit=2&after=b")).json()
    assert [each["group"] for each in rest["groups"]] == ["c"] and rest["next"] is None


async def reset(broker: HttpBroker, **body: Any) -> dict[str, Any]:
    told: dict[str, Any] = (await broker.client.post(f"{G}/reset", json=body)).raise_for_status().json()
    return told


async def test_a_group_begins_anew(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await publish(memory_broker, *"abc")
    done = await claim(memory_broker)
    (await decide(memory_broker, "acks", done)).raise_for_status()
    assert (await reset(memory_broker, to="earliest"))["lag"]["messages"] == 3
    again = await claim(memory_broker)
    assert [(m["value"], m["deliveries"]) for m in again["messages"]] == [("a", 1), ("b", 1), ("c", 1)]
    # The claims of before are over, though they name the same deliveries of the same messages.
    check_problem(await decide(memory_broker, "acks", done), 409, "claim-lost")
    assert (await decide(memory_broker, "acks", again)).json()["accepted"] == 3
    await publish(memory_broker, "d")
    assert (await reset(memory_broker, to="latest"))["lag"]["messages"] == 0
    await publish(memory_broker, "e")
    assert await values(memory_broker) == ["e"]


async def test_a_group_begins_anew_at_a_marker_or_a_time(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await publish(memory_broker, "a")
    page = (await memory_broker.client.get(f"{T}/messages")).json()
    await publish(memory_broker, "b")
    await reset_made(memory_broker, marker=page["marker"])
    assert await values(memory_broker) == ["b"]
    await reset(memory_broker, to=page["messages"][0]["timestamp"], force=True)
    assert await values(memory_broker) == ["a", "b"]


async def reset_made(broker: HttpBroker, **body: Any) -> None:
    (await broker.client.put(G)).raise_for_status()
    await reset(broker, **body)


async def test_a_group_in_use_is_reset_only_by_force(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put(T)
    await publish(memory_broker, *"ab")
    held = await claim(memory_broker, max=1)
    problem = check_problem(await memory_broker.client.post(f"{G}/reset", json={"to": "earliest"}), 409, "group-active")
    assert '"force": true' in problem["detail"] and (await group(memory_broker))["in_flight"] == 1
    await reset(memory_broker, to="earliest", force=True)
    assert await values(memory_broker) == ["a", "b"]
    check_problem(await decide(memory_broker, "acks", held), 409, "claim-lost")
    check_problem(await decide(memory_broker, "extensions", held), 409, "claim-lost")
    check_problem(await decide(memory_broker, "releases", held), 409, "claim-lost")


@pytest.mark.parametrize(
    ("body", "status", "slug", "says"),
    [
        ({}, 422, "invalid-request", "give either to (earliest, latest or an RFC 3339 time) or marker"),
        ({"to": "latest", "marker": "x"}, 422, "invalid-request", "give either to"),
        ({"to": "yesterday"}, 422, "invalid-request", "to must be earliest, latest, or"),
        ({"to": 5}, 422, "invalid-request", 'to: it must be a string, as in {"to": "earliest"}'),
        ({"marker": "x"}, 400, "invalid-marker", "marker"),
        ({"to": "latest", "forced": True}, 422, "invalid-request", "did you mean 'force'"),
    ],
)
async def test_wrong_resets(memory_broker: HttpBroker, body: dict[str, Any], status: int, slug: str, says: str) -> None:
    await memory_broker.client.put(T)
    check_problem(await memory_broker.client.post(f"{G}/reset", json={"to": "latest"}), 404, "group-not-found")
    await memory_broker.client.put(G)
    problem = check_problem(await memory_broker.client.post(f"{G}/reset", json=body), status, slug)
    assert says in problem["detail"]


async def test_a_reset_is_stored() -> None:
    """Killed behind the answer, the next broker goes on where the group was reset to, and knows its counts."""
    kept = MemoryStore()
    store = DyingStore(kept)
    async with http_broker(store) as broker:
        await broker.client.put(T)
        await publish(broker, *"abc")
        done = await claim(broker, max=2)
        (await decide(broker, "acks", done)).raise_for_status()
        await reset(broker, to="earliest")
        store.dead = True
    async with http_broker(kept) as broker:
        check_problem(await decide(broker, "acks", done), 409, "claim-lost")
        assert await values(broker) == ["a", "b", "c"]


async def test_a_reset_that_is_not_stored_changes_nothing() -> None:
    kept = MemoryStore()
    store = DyingStore(kept)
    async with http_broker(store) as broker:
        await broker.client.put(T)
        await broker.client.put(G, json={"lease_seconds": 1, "backoff_seconds": [0]})
        await publish(broker, *"abc")
        done = await claim(broker, max=2)
        (await decide(broker, "acks", done)).raise_for_status()
        store.dead = True
        assert (await broker.client.post(f"{G}/reset", json={"to": "earliest"})).is_server_error
    async with http_broker(kept) as broker:
        assert (await decide(broker, "acks", done)).json()["accepted"] == 2
        assert await values(broker, wait=10) == ["c"]


async def test_there_are_only_so_many_groups(memory_broker: HttpBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims make groups, of any names."""
    monkeypatch.setattr("mq.groups.segment_groups.MOST_GROUPS", 2)
    await memory_broker.client.put(T)
    for name in "ab":
        (await memory_broker.client.post(f"{T}/groups/{name}/claims")).raise_for_status()
    problem = check_problem(await memory_broker.client.post(f"{T}/groups/c/claims"), 409, "too-many-groups")
    assert "delete some, or split topic __groups" in problem["detail"]
    await memory_broker.client.delete(f"{T}/groups/a")
    (await memory_broker.client.post(f"{T}/groups/c/claims")).raise_for_status()


@pytest.mark.parametrize("mode", ["queue", "stream"])
async def test_groups_end_with_their_topic(memory_broker: HttpBroker, mode: str) -> None:
    """A topic of the same name begins without them: with no settings, counts or claims of before."""
    client = memory_broker.client
    (await client.put(T)).raise_for_status()
    (await client.put(G, json={"mode": mode, "acks": "stored"})).raise_for_status()
    await publish(memory_broker, *"abc")
    held = None if mode == "stream" else await claim(memory_broker)
    (await client.delete(T)).raise_for_status()
    check_problem(await client.get(G), 404, "topic-not-found")
    async with asyncio.timeout(20):
        while memory_broker.broker.groups.known():
            await asyncio.sleep(0.02)
    (await client.put(T)).raise_for_status()
    await publish(memory_broker, "new")
    assert (await client.get(f"{T}/groups")).json()["groups"] == []
    check_problem(await client.get(G), 404, "group-not-found")
    if held is not None:
        check_problem(await decide(memory_broker, "acks", held), 404, "group-not-found")
    assert await values(memory_broker) == ["new"]
    told = await group(memory_broker)
    assert (told["settings"]["mode"], told["lag"]["messages"], told["skipped"]) == ("queue", 1, 0)
    if held is not None:
        check_problem(await decide(memory_broker, "acks", held), 409, "claim-lost")


async def test_a_group_that_nobody_ended_is_over_with_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its coordinator was away while the topic was deleted and created again, also by an earlier version."""
    kept = MemoryStore()
    monkeypatch.setattr("mq.groups.groups.Groups.topic_changed", lambda *_: None)
    async with http_broker(kept) as broker:
        await broker.client.put(T)
        for name in "ghi":
            (await broker.client.put(f"{T}/groups/{name}", json={"max_deliveries": 7})).raise_for_status()
        await publish(broker, *"abc")
        await broker.client.delete(T)
        await broker.client.put(T)
        await publish(broker, "new")
    # Earlier versions do not write where a topic begins that is created again.
    record = await kept.get("topics/t/topic.json")
    plain = checked(record.data, key="topics/t/topic.json", first="format")[0]
    del plain["first_segment"]
    await kept.replace("topics/t/topic.json", with_check(orjson.dumps(plain)), etag=record.info.etag)
    monkeypatch.undo()
    async with http_broker(kept) as broker:
        assert (await broker.client.get(f"{T}/groups")).json()["groups"] == []
        check_problem(await broker.client.get(G), 404, "group-not-found")
        assert await values(broker) == ["new"]
        assert (await group(broker))["settings"]["max_deliveries"] == 5
        (await broker.client.put(f"{T}/groups/h")).raise_for_status()
        (await broker.client.delete(T)).raise_for_status()
        async with asyncio.timeout(20):
            while broker.broker.groups.known():
                await asyncio.sleep(0.02)


async def test_groups_that_claims_have_made_make_room(
    memory_broker: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that hold nothing, and that nobody asks for: the oldest go, and whoever comes makes them anew."""
    client = memory_broker.client
    monkeypatch.setattr("mq.groups.segment_groups.MOST_GROUPS", 6)
    monkeypatch.setattr("mq.groups.segment_groups.LOOK_SECONDS", 0)
    monkeypatch.setattr("mq.groups.group_room.GO_AT_ONCE", 2)
    await client.put(T)
    (await client.put(f"{T}/groups/asked-for")).raise_for_status()
    await publish(memory_broker, "a")
    (await client.post(f"{T}/groups/held/claims")).raise_for_status()
    await client.put("/v1/topics/empty")
    for name in "abc":
        (await client.post(f"/v1/topics/empty/groups/{name}/claims")).raise_for_status()
    waiting = asyncio.create_task(client.post("/v1/topics/empty/groups/waits/claims", json={"wait": 20}))
    async with asyncio.timeout(20):
        while len(memory_broker.broker.groups.known()) < 6:
            await asyncio.sleep(0.02)
    check_problem(await client.post(f"{T}/groups/new/claims"), 409, "too-many-groups")
    monkeypatch.setattr("mq.groups.queue_group.IDLE_SECONDS", 0)
    (await client.post(f"{T}/groups/new/claims")).raise_for_status()
    names = {each.name[1] for each in memory_broker.broker.groups.known()}
    assert names == {"asked-for", "held", "c", "waits", "new"}
    body = {"messages": [{"value": "late"}]}
    (await client.post("/v1/topics/empty/messages", json=body)).raise_for_status()
    assert len((await waiting).raise_for_status().json()["messages"]) == 1
    again = (await client.post("/v1/topics/empty/groups/a/claims")).raise_for_status().json()["messages"]
    assert [each["value"] for each in again] == ["late"]
