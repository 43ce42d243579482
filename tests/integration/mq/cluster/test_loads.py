"""Loads in a cluster: each step at whichever broker, two commits of one load at once, publishers that go on."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from filer import keys
from filer.errors import OutcomeUnknown
from filer.keys import FileName
from filer.topic.topic_state import TopicState, broken_invariants
from leader.transitions import SealedEnd, begin_adoption
from tests.support.broker.problems import check_problem
from tests.support.cluster.http_cluster import HttpCluster
from tests.support.topic.bulk_loads import ReservedLoad, by_key, commit, numbered, read_all, reserve, upload_urls

T = "/v1/topics/t"
BEFORE = {"messages": [{"key": f"key-{n % 10}", "value": f"before-{n}"} for n in range(30)]}


async def write(brokers: HttpCluster, load: ReservedLoad, files: list[Any]) -> None:
    """By credentials of one's own, under the names that the format gives them."""
    for file in files:
        key = keys.segment_file("t", file.segment, FileName(file.base_offset))
        await next(iter(brokers.stores.values())).inner.create(key, file.data.to_pybytes())


async def publish(brokers: HttpCluster, name: str, body: Any, query: str = "") -> Any:
    answer = await brokers.up[name].client.post(f"{T}/messages{query}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["positions"]


@pytest.mark.parametrize("settings", [{"segments": 3}, {"segments": 3, "acks": "replicated", "replicas": 2}])
async def test_each_step_at_another_broker(brokers: HttpCluster, settings: dict[str, Any]) -> None:
    a, b, c = (brokers.up[name].client for name in "abc")
    await brokers.create("a", "t", **settings)
    first = await publish(brokers, "a", BEFORE, "?producer=p&sequence=1")
    load = await reserve(a, "t", 2, "x")
    assert (await reserve(b, "t", 2, "x")).answer == load.answer
    files = load.files(numbered(0, 500, by="loaded-"), file_bytes=5000)
    assert len(await upload_urls(c, load, files)) == len(files) > 3
    await write(brokers, load, files)

    async def publishing() -> None:
        for number in range(20):
            messages = [{"key": f"key-{key}", "value": f"online-{number}"} for key in range(10)]
            await publish(brokers, "abc"[number % 3], {"messages": messages})

    one, other, _ = await asyncio.gather(commit(b, load, files), commit(c, load, files), publishing())
    assert one.status_code == other.status_code == 200, (one.text, other.text)
    assert one.json() == other.json()
    assert await publish(brokers, "c", BEFORE, "?producer=p&sequence=1") == first
    state = (await a.get(load.path)).json()
    assert state == {**load.answer, **one.json(), "state": "committed"}
    for client in (a, b, c):
        found = by_key(await read_all(client, "t"))
        for key in range(10):
            values = found[f"key-{key}"]
            begin = values.index(f"loaded-{key}")
            assert values[begin : begin + 50] == [f"loaded-{n}" for n in range(key, 500, 10)]
            assert values[:3] == [f"before-{n}" for n in range(key, 30, 10)]
            assert [v for v in values if v.startswith("online")] == [f"online-{n}" for n in range(20)]
            assert len(values) == 73


async def test_owners_keep_what_they_own_and_who_is_gone_gets_nothing(brokers: HttpCluster) -> None:
    await brokers.create("a", "t", segments=3)
    client = brokers.up["a"].client

    async def owners() -> list[str]:
        return [each["owner"]["broker"] for each in (await client.get(f"{T}/route")).json()["segments"]]

    brokers.membership.leaders = set()
    before = await owners()
    load = await reserve(client, "t", 2)
    assert (await commit(client, load, [])).status_code == 200
    assert await owners() == before
    record = await brokers.up["a"].broker.catalogue.read("t")
    assert record is not None and list(broken_invariants(record.state)) == []


@pytest.mark.parametrize("reserved_anew", [False, True])
async def test_a_load_that_was_given_up_while_it_was_committed(brokers: HttpCluster, *, reserved_anew: bool) -> None:
    """The compare-and-swap decides: here the other broker comes first."""
    await brokers.create("a", "t", segments=2)
    load = await reserve(brokers.up["a"].client, "t", 2, "x")
    files = load.files(numbered(0, 100))
    await write(brokers, load, files)
    store = brokers.stores["b"]
    store.hold(f"segment={load.segments[0].segment}/")
    committing = asyncio.create_task(commit(brokers.up["b"].client, load, files))
    async with asyncio.timeout(20):
        while (await brokers.up["b"].client.get(load.path)).json()["state"] != "committing":
            await asyncio.sleep(0.01)
        assert (await brokers.up["a"].client.delete(load.path)).status_code == 204
        if reserved_anew:
            again = await reserve(brokers.up["a"].client, "t", 2, "x")
            assert again.segments[0].segment > load.segments[-1].segment
        store.release()
        answer = await committing
    check_problem(answer, 409, "load-abandoned")
    assert await read_all(brokers.up["c"].client, "t") == []


async def test_a_commit_is_not_refused_while_another_broker_adopts_the_load(brokers: HttpCluster) -> None:
    """It finds other files than were said, and the transition under way; it waits for that, and tells what it did."""
    await brokers.create("a", "t", segments=2)
    load = await reserve(brokers.up["a"].client, "t", 1, "x")
    files = load.files(numbered(0, 100), file_bytes=1000)
    await write(brokers, load, files)
    segment = load.segments[0].segment
    slow = brokers.stores["b"]
    slow.hold(f"segment={segment}/")
    second = asyncio.create_task(commit(brokers.up["b"].client, load, files))
    async with asyncio.timeout(40):
        while (await brokers.up["b"].client.get(load.path)).json()["state"] != "committing":
            await asyncio.sleep(0.01)
        for store in brokers.stores.values():
            store.hold("segment=0/")
        first = asyncio.create_task(commit(brokers.up["a"].client, load, files))
        while not await is_being_adopted(brokers):
            await asyncio.sleep(0.01)
        await brokers.store.create(keys.segment_file("t", segment, FileName(1000)), b"another file")
        slow.release(f"segment={segment}/")
        await asyncio.wait([second], timeout=0.2)
        for store in brokers.stores.values():
            store.release()
        answers = [await first, await second]
    assert [answer.status_code for answer in answers] == [200, 200], answers[1].text
    assert answers[0].json() == answers[1].json()


async def is_being_adopted(brokers: HttpCluster) -> bool:
    record = await brokers.up["c"].broker.catalogue.read("t")
    return record is not None and record.state.transition is not None and bool(record.state.transition.adopt)


async def test_a_commit_that_is_slower_than_another_one(brokers: HttpCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it opens the files the other is done, and upkeep writes beside them: it tells what the other one did."""
    await brokers.create("a", "t", segments=2)
    load = await reserve(brokers.up["a"].client, "t", 1, "x")
    files = load.files(numbered(0, 100))
    await write(brokers, load, files)
    done: list[Any] = []

    async def slowly(pinned: Any, asker: str) -> None:
        done.append(await commit(brokers.up["b"].client, load, files))
        key = keys.segment_file("t", load.segments[0].segment, FileName(0, 100))
        await brokers.store.create(key, files[0].data.to_pybytes())

    monkeypatch.setattr(brokers.up["c"].broker.loads._checker, "check", slowly)
    answer = await commit(brokers.up["c"].client, load, files)
    assert answer.status_code == done[0].status_code == 200, answer.text
    assert answer.json() == done[0].json()


async def test_who_asks_again_finishes_what_a_broker_that_is_gone_began(
    brokers: HttpCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await brokers.create("a", "t", segments=2)
    load = await reserve(brokers.up["a"].client, "t", 2, "x")
    files = load.files(numbered(0, 100))
    await write(brokers, load, files)
    brokers.membership.leaders = set()
    gone, other = brokers.up["b"].broker, brokers.up["c"].client

    async def begun(topic: str, load_id: str, ends: Mapping[int, SealedEnd]) -> None:
        def begin(state: TopicState) -> TopicState | None:
            owners = [segment.brokers for segment in state.open_segments]
            return begin_adoption(state, load_id, ends, owners.__getitem__, now_us=gone.clock.now_us())

        await gone.catalogue.change(topic, begin)
        raise OutcomeUnknown("it stops here")

    monkeypatch.setattr(gone.executor, "adopt_load", begun)
    check_problem(await commit(brokers.up["b"].client, load, files), 503, "store-unavailable")
    assert (await other.get(load.path)).json()["state"] == "committing"
    check_problem(await other.delete(load.path), 409, "load-committed")
    assert (await reserve(other, "t", 2, "x")).answer == load.answer
    answer = await commit(other, load, files)
    assert answer.status_code == 200 and answer.json()["messages"] == 100, answer.text
    assert len(await read_all(other, "t")) == 100
