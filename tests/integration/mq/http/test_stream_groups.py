"""Stream groups over HTTP: members that divide segments, commits, sessions, and what is wrong with requests."""

import asyncio
from typing import Any

import pytest

from filer.clock import ManualClock
from filer.stores.memory_store import MemoryStore
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.broker.stream_requests import G, Member, T, epochs


async def publish(broker: HttpBroker, *keyed: tuple[str, str]) -> None:
    body = {"messages": [{"key": key, "value": value} for key, value in keyed]}
    (await broker.client.post(f"{T}/messages", json=body)).raise_for_status()


async def described(broker: HttpBroker) -> dict[str, Any]:
    found: dict[str, Any] = (await broker.client.get(G)).raise_for_status().json()
    return found


async def topic_of(broker: HttpBroker, segments: int) -> None:
    (await broker.client.put(T, json={"segments": segments})).raise_for_status()


MANY = [(f"k{n}", f"v{n}") for n in range(40)]


async def test_members_divide_the_segments_and_each_message_is_read(memory_broker: HttpBroker) -> None:
    await topic_of(memory_broker, 4)
    await publish(memory_broker, *MANY)
    a, b = Member(memory_broker.client, "a"), Member(memory_broker.client, "b")
    told = await a.join()
    assert set(epochs(told)) == {0, 1, 2, 3} and told["heartbeat_seconds"] == 10 and told["release"] == []
    await b.join()
    assert b.holds == {}
    # It takes two heartbeats to let go: what it is asked for, it may commit before it names it.
    await a.beat()
    assert len(a.holds) == 2 and len(a.released) == 2
    await a.settle(), await b.settle()
    assert sorted([*a.holds, *b.holds]) == [0, 1, 2, 3] and set(b.holds.values()) == {2}
    seen = await a.work() + await b.work()
    assert sorted(seen) == sorted(value for _, value in MANY)
    told = await described(memory_broker)
    assert told["lag"] == {"messages": 0, "seconds": 0.0} and told["settings"]["mode"] == "stream"
    assert [(m["member_id"], m["segments"]) for m in told["members"]] == [
        ("a", sorted(a.holds)),
        ("b", sorted(b.holds)),
    ]
    assert {s["lag"] for s in told["segments"]} == {0} and sum(s["position"] for s in told["segments"]) == 40
    await publish(memory_broker, ("k1", "more"))
    assert sum(s["lag"] for s in (await described(memory_broker))["segments"]) == 1


async def test_a_commit_of_before_is_refused_and_a_repeated_one_is_not(memory_broker: HttpBroker) -> None:
    await topic_of(memory_broker, 1)
    await publish(memory_broker, *MANY)
    a = Member(memory_broker.client, "a")
    await a.join()
    await a.read(0, limit=10)
    for _ in range(2):
        answer = (await a.commit()).raise_for_status().json()
        assert answer == {"committed": [{"segment": 0, "epoch": 1, "position": 10, "in_force": 10}], "fenced": []}
    again = Member(memory_broker.client, "a")  # another process of that name
    await again.join()
    assert again.holds == {0: 2} and again.positions == {0: 10}
    check_problem(await a.beat(), 409, "member-fenced")
    (await a.commit()).raise_for_status()  # moves nothing, and did so before
    await a.read(0, limit=5)
    check_problem(await a.commit(), 409, "member-fenced")
    assert (await described(memory_broker))["segments"][0]["position"] == 10
    assert len(await again.work()) == 30
    # An older position under the same epoch counts, and moves nothing back.
    again.positions[0] = 12
    told = (await again.commit()).raise_for_status().json()
    assert told["committed"] == [{"segment": 0, "epoch": 2, "position": 12, "in_force": 40}]
    assert (await described(memory_broker))["segments"][0]["position"] == 40


async def test_whoever_is_not_heard_for_a_session_is_out(memory_broker: HttpBroker) -> None:
    await topic_of(memory_broker, 2)
    (await memory_broker.client.put(G, json={"mode": "stream", "session_seconds": 1})).raise_for_status()
    a, b = Member(memory_broker.client, "a"), Member(memory_broker.client, "b")
    await a.join(), await b.join()
    async with asyncio.timeout(20):
        while set(b.holds) != {0, 1}:  # the wait is cut at half a session
            (await b.beat(wait=5)).raise_for_status()
    check_problem(await a.beat(), 409, "member-fenced")
    assert [each["member_id"] for each in (await described(memory_broker))["members"]] == ["b"]


async def test_whoever_leaves_frees_its_segments_at_once(memory_broker: HttpBroker) -> None:
    await topic_of(memory_broker, 2)
    a, b = Member(memory_broker.client, "a"), Member(memory_broker.client, "b")
    await a.join(), await b.join()
    await a.settle(), await b.settle()
    waiting = asyncio.create_task(b.beat(wait=15))
    for _ in range(2):
        answer = await memory_broker.client.delete(f"{G}/members/a", params={"member_epoch": a.epoch})
        assert answer.status_code == 204
    (await waiting).raise_for_status()  # it is told at once
    assert set(b.holds) == {0, 1}
    assert (await memory_broker.client.delete(f"{G}/members/b")).status_code == 204
    check_problem(await memory_broker.client.delete(f"{G}/members/b"), 404, "member-not-found")


async def test_successors_come_when_their_predecessors_are_committed(memory_broker: HttpBroker) -> None:
    await topic_of(memory_broker, 1)
    await publish(memory_broker, *MANY)
    a = Member(memory_broker.client, "a")
    await a.join()
    (await memory_broker.client.post(f"{T}/segments/0/split")).raise_for_status()
    await publish(memory_broker, *((key, value + "+") for key, value in MANY))
    (await a.beat()).raise_for_status()
    assert set(a.holds) == {0}
    assert len(await a.work()) == 40
    assert await a.settle() == {1: 1, 2: 1}
    (await memory_broker.client.post(f"{T}/segments/1/merge", json={"with": 2})).raise_for_status()
    seen = await a.work()
    assert sorted(seen) == sorted(value + "+" for _, value in MANY)
    assert await a.settle() == {3: 1}
    told = await described(memory_broker)
    assert told["lag"]["messages"] == 0 and [each["segment"] for each in told["segments"]] == [3]


async def test_a_group_begins_where_it_is_told(memory_broker: HttpBroker) -> None:
    await topic_of(memory_broker, 1)
    await publish(memory_broker, *MANY)
    latest = {"mode": "stream", "from": "latest"}
    assert (await memory_broker.client.put(G, json=latest)).status_code == 201
    a = Member(memory_broker.client, "a")
    assert (await a.join())["segments"] == [{"segment": 0, "epoch": 1, "position": 40}]
    early = Member(memory_broker.client, "a", f"{T}/groups/early")
    assert (await early.join())["segments"] == [{"segment": 0, "epoch": 1, "position": 0}]


async def test_retention_that_overtakes_is_told() -> None:
    clock = ManualClock()
    settings = {"maintenance_interval": 5, "report_interval": 60, "grace": 1}
    async with http_broker(MemoryStore(clock=clock), clock=clock, **settings) as broker:
        (await broker.client.put(T, json={"segments": 1, "retention": {"seconds": 60}})).raise_for_status()
        await publish(broker, *MANY)
        a = Member(broker.client, "a")
        await a.join()
        await a.read(0, limit=10)
        (await a.commit()).raise_for_status()
        await clock.advance(3600)
        await publish(broker, ("k", "new"))
        async with asyncio.timeout(20):
            while (await broker.client.get(T)).json()["segments"][0]["start_offset"] < 40:
                await clock.advance(5)
                await asyncio.sleep(0.01)
        assert (await a.join())["segments"] == [{"segment": 0, "epoch": 2, "position": 40}]
        told = await described(broker)
        assert (told["skipped"], told["lag"]["messages"]) == (30, 1)
        assert await a.work() == ["new"]


async def test_a_reset_takes_members_along(memory_broker: HttpBroker) -> None:
    await topic_of(memory_broker, 1)
    await publish(memory_broker, *MANY)
    a = Member(memory_broker.client, "a")
    await a.join()
    assert len(await a.work()) == 40
    check_problem(await memory_broker.client.post(f"{G}/reset", json={"to": "earliest"}), 409, "group-active")
    forced = {"to": "earliest", "force": True}
    (await memory_broker.client.post(f"{G}/reset", json=forced)).raise_for_status()
    check_problem(await a.commit(), 409, "member-fenced")
    await a.settle()
    assert len(await a.work()) == 40 and a.holds[0] > 1


async def test_each_mode_refuses_what_is_the_others(memory_broker: HttpBroker) -> None:
    await topic_of(memory_broker, 1)
    await Member(memory_broker.client, "a").join()
    for verb, body in (("claims", {}), ("acks", {"messages": [{"claim": "x"}]}), ("redrive", {})):
        problem = check_problem(await memory_broker.client.post(f"{G}/{verb}", json=body), 409, "group-mode")
        assert "stream group" in problem["detail"] and "/members" in problem["detail"]
    queue = f"{T}/groups/q"
    (await memory_broker.client.put(queue, json={})).raise_for_status()
    problem = check_problem(await memory_broker.client.post(f"{queue}/members"), 409, "group-mode")
    assert "queue group" in problem["detail"] and "/claims" in problem["detail"]
    changed = await memory_broker.client.put(G, json={"mode": "queue"})
    assert "stays so" in check_problem(changed, 422, "invalid-config")["detail"]
    wrong = await memory_broker.client.put(G, json={"lease_seconds": 5})
    assert "session_seconds" in check_problem(wrong, 422, "invalid-config")["detail"]
    assert (await memory_broker.client.put(G, json={"session_seconds": 60})).json()["settings"]["session_seconds"] == 60


async def test_a_member_that_is_none_is_told_why(memory_broker: HttpBroker) -> None:
    await topic_of(memory_broker, 1)
    a = Member(memory_broker.client, "a")
    await a.join()

    async def told(member: str, epoch: int) -> str:
        path = f"{G}/members/{member}/heartbeats"
        answer = await memory_broker.client.post(path, json={"member_epoch": epoch})
        return str(check_problem(answer, 409, "member-fenced")["detail"])

    assert "'nobody' is no member of group 'g': it has not joined, has left, or" in await told("nobody", 1)
    assert "member 'a' has no start 7: its last one is 1" in await told("a", 7)
    await a.join()
    assert "it has joined again since, as start 2" in await told("a", 1)
    await memory_broker.client.delete(f"{G}/members/a")
    assert "it has not joined, has left, or" in await told("a", 2)


async def test_a_commit_for_a_segment_that_is_not_there_is_told_so(memory_broker: HttpBroker) -> None:
    await topic_of(memory_broker, 1)
    await Member(memory_broker.client, "a").join()

    async def told(segment: int) -> str:
        commit = {"member_id": "a", "positions": [{"segment": segment, "epoch": 7, "position": 0}]}
        return str(
            check_problem(await memory_broker.client.post(f"{G}/commits", json=commit), 409, "member-fenced")["detail"]
        )

    assert await told(9) == "topic 't' has no segment 9, so no position has moved: join again"
    assert "none of these segments is with member 'a' under that epoch" in await told(0)


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("members", {"member_id": ""}, 422, "invalid-name"),
        ("members", {"member_id": "a/b"}, 422, "invalid-name"),
        ("members", {"member_id": "x" * 201}, 422, "invalid-name"),
        ("members", {"member": "a"}, 422, "invalid-request"),
        ("members/a/heartbeats", {}, 422, "invalid-request"),
        ("members/a/heartbeats", {"member_epoch": 0}, 422, "invalid-request"),
        ("members/a/heartbeats", {"member_epoch": 1, "member_id": "b"}, 422, "invalid-request"),
        ("members/a/heartbeats", {"member_epoch": 7}, 409, "member-fenced"),
        ("members/nobody/heartbeats", {"member_epoch": 1}, 409, "member-fenced"),
        ("members/a/heartbeats", {"member_epoch": 1, "wait": -1}, 422, "invalid-request"),
        ("members/a/heartbeats", {"member_epoch": 1, "released": [{"segment": 0}]}, 422, "invalid-request"),
        ("commits", {"member_id": "a"}, 422, "invalid-request"),
        ("commits", {"member_id": "a", "positions": []}, 422, "invalid-request"),
        (
            "commits",
            {"member_id": "a", "positions": [{"segment": 0, "epoch": 1, "position": -1}]},
            422,
            "invalid-request",
        ),
        (
            "commits",
            {"member_id": "a", "positions": [{"segment": 0, "epoch": 1, "position": 2}]},
            422,
            "invalid-request",
        ),
        ("commits", {"member_id": "a", "positions": [{"segment": 9, "epoch": 1, "position": 1}]}, 409, "member-fenced"),
        ("commits", {"member_id": "a", "positions": [{"segment": 0, "epoch": 2, "position": 1}]}, 409, "member-fenced"),
        ("commits", {"member_id": "b", "positions": [{"segment": 0, "epoch": 1, "position": 1}]}, 409, "member-fenced"),
    ],
)
async def test_what_is_wrong_is_named(
    memory_broker: HttpBroker, path: str, body: dict[str, Any], status: int, kind: str
) -> None:
    await topic_of(memory_broker, 1)
    await publish(memory_broker, ("k", "v"))
    await Member(memory_broker.client, "a").join()
    check_problem(await memory_broker.client.post(f"{G}/{path}", json=body), status, kind)
    assert (await described(memory_broker))["segments"][0]["position"] == 0


async def test_what_is_not_there_is_named(memory_broker: HttpBroker) -> None:
    check_problem(await memory_broker.client.post(f"{G}/members"), 404, "topic-not-found")
    await topic_of(memory_broker, 1)
    beat = {"member_epoch": 1}
    check_problem(await memory_broker.client.post(f"{G}/members/a/heartbeats", json=beat), 404, "group-not-found")
    told = (await memory_broker.client.post(f"{G}/members")).raise_for_status().json()  # it is given a name
    assert len(told["member_id"]) == 26
    (await memory_broker.client.delete(T)).raise_for_status()
    path = f"{G}/members/{told['member_id']}/heartbeats"
    check_problem(await memory_broker.client.post(path, json=beat), 404, "topic-not-found")


async def test_a_group_has_so_many_members(memory_broker: HttpBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mq.groups.stream_group.MOST_MEMBERS", 2)
    await topic_of(memory_broker, 1)
    joins = [Member(memory_broker.client, name).join() for name in "ab"]
    await asyncio.gather(*joins)
    check_problem(await memory_broker.client.post(f"{G}/members"), 409, "too-many-members")
    await Member(memory_broker.client, "a").join()  # it is one of them
