"""Consumer groups of a member of a topic group: they see its messages alone, and end when its name means another."""

import asyncio
from typing import Any

import orjson
import pyarrow as pa
import pytest

from filer.stores.memory_store import MemoryStore
from groups.fold import GroupFold
from groups.queue.progress import QueueProgress
from groups.records import Progress, Record, Source
from groups.records import from_json as record_of
from mq.groups import group_view, lag, message_feed
from mq.groups.lag_watch import LagWatch
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.broker.stream_requests import Member
from tests.support.broker.topic_group_requests import SHOP, Group, make_shop, publish_to
from tests.support.store.dying_store import DyingStore

SECONDS = 20


async def mixed(broker: HttpBroker, count: int, **about: Any) -> None:
    """`o0`, `p0`, `o1`, `p1` and so on."""
    for number in range(count):
        await publish_to(broker, "orders", f"o{number}", **about)
        await publish_to(broker, "payments", f"p{number}", **about)


async def records(broker: HttpBroker, group: str) -> list[Record]:
    """What is stored about a group."""
    answer = await broker.client.get("/v1/topics/__groups/messages", params={"limit": 1000})
    return [
        record_of(orjson.dumps(message["value"]))
        for message in answer.raise_for_status().json()["messages"]
        if message["key"] == group
    ]


# -- queue groups ----------------------------------------------------------------------------------------------


async def test_a_group_sees_its_members_messages_alone(broker: HttpBroker) -> None:
    await make_shop(broker)
    orders, payments, shop = (Group(broker, topic) for topic in ("orders", "payments", "shop"))
    await mixed(broker, 10)
    claimed = await orders.claim(max=4)
    assert [(m["id"], m["value"]) for m in claimed["messages"]] == [(f"0-{2 * n}", f"o{n}") for n in range(4)]
    assert all("topic" not in message for message in claimed["messages"])
    # The same name is that of other groups: of another member, and of the whole.
    assert await payments.work(max=3) == ["p0", "p1", "p2"]
    assert await shop.work(max=3) == ["o0", "p0", "o1"]
    assert (await orders.decide("acks", claimed)).json()["accepted"] == 4
    assert await orders.work() == [f"o{n}" for n in range(4, 10)]
    assert [(await each.told())["lag"]["messages"] for each in (orders, payments, shop)] == [0, 7, 17]
    assert (await orders.told())["skipped"] == 0
    # What others publish holds back nobody, and is not looked at again.
    await publish_to(broker, "payments", *(f"q{n}" for n in range(50)))
    await publish_to(broker, "orders", "last")
    assert await orders.work() == ["last"] and await orders.work() == []
    told = await orders.told()
    assert (told["lag"], told["in_flight"], told["skipped"]) == ({"messages": 0, "seconds": 0.0}, 0, 0)
    answer = (await broker.client.get("/v1/topics/orders/groups")).json()
    assert answer["groups"] == [{"group": "g", "mode": "queue"}]


async def test_a_claim_waits_through_others_messages(memory_broker: HttpBroker) -> None:
    await make_shop(memory_broker)
    orders = Group(memory_broker, "orders")
    async with asyncio.timeout(SECONDS):
        waiting = asyncio.create_task(orders.claim(wait=SECONDS))
        for number in range(20):
            await publish_to(memory_broker, "payments", number)
        assert not waiting.done()
        await publish_to(memory_broker, "orders", "at last")
        assert [message["value"] for message in (await waiting)["messages"]] == ["at last"]


async def test_claims_as_arrow_are_those_of_a_topic(memory_broker: HttpBroker) -> None:
    await make_shop(memory_broker, key_type="string", value_type="string")
    await mixed(memory_broker, 3)
    headers = {"accept": "application/vnd.apache.arrow.stream"}
    answer = await memory_broker.client.post("/v1/topics/orders/groups/g/claims", json={}, headers=headers)
    with pa.ipc.open_stream(answer.raise_for_status().content) as stream:
        table = stream.read_all()
    assert "_topic" not in table.schema.names and table["value"].to_pylist() == ["o0", "o1", "o2"]


async def test_one_name_for_messages_between_those_of_others(memory_broker: HttpBroker) -> None:
    """With `scattered`, a claim has the member's messages, and none of those between: an ack of all is of these."""
    await make_shop(memory_broker)
    await mixed(memory_broker, 4)
    orders, payments = Group(memory_broker, "orders"), Group(memory_broker, "payments")
    headers = {"accept": "application/vnd.apache.arrow.stream"}
    body = {"scattered": True, "max": 3, "wait": 5}
    answer = await memory_broker.client.post(f"{orders.path}/claims", json=body, headers=headers)
    with pa.ipc.open_stream(answer.raise_for_status().content) as stream:
        table = stream.read_all()
    (told,) = orjson.loads(table.schema.metadata[b"braid-claims"])["claims"]
    assert (table["_offset"].to_pylist(), told["ranges"]) == ([0, 2, 4], [[0, 1], [2, 3], [4, 5]])
    assert "_topic" not in table.schema.names
    between = {"messages": [{"claim": told["claim"], "id": "0-1"}]}
    check_problem(await memory_broker.client.post(f"{orders.path}/acks", json=between), 422, "invalid-request")
    part = {"messages": [{"claim": told["claim"], "from": 1}]}
    acked = (await memory_broker.client.post(f"{orders.path}/acks", json=part)).raise_for_status().json()
    assert acked["results"][0]["accepted"] == [[2, 3], [4, 5]]
    assert (await orders.told())["lag"]["messages"] == 2 and (await payments.work()) == [f"p{n}" for n in range(4)]
    whole = {"messages": [{"claim": told["claim"]}]}
    assert (await memory_broker.client.post(f"{orders.path}/acks", json=whole)).json()["accepted"] == 3
    assert await orders.work() == ["o3"]


async def test_keys_keep_their_order_among_the_members_messages(memory_broker: HttpBroker) -> None:
    """Others have messages of the same key ahead, which nobody in this group acks."""
    await make_shop(memory_broker)
    orders = Group(memory_broker, "orders")
    await orders.put(order="key")
    await mixed(memory_broker, 3, key="same")
    await publish_to(memory_broker, "orders", "free", key="other")
    first = await orders.claim(max=1)
    assert [m["value"] for m in first["messages"]] == ["o0"]
    assert await orders.work() == ["free"]
    (await orders.decide("acks", first)).raise_for_status()
    assert await orders.work() == ["o1", "o2"]


async def test_times_of_others_messages_are_not_heeded(memory_broker: HttpBroker) -> None:
    await make_shop(memory_broker)
    orders, payments = Group(memory_broker, "orders"), Group(memory_broker, "payments")
    await publish_to(memory_broker, "payments", "late", delay_seconds=3600)
    await publish_to(memory_broker, "payments", "over", headers={"braid-expires-at": "2020-01-01T00:00:00Z"})
    await publish_to(memory_broker, "orders", "now")
    await publish_to(memory_broker, "orders", "gone", headers={"braid-expires-at": "2020-01-01T00:00:00Z"})
    assert (await orders.work(), await payments.work()) == (["now"], [])
    told = (await orders.told(), await payments.told())
    assert [(each["lag"]["messages"], each["delayed"], each["expired"]) for each in told] == [(0, 0, 1), (0, 1, 1)]


async def until_dead(group: Group, count: int) -> None:
    async with asyncio.timeout(SECONDS):
        while (await group.told())["dead"] != count:
            await asyncio.sleep(0.02)


async def test_dead_letters_of_a_member_are_redriven_to_it(memory_broker: HttpBroker) -> None:
    await make_shop(memory_broker)
    orders = Group(memory_broker, "orders")
    await mixed(memory_broker, 3)
    claimed = await orders.claim()
    (await orders.decide("releases", claimed, dead=True, reason="no")).raise_for_status()
    await until_dead(orders, 3)
    assert await orders.seen("dead") == ["o0", "o1", "o2"]
    letters = (await memory_broker.client.get("/v1/topics/orders.dead/messages")).json()["messages"]
    assert [m["headers"]["braid-dead-topic"] for m in letters] == ["orders"] * 3
    answer = await memory_broker.client.post(f"{orders.path}/redrive", json={"max": 2})
    assert answer.json() == {"redriven": 2, "more": True}
    assert await orders.work() == ["o0", "o1"]
    assert await Group(memory_broker, "payments").work() == ["p0", "p1", "p2"]


async def test_looking_at_messages_shows_the_members_own(
    memory_broker: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_shop(memory_broker)
    orders = Group(memory_broker, "orders")
    await mixed(memory_broker, 6)
    claimed = await orders.claim(max=2)
    assert await orders.seen("in_flight") == ["o0", "o1"]
    assert await orders.seen("backlog", limit=1) == [f"o{n}" for n in range(2, 6)]
    (await orders.decide("acks", claimed)).raise_for_status()
    # What nobody has looked at for the group: found behind others' messages, a page after the other.
    monkeypatch.setattr(group_view, "MOST_PASSED_PAGES", 1)
    monkeypatch.setattr("mq.topic.topic_reader.PASSED_ROWS", 5)
    monkeypatch.setattr("mq.topic.topic_reader.PASSED_BYTES", 1)
    fresh = Group(memory_broker, "orders", "fresh")
    await fresh.put()
    await publish_to(memory_broker, "payments", *range(30))
    await publish_to(memory_broker, "orders", "end")
    assert await fresh.seen("backlog", limit=2) == [*(f"o{n}" for n in range(6)), "end"]


async def test_lag_counts_the_members_messages_while_there_are_few_of_others(
    memory_broker: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_shop(memory_broker)
    await mixed(memory_broker, 20)
    queue, stream = Group(memory_broker, "orders"), Group(memory_broker, "orders", "s")
    await queue.put()
    await stream.put(mode="stream")
    for group in (queue, stream):
        lag_told = (await group.told())["lag"]
        assert lag_told["messages"] == 20 and "at_most" not in lag_told and lag_told["seconds"] > 0
    watch = LagWatch(
        memory_broker.broker.groups.known,
        memory_broker.broker.groups.source,
        memory_broker.broker.metrics.groups,
        memory_broker.broker.clock,
    )
    await watch.look()
    text = (await memory_broker.client.get("/metrics")).text
    assert 'braidmq_group_lag_messages{group="g",topic="orders"} 20.0' in text
    assert 'braidmq_group_lag_is_at_most{group="g",topic="orders"} 0.0' in text
    # Too many to count: of the first 10, 5 are the member's, and whose the other 30 are nobody has looked.
    monkeypatch.setattr(lag, "COUNTED_ROWS", 10)
    monkeypatch.setattr("mq.topic.topic_reader.PASSED_ROWS", 10)
    assert [(await group.told())["lag"]["messages"] for group in (queue, stream)] == [35, 35]
    assert (await queue.told())["lag"]["at_most"] is True
    await watch.look()
    text = (await memory_broker.client.get("/metrics")).text
    assert 'braidmq_group_lag_messages{group="s",topic="orders"} 35.0' in text
    assert 'braidmq_group_lag_is_at_most{group="s",topic="orders"} 1.0' in text
    # Whoever works has it counted: what was looked at is known.
    assert len(await queue.work(max=100)) == 20
    assert (await queue.told())["lag"] == {"messages": 0, "seconds": 0.0}


async def test_others_messages_cost_a_group_no_records(
    memory_broker: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_shop(memory_broker)
    orders = Group(memory_broker, "orders")
    await mixed(memory_broker, 1)
    assert await orders.work() == ["o0"]
    before = len(await records(memory_broker, "orders/g"))
    for number in range(10):
        await publish_to(memory_broker, "payments", number)
        assert await orders.work() == []
    assert len(await records(memory_broker, "orders/g")) == before
    assert (await orders.told())["lag"]["messages"] == 0
    # But not for ever: whoever takes over reads them again.
    monkeypatch.setattr(message_feed, "MOST_UNTOLD", 5)
    await publish_to(memory_broker, "payments", "p")
    assert await orders.work() == []
    async with asyncio.timeout(SECONDS):
        while len(await records(memory_broker, "orders/g")) == before:
            await asyncio.sleep(0.02)
    last = (await records(memory_broker, "orders/g"))[-1]
    assert isinstance(last, Progress)
    assert [tuple(each) for each in last.passed] == [(0, 2, 13)] and not last.skipped
    await publish_to(memory_broker, "orders", "o")
    assert await orders.work() == ["o"] and (await orders.told())["skipped"] == 0


# -- stopped at any line -----------------------------------------------------------------------------------------


async def test_behind_each_record_the_members_messages_are_done_or_to_come(
    memory_broker: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes over knows what the records up to there tell. Nothing of the member is done that was not acked."""
    monkeypatch.setattr(message_feed, "MOST_UNTOLD", 3)
    await make_shop(memory_broker)
    orders = Group(memory_broker, "orders")
    await orders.put(backoff_seconds=[0])
    for number in range(6):
        await mixed(memory_broker, number % 3)
        await publish_to(memory_broker, "payments", *range(number))
        claimed = await orders.claim(max=2)
        await orders.decide("releases" if number == 3 else "acks", claimed)
    whole = (await memory_broker.client.get("/v1/topics/shop/messages", params={"limit": 1000})).json()["messages"]
    own = {message["offset"] for message in whole if message["topic"] == "orders"}
    fold, acked, behind = GroupFold(), set[int](), list[int]()
    for record in await records(memory_broker, "orders/g"):
        fold.add("orders/g", record)
        progress = fold.groups["orders/g"]
        assert isinstance(progress, QueueProgress)
        if isinstance(record, Progress):
            acked |= {offset for each in record.acked for offset in range(each.start, each.stop)}
        (segment,) = progress.segments.values()
        unfinished = {offset for each in segment.unfinished().ranges() for offset in range(*each)}
        assert unfinished == {offset for offset in own - acked if offset < segment.horizon}
        # So it is when it is read from a snapshot.
        again = QueueProgress.from_plain(orjson.loads(orjson.dumps(progress.to_plain(), default=tuple)))
        assert again.to_plain() == progress.to_plain() and again.source == progress.source == Source("shop", 0)
        behind.append(segment.horizon)
    assert acked and behind == sorted(behind) and behind[-1] > max(own)


@pytest.mark.parametrize("before", [True, False], ids=["before the put", "behind the put"])
async def test_killed_at_the_put_that_tells_of_others_messages(before: bool) -> None:
    """An ack of before holds, and the member's next message comes, whether or not the record was stored."""
    kept = MemoryStore()
    store = DyingStore(kept)
    async with http_broker(store) as broker:
        await make_shop(broker)
        orders = Group(broker, "orders")
        await orders.put(lease_seconds=1, backoff_seconds=[0])
        await mixed(broker, 3)
        assert await orders.work(max=2) == ["o0", "o1"]
        await publish_to(broker, "payments", *range(10))
        await publish_to(broker, "orders", "next")
        store.die_at(0, before=before)
        answer = await broker.client.post(f"{orders.path}/claims", json={"max": 5})
        assert store.dead and (before is False or answer.is_server_error or answer.json()["messages"])
    async with http_broker(kept) as broker, asyncio.timeout(SECONDS):
        orders, found = Group(broker, "orders"), list[str]()
        while len(found) < 2:
            found += await orders.work(wait=5)
        assert sorted(found) == ["next", "o2"] and (await orders.told())["lag"]["messages"] == 0


# -- a name that means something else ------------------------------------------------------------------------------


async def test_a_group_ends_when_its_name_is_that_of_another_topic(memory_broker: HttpBroker) -> None:
    """Segments of both have the same ids. The position in one would skip messages of the other."""
    client = memory_broker.client
    await make_shop(memory_broker)
    orders, stream = Group(memory_broker, "orders"), Group(memory_broker, "orders", "s")
    await orders.put(max_deliveries=7)
    member = Member(client, "a", stream.path)
    await mixed(memory_broker, 5)
    assert len(await orders.work(max=4)) == 4
    held = await orders.claim()
    await member.join()
    assert len(await member.work()) == 5
    (await client.delete(SHOP)).raise_for_status()
    check_problem(await client.get(orders.path), 404, "topic-not-found")
    (await client.put("/v1/topics/orders")).raise_for_status()
    await publish_to(memory_broker, "orders", *(f"new {n}" for n in range(6)))
    check_problem(await client.get(orders.path), 404, "group-not-found")
    check_problem(await orders.decide("acks", held), 404, "group-not-found")
    check_problem(await client.get(f"{orders.path}/messages?state=backlog"), 404, "group-not-found")
    check_problem(await client.post(f"{orders.path}/reset", json={"to": "latest"}), 404, "group-not-found")
    check_problem(await member.beat(), 404, "group-not-found")
    check_problem(await member.commit(), 404, "group-not-found")
    assert (await client.get("/v1/topics/orders/groups")).json()["groups"] == []
    assert await orders.work() == [f"new {n}" for n in range(6)]
    told = await orders.told()
    assert (told["settings"]["max_deliveries"], told["skipped"], told["dead"]) == (5, 0, 0)
    check_problem(await orders.decide("acks", held), 409, "claim-lost")
    await member.join()
    assert member.positions == {0: 0} and len(await member.work()) == 6


async def test_a_group_of_a_topic_ends_when_its_name_joins_a_topic_group(memory_broker: HttpBroker) -> None:
    client = memory_broker.client
    (await client.put("/v1/topics/orders")).raise_for_status()
    orders = Group(memory_broker, "orders")
    await publish_to(memory_broker, "orders", *range(5))
    assert len(await orders.work()) == 5
    (await client.delete("/v1/topics/orders")).raise_for_status()
    await make_shop(memory_broker)
    await mixed(memory_broker, 3)
    assert not (await orders.put())["skipped"] and await orders.work() == ["o0", "o1", "o2"]
    # And on: the topic group is made anew, with the same topics.
    (await client.delete(SHOP)).raise_for_status()
    await make_shop(memory_broker)
    await mixed(memory_broker, 4)
    check_problem(await client.get(orders.path), 404, "group-not-found")
    assert await orders.work() == ["o0", "o1", "o2", "o3"]
    # And another one of another name, whose segments have the ids of the first.
    (await client.delete(SHOP)).raise_for_status()
    (await client.put("/v1/topic-groups/mall", json={"topics": ["orders"]})).raise_for_status()
    await publish_to(memory_broker, "orders", *range(20))
    assert await orders.work() == list(range(20))


async def test_what_is_over_is_found_after_a_restart_and_by_whoever_was_in_between() -> None:
    kept = MemoryStore()
    async with http_broker(kept) as broker:
        await make_shop(broker)
        await mixed(broker, 3)
        orders = Group(broker, "orders")
        assert len(await orders.work(max=2)) == 2
    async with http_broker(kept) as broker:
        orders = Group(broker, "orders")
        assert await orders.work() == ["o2"]
        (await broker.client.delete(SHOP)).raise_for_status()
        (await broker.client.put("/v1/topics/orders")).raise_for_status()
        await publish_to(broker, "orders", *"abc")
    async with http_broker(kept) as broker:
        orders = Group(broker, "orders")
        claims = [orders.claim(max=1) for _ in range(6)]
        values = [m["value"] for claimed in await asyncio.gather(*claims) for m in claimed["messages"]]
        assert sorted(values) == ["a", "b", "c"]
        assert (await broker.client.delete(orders.path)).status_code == 204


async def test_dead_letters_of_a_group_that_is_over_are_tried_no_more(memory_broker: HttpBroker) -> None:
    client = memory_broker.client
    await make_shop(memory_broker)
    await mixed(memory_broker, 1)
    orders = Group(memory_broker, "orders")
    claimed = await orders.claim()
    # They cannot be stored now.
    (await client.put("/v1/topics/orders.dead", json={"key_type": "string", "value_type": "json"})).raise_for_status()
    (await orders.decide("releases", claimed, dead=True)).raise_for_status()
    (await client.delete(SHOP)).raise_for_status()
    (await client.put("/v1/topics/orders")).raise_for_status()
    async with asyncio.timeout(SECONDS):
        while any(each.name == ("orders", "g") for each in memory_broker.broker.groups.known()):
            await asyncio.sleep(0.05)
    # A new group would not be made beside it.
    (await client.delete("/v1/topics/orders.dead")).raise_for_status()
    await publish_to(memory_broker, "orders", "new")
    assert await orders.work() == ["new"] and (await orders.told())["dead"] == 0


@pytest.mark.parametrize("topic", ["nosuch", "returns"])
async def test_names_that_are_no_topic_have_no_groups(memory_broker: HttpBroker, topic: str) -> None:
    """One has never been; the other is named by the group, and has not joined, because somebody else has it."""
    await make_shop(memory_broker)
    for path, body in ((f"/v1/topics/{topic}/groups/g/claims", {}), (f"/v1/topics/{topic}/groups/g/members", {})):
        check_problem(await memory_broker.client.post(path, json=body), 404, "topic-not-found")
    check_problem(await memory_broker.client.put(f"/v1/topics/{topic}/groups/g"), 404, "topic-not-found")
    check_problem(await memory_broker.client.get(f"/v1/topics/{topic}/groups"), 404, "topic-not-found")


# -- stream groups -------------------------------------------------------------------------------------------------


async def test_a_stream_group_reads_the_members_messages_and_goes_on_behind_others(memory_broker: HttpBroker) -> None:
    await make_shop(memory_broker, splittable=True)
    group = Group(memory_broker, "orders", "s")
    for number in range(20):
        await publish_to(memory_broker, "orders", f"o{number}", key=f"k{number}")
        await publish_to(memory_broker, "payments", f"p{number}", key=f"k{number}")
    member = Member(memory_broker.client, "a", group.path)
    await member.join()
    assert await member.work() == [f"o{n}" for n in range(20)]
    assert (await group.told())["lag"] == {"messages": 0, "seconds": 0.0}
    split = await memory_broker.client.post("/v1/topics/shop/segments/0/split")
    assert split.status_code == 200, split.text
    await publish_to(memory_broker, "payments", *range(30))
    for number in range(20):
        await publish_to(memory_broker, "orders", f"n{number}", key=f"k{number}")
    assert (await group.told())["lag"]["messages"] == 20
    found: list[str] = []
    async with asyncio.timeout(SECONDS):
        while len(found) < 20:
            await member.beat(wait=1)
            found += await member.work()
    assert sorted(found) == sorted(f"n{n}" for n in range(20)) and sorted(member.holds) == [1, 2]
    assert (await group.told())["lag"]["messages"] == 0
    check_problem(await memory_broker.client.post(f"{group.path}/claims", json={}), 409, "group-mode")


@pytest.mark.parametrize("where", ["earliest", "latest", "marker"])
async def test_a_group_of_a_member_begins_anew_where_it_is_told(memory_broker: HttpBroker, where: str) -> None:
    await make_shop(memory_broker)
    await mixed(memory_broker, 2)
    orders = Group(memory_broker, "orders")
    await orders.put(**{"from": "latest"})
    assert await orders.work() == []
    page = (await memory_broker.client.get("/v1/topics/orders/messages", params={"limit": 1})).json()
    body = {"marker": page["marker"]} if where == "marker" else {"to": where}
    answer = await memory_broker.client.post(f"{orders.path}/reset", json=body)
    assert answer.status_code == 200, answer.text
    await publish_to(memory_broker, "orders", "new")
    expected = {"earliest": ["o0", "o1", "new"], "latest": ["new"], "marker": ["o1", "new"]}
    assert await orders.work() == expected[where]
    whole = (await memory_broker.client.get("/v1/topics/shop/messages")).json()["marker"]
    check_problem(
        await memory_broker.client.post(f"{orders.path}/reset", json={"marker": whole}), 400, "invalid-marker"
    )


# -- groups of the whole -------------------------------------------------------------------------------------------


async def test_a_stream_group_of_the_whole_reads_all_members_in_their_order(memory_broker: HttpBroker) -> None:
    await make_shop(memory_broker)
    whole, part = Group(memory_broker, "shop", "s"), Group(memory_broker, "orders", "s")
    await mixed(memory_broker, 5)
    a, b = (Member(memory_broker.client, "a", each.path) for each in (whole, part))
    await a.join()
    await b.join()
    page = await a.read(0, limit=4)
    assert [(m["topic"], m["value"]) for m in page["messages"]] == [
        ("orders", "o0"),
        ("payments", "p0"),
        ("orders", "o1"),
        ("payments", "p1"),
    ]
    (await a.commit()).raise_for_status()
    assert [(await each.told())["lag"]["messages"] for each in (whole, part)] == [6, 5]
    assert await b.work() == [f"o{n}" for n in range(5)]
    assert await a.work() == ["o2", "p2", "o3", "p3", "o4", "p4"]
    assert [(await each.told())["lag"]["messages"] for each in (whole, part)] == [0, 0]


async def test_dead_letters_of_a_whole_topic_group_go_back_to_their_members(memory_broker: HttpBroker) -> None:
    await make_shop(memory_broker)
    shop = Group(memory_broker, "shop")
    await mixed(memory_broker, 3)
    claimed = await shop.claim()
    (await shop.decide("releases", claimed, dead=True, reason="no")).raise_for_status()
    await until_dead(shop, 6)
    letters = (await memory_broker.client.get("/v1/topics/shop.dead/messages")).json()["messages"]
    told = [(m["value"], m["headers"]["braid-dead-topic"], m["headers"]["braid-dead-member"]) for m in letters]
    assert told[:2] == [("o0", "shop", "orders"), ("p0", "shop", "payments")]
    answer = await memory_broker.client.post(f"{shop.path}/redrive", json={"max": 5})
    assert answer.json() == {"redriven": 5, "more": True}
    assert await shop.work() == ["o0", "p0", "o1", "p1", "o2"]
    assert await Group(memory_broker, "orders").work() == ["o0", "o1", "o2", "o0", "o1", "o2"]
    assert await Group(memory_broker, "payments").work() == ["p0", "p1", "p2", "p0", "p1"]
    again = (await memory_broker.client.get("/v1/topics/payments/messages")).json()["messages"][-1]
    assert again["headers"] == {"braid-redriven-group": "g"}


@pytest.mark.parametrize("named", [None, "nosuch", "shop", "returns", "plain"])
async def test_a_letter_that_names_no_member_goes_nowhere(memory_broker: HttpBroker, named: str | None) -> None:
    """Whoever may publish to a topic of dead letters may forge one. `returns` has not joined: somebody else has it."""
    client = memory_broker.client
    await make_shop(memory_broker, value_type="string")
    for topic in ("returns", "plain"):
        (await client.put(f"/v1/topics/{topic}")).raise_for_status()
    await mixed(memory_broker, 1)
    shop = Group(memory_broker, "shop")
    claimed = await shop.claim(max=1)
    (await shop.decide("releases", claimed, dead=True)).raise_for_status()
    await until_dead(shop, 1)
    headers = {"braid-dead-topic": "shop", "braid-dead-group": "g"} | (
        {} if named is None else {"braid-dead-member": named}
    )
    await publish_to(memory_broker, "shop.dead", "forged", headers=headers)
    answer = await client.post(f"{shop.path}/redrive", json={})
    check_problem(answer, 409, "topic-group", 'discard it with {"ids": ["0-1"], "discard": true}')
    assert (await client.post(f"{shop.path}/redrive", json={"max": 1})).json() == {"redriven": 1, "more": True}
    body = {"ids": ["0-1"], "discard": True}
    assert (await client.post(f"{shop.path}/redrive", json=body)).json() == {"discarded": 1, "before": 0}
    for topic in ("returns", "plain"):
        assert not (await client.get(f"/v1/topics/{topic}/messages")).json()["messages"]
    assert len((await client.get("/v1/topics/shop/messages")).json()["messages"]) == 3


@pytest.mark.parametrize("before", [True, False], ids=["before the put", "behind the put"])
@pytest.mark.parametrize("request_", range(3), ids=["the choice", "the letters", "that they are stored"])
@pytest.mark.parametrize("topic", ["shop", "orders"])
async def test_a_redrive_that_is_broken_off_is_finished_once(topic: str, request_: int, before: bool) -> None:
    kept = MemoryStore()
    store = DyingStore(kept)
    async with http_broker(store) as broker:
        await make_shop(broker)
        await publish_to(broker, "orders", *"abc")
        group = Group(broker, topic)
        claimed = await group.claim()
        (await group.decide("releases", claimed, dead=True)).raise_for_status()
        await until_dead(group, 3)
        store.die_at(request_, before=before)
        await broker.client.post(f"{group.path}/redrive", json={})
        store.dead = True
    async with http_broker(kept) as broker:
        for _ in range(2):
            (await broker.client.post(f"/v1/topics/{topic}/groups/g/redrive", json={})).raise_for_status()
        messages = (await broker.client.get("/v1/topics/orders/messages")).json()["messages"]
        assert [m["value"] for m in messages] == [*"abc", *"abc"]
