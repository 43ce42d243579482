"""Topic groups: several topics share one chain of segments, and each is seen as a topic of its own."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filer.clock import SystemClock
from filer.stores.local.local_store import LocalStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Data, MakeData
from mq.http.endpoints import messages as messages_endpoint
from mq.http.streaming import live_streams
from mq.topic import topic_reader
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem

ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
GROUP = "/v1/topic-groups/shop"
SECONDS = 20


async def create(broker: HttpBroker, *topics: str, **settings: Any) -> dict[str, Any]:
    answer = await broker.client.put(GROUP, json={"topics": list(topics), **settings})
    assert answer.status_code in (200, 201), answer.text
    return dict(answer.json())


async def publish(broker: HttpBroker, topic: str, *values: Any, key: str | None = "k") -> list[dict[str, int]]:
    body = {"messages": [{"key": key, "value": value} for value in values]}
    answer = await broker.client.post(f"/v1/topics/{topic}/messages", json=body)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["positions"])


async def read(broker: HttpBroker, topic: str, **parameters: Any) -> dict[str, Any]:
    answer = await broker.client.get(f"/v1/topics/{topic}/messages", params=parameters)
    return dict(answer.raise_for_status().json())


async def values(broker: HttpBroker, topic: str, **parameters: Any) -> list[Any]:
    return [message["value"] for message in (await read(broker, topic, **parameters))["messages"]]


# -- what a group is -------------------------------------------------------------------------------------------


async def test_members_share_one_chain_and_are_read_apart(broker: HttpBroker) -> None:
    created = await create(broker, "orders", "payments")
    assert created["created"]
    assert (created["topics"], created["pending"], created["splittable"]) == (["orders", "payments"], [], False)
    assert created["config"]["max_segments"] == 1
    stored = [
        await publish(broker, topic, value)
        for topic, value in [("orders", "o1"), ("payments", "p1"), ("orders", "o2"), ("payments", "p2")]
    ]
    assert [(p["segment"], p["offset"]) for (p,) in stored] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    orders, shop = await read(broker, "orders"), await read(broker, "shop")
    assert [(m["id"], m["value"]) for m in orders["messages"]] == [("0-0", "o1"), ("0-2", "o2")]
    assert all("topic" not in message for message in orders["messages"])
    assert [(m["topic"], m["value"]) for m in shop["messages"]] == [
        ("orders", "o1"),
        ("payments", "p1"),
        ("orders", "o2"),
        ("payments", "p2"),
    ]
    # Behind the others' messages as well: they are not looked at again.
    assert not (await read(broker, "orders", marker=orders["marker"]))["messages"]
    await publish(broker, "payments", "p3")
    await publish(broker, "orders", "o3")
    assert await values(broker, "orders", marker=orders["marker"]) == ["o3"]


async def test_every_form_of_publish_takes_a_member(memory_broker: HttpBroker) -> None:
    client = memory_broker.client
    await create(memory_broker, "orders", "payments")
    path = "/v1/topics/orders/messages"
    rows = pa.table({"key": [b"k", None], "value": [b"arrow 1", b"arrow 2"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    await publish(memory_broker, "orders", "json")
    lines = b'{"key":"k","value":"nd 1"}\n{"value":"nd 2","delay_seconds":9}\n'
    for content, kind, query in [
        (lines, NDJSON, {}),
        (bytes(sink.getvalue()), ARROW, {}),
        (b"raw", "text/plain", {"key": "k"}),
        (b"delayed", "application/octet-stream", {"delay_seconds": "5"}),
        (b'{"a": 1}', "application/json", {"key": "k"}),
    ]:
        answer = await client.post(path, content=content, headers={"content-type": kind}, params=query)
        assert answer.status_code == 200, answer.text
    found = (await read(memory_broker, "orders"))["messages"]
    assert [m["value"] for m in found] == ["json", "nd 1", "nd 2", "arrow 1", "arrow 2", "raw", "delayed", {"a": 1}]
    assert ["braid-deliver-at" in m["headers"] for m in found] == [False, False, True, False, False, False, True, False]
    assert not await values(memory_broker, "payments")


async def test_a_producer_counts_for_each_member_by_itself(memory_broker: HttpBroker) -> None:
    await create(memory_broker, "orders", "payments")

    async def send(topic: str, value: str, sequence: int) -> dict[str, int]:
        answer = await memory_broker.client.post(
            f"/v1/topics/{topic}/messages",
            content=value,
            headers={"content-type": "text/plain"},
            params={"producer": "till", "sequence": sequence},
        )
        return dict(answer.raise_for_status().json()["positions"][0])

    first = await send("orders", "o", 1)
    other = await send("payments", "p", 1)
    assert (first["offset"], other["offset"]) == (0, 1)
    assert await send("orders", "again", 1) == first
    assert await send("payments", "again", 1) == other
    assert (await values(memory_broker, "orders"), await values(memory_broker, "payments")) == (["o"], ["p"])


async def test_reading_as_arrow_and_ndjson_and_by_id(memory_broker: HttpBroker) -> None:
    client = memory_broker.client
    await create(memory_broker, "orders", "payments", key_type="string", value_type="string")
    await publish(memory_broker, "orders", "o1", "o2")
    await publish(memory_broker, "payments", "p1")

    async def arrow(topic: str, path: str = "messages") -> pa.Table:
        answer = await client.get(f"/v1/topics/{topic}/{path}", headers={"accept": ARROW})
        with pa.ipc.open_stream(answer.raise_for_status().content) as stream:
            return stream.read_all()

    plain = ["segment", "_offset", "_timestamp", "key", "value", "event_time", "headers", "_ref"]
    member, whole = await arrow("payments"), await arrow("shop")
    assert (member.schema.names, member["value"].to_pylist()) == (plain, ["p1"])
    assert (whole.schema.names, whole["_topic"].to_pylist()) == ([*plain, "_topic"], ["orders", "orders", "payments"])
    assert (await arrow("payments", "segments/0/messages"))["_offset"].to_pylist() == [2]
    answer = await client.get("/v1/topics/orders/messages", headers={"accept": NDJSON})
    assert [json.loads(line)["value"] for line in answer.text.splitlines()] == ["o1", "o2"]
    assert (await client.get("/v1/topics/orders/messages/0-1")).json()["value"] == "o2"
    assert (await client.get("/v1/topics/shop/messages/0-2")).json()["topic"] == "payments"
    check_problem(await client.get("/v1/topics/orders/messages/0-2"), 404, "message-not-found")
    assert (await client.get("/v1/topics/payments/messages/0-2/payload")).content == b"p1"


async def test_payloads_by_reference(broker: HttpBroker) -> None:
    client = broker.client
    await create(broker, "orders", "payments")
    issued = (await client.post("/v1/topics/payments/uploads", json={"size": 4})).raise_for_status().json()
    (await client.put(issued["url"], content=b"bill", headers=issued["headers"])).raise_for_status()
    body = {"messages": [{"ref": {"upload": issued["upload"]}}]}
    (await client.post("/v1/topics/payments/messages", json=body)).raise_for_status()
    (message,) = (await read(broker, "payments"))["messages"]
    answer = await client.get(message["ref"]["url"], follow_redirects=True)
    assert answer.raise_for_status().content == b"bill"
    assert not (await read(broker, "orders"))["messages"]


async def test_an_upload_of_one_member_is_no_others(broker: HttpBroker) -> None:
    """Its id may be read where the payload may not: in the topic of dead letters, for example.

    Who knows one reads no payload by it that was uploaded for another topic, and puts nothing in its place.
    """
    client = broker.client
    await create(broker, "orders", "payments")
    issued = (await client.post("/v1/topics/payments/uploads", json={"size": 4})).raise_for_status().json()
    put = await client.put(f"/v1/topics/orders/uploads/{issued['upload']}", content=b"evil")
    assert put.status_code == (404 if broker.broker.store.traits.presigns else 422), put.text
    (await client.put(issued["url"], content=b"bill", headers=issued["headers"])).raise_for_status()
    body = {"messages": [{"ref": {"upload": issued["upload"]}}]}
    refused = check_problem(await client.post("/v1/topics/orders/messages", json=body), 422, "invalid-reference")
    assert "was not issued for topic 'orders'" in refused["detail"] and "shop" not in refused["detail"]
    # Nor by a dead letter that names it.
    (await client.post("/v1/topics/payments/messages", json=body)).raise_for_status()
    told = (await read(broker, "payments"))["messages"][0]["ref"]
    headers = {
        "braid-dead-topic": "orders",
        "braid-dead-group": "g",
        "braid-dead-payload": json.dumps({name: told[name] for name in ("uri", "size", "etag", "sha256")}),
    }
    (await client.put("/v1/topics/orders/groups/g", json={"mode": "queue"})).raise_for_status()
    (await client.put("/v1/topics/orders.dead")).raise_for_status()
    forged = {"messages": [{"value": "x", "headers": headers}]}
    (await client.post("/v1/topics/orders.dead/messages", json=forged)).raise_for_status()
    check_problem(
        await client.post("/v1/topics/orders/groups/g/redrive", json={"max": 1}), 422, "invalid-reference", "not issued"
    )
    assert not (await read(broker, "orders"))["messages"]
    check_problem(await client.post("/v1/topics/shop/uploads", json={"size": 4}), 409, "topic-group")


@pytest.mark.parametrize("by", ["orders", "shop"])
async def test_a_payload_of_a_member_comes_back_from_the_dead_letters(memory_broker: HttpBroker, by: str) -> None:
    """Of a group of the member, and of one of the whole topic group."""
    client = memory_broker.client
    await create(memory_broker, "orders", "payments")
    issued = (await client.post("/v1/topics/orders/uploads", json={"size": 4})).raise_for_status().json()
    (await client.put(issued["url"], content=b"bill")).raise_for_status()
    body = {"messages": [{"ref": {"upload": issued["upload"]}}]}
    (await client.post("/v1/topics/orders/messages", json=body)).raise_for_status()
    group = f"/v1/topics/{by}/groups/g"
    claimed = (await client.post(f"{group}/claims", json={"wait": SECONDS})).raise_for_status().json()
    told = [{"id": each["id"], "claim": each["claim"]} for each in claimed["messages"]]
    (await client.post(f"{group}/releases", json={"messages": told, "dead": True})).raise_for_status()
    async with asyncio.timeout(SECONDS):
        while (await client.post(f"{group}/redrive", json={"max": 1})).raise_for_status().json()["redriven"] != 1:
            await asyncio.sleep(0.05)
    back = (await read(memory_broker, "orders"))["messages"][-1]
    assert back["headers"] == {"braid-redriven-group": "g"}
    assert (await client.get(back["ref"]["url"])).content == b"bill"


async def test_description_lists_and_route(memory_broker: HttpBroker) -> None:
    client = memory_broker.client
    await create(memory_broker, "orders", "payments")
    (await client.put("/v1/topics/alone")).raise_for_status()
    assert (await client.get("/v1/topic-groups")).json() == {
        "topic_groups": [
            {"group": "shop", "topics": ["orders", "payments"], "splittable": False, "segments": 1, "version": 1}
        ],
        "next": None,
    }
    listed = (await client.get("/v1/topics")).json()["topics"]
    assert [(each["topic"], each.get("group")) for each in listed] == [
        ("alone", None),
        ("orders", "shop"),
        ("payments", "shop"),
        ("shop", "shop"),
    ]
    described = (await client.get("/v1/topics/orders")).json()
    assert (described["topic"], described["group"], len(described["segments"])) == ("orders", "shop", 1)
    route = (await client.get("/v1/topics/orders/route")).json()
    assert (route["topic"], [each["segment"] for each in route["segments"]]) == ("orders", [0])
    assert (await client.get(GROUP)).json()["topics"] == ["orders", "payments"]
    problem = check_problem(await client.get("/v1/topic-groups/none"), 404, "topic-group-not-found")
    assert problem["title"] == "There is no such topic group"
    check_problem(await client.get("/v1/topic-groups/alone"), 409, "topic-conflict", "has segments of its own")
    check_problem(await client.get("/v1/topic-groups/orders"), 409, "topic-conflict", "member of topic group 'shop'")


# -- creating, extending, deleting -----------------------------------------------------------------------------


async def test_a_group_is_put_again_extended_and_configured(memory_broker: HttpBroker) -> None:
    await create(memory_broker, "orders")
    await publish(memory_broker, "orders", "o")
    again = await create(memory_broker, "orders")
    assert (again["created"], again["differs"], again["version"]) == (False, {}, 1)
    more = await create(memory_broker, "payments", retention={"seconds": 60}, splittable=True)
    assert (more["topics"], more["config"]["retention"]["seconds"]) == (["orders", "payments"], 60)
    assert more["differs"] == {
        "topics": {"wanted": ["payments"], "actual": ["orders", "payments"]},
        "splittable": {"wanted": True, "actual": False},
    }
    await publish(memory_broker, "payments", "p")
    assert (await values(memory_broker, "orders"), await values(memory_broker, "payments")) == (["o"], ["p"])


async def test_a_deleted_group_frees_its_names(broker: HttpBroker) -> None:
    client = broker.client
    await create(broker, "orders", "payments")
    await publish(broker, "orders", "before")
    assert (await client.delete(GROUP)).status_code == 204
    for topic in ("orders", "payments", "shop"):
        check_problem(await client.get(f"/v1/topics/{topic}"), 404, "topic-not-found")
        check_problem(await client.post(f"/v1/topics/{topic}/messages", json={}), 404, "topic-not-found")
    assert (await client.get("/v1/topics")).json()["topics"] == []
    check_problem(await client.delete(GROUP), 404, "topic-group-not-found")
    # One of the names becomes a topic, another is the member of another group, a third of a group of the old name.
    assert (await client.put("/v1/topics/orders")).status_code == 201
    assert (await client.put("/v1/topic-groups/bank", json={"topics": ["payments"]})).status_code == 201
    created = await create(broker, "returns")
    assert created["created"] and [each["segment"] for each in created["segments"]] == [1]
    for topic in ("orders", "payments", "returns"):
        assert not await values(broker, topic)
        await publish(broker, topic, topic)
        assert await values(broker, topic) == [topic]
    check_problem(await client.put("/v1/topics/payments"), 409, "topic-conflict", "member of topic group 'bank'")


async def test_a_name_is_in_one_group_at_most_and_no_topic_besides(memory_broker: HttpBroker) -> None:
    client = memory_broker.client
    await create(memory_broker, "orders", "payments")
    (await client.put("/v1/topics/alone")).raise_for_status()
    for name, topics, words in [
        (
            "bank",
            ["payments", "new"],
            "'payments' cannot join topic group 'bank': it is a member of topic group 'shop'",
        ),
        ("bank", ["new", "alone"], "'alone' cannot join topic group 'bank': it is a topic that has segments"),
        ("bank", ["shop"], "'shop' cannot join topic group 'bank': it is a topic group itself"),
        ("alone", ["new"], "'alone' is not a topic group, but a topic that has segments of its own"),
        ("orders", ["new"], "'orders' is not a topic group, but a member of topic group 'shop'"),
    ]:
        answer = await client.put(f"/v1/topic-groups/{name}", json={"topics": topics})
        check_problem(answer, 409, "topic-conflict", words)
    # Nothing was written.
    check_problem(await client.get("/v1/topics/new"), 404, "topic-not-found")
    check_problem(await client.get("/v1/topic-groups/bank"), 404, "topic-group-not-found")
    check_problem(await client.put("/v1/topics/orders"), 409, "topic-conflict", "PUT /v1/topic-groups/shop")
    check_problem(await client.put("/v1/topics/shop"), 409, "topic-conflict", "PUT /v1/topic-groups/shop")


@pytest.mark.parametrize(
    ("body", "slug", "words"),
    [
        ({}, "invalid-config", "topics is missing"),
        ({"topics": []}, "invalid-config", "from 1 to 1000 topics, not 0"),
        ({"topics": "a"}, "invalid-config", "a list of names"),
        ({"topics": [1]}, "invalid-config", "a list of names"),
        ({"topics": ["a", "a"]}, "invalid-config", "'a' is named twice"),
        ({"topics": ["shop"]}, "invalid-config", "the group's own name"),
        ({"topics": ["a/b"]}, "invalid-name", "a/b"),
        ({"topics": ["__groups"]}, "internal-topic", "__groups"),
        ({"topics": [f"t{n}" for n in range(1001)]}, "invalid-config", "not 1001"),
        ({"topics": ["a"], "splittable": "yes"}, "invalid-config", "splittable: true or false"),
        ({"topics": ["a"], "segments": 2}, "invalid-config", "segments is 2"),
        ({"topics": ["a"], "max_segments": 2}, "invalid-config", "max_segments is 2"),
        ({"topics": ["a"], "topcis": ["b"]}, "invalid-config", "topcis"),
        ({"topics": ["a"], "replicas": 3}, "invalid-config", "replicas is 3"),
    ],
)
async def test_bad_input(memory_broker: HttpBroker, body: dict[str, Any], slug: str, words: str) -> None:
    answer = await memory_broker.client.put(GROUP, json=body)
    check_problem(answer, 403 if slug == "internal-topic" else 422, slug, words)
    check_problem(await memory_broker.client.get(GROUP), 404, "topic-group-not-found")


async def test_what_makes_no_sense_for_members_is_refused(memory_broker: HttpBroker) -> None:
    client = memory_broker.client
    await create(memory_broker, "orders", "payments")
    body = {"messages": [{"value": "x"}]}
    check_problem(await client.post("/v1/topics/shop/messages", json=body), 409, "topic-group", "one of its topics")
    raw = await client.post("/v1/topics/shop/messages", content=b"x", params={"key": "k"})
    check_problem(raw, 409, "topic-group", "one of its topics")
    for topic, slug in [("orders", "topic-group-member"), ("shop", "topic-conflict")]:
        check_problem(await client.delete(f"/v1/topics/{topic}"), 409, slug, "DELETE /v1/topic-groups/shop")
    for path in ("files", "segments/0/files"):
        answer = await client.get(f"/v1/topics/orders/{path}")
        check_problem(
            answer, 409, "topic-group-member", "/v1/topics/shop/files, and take the rows WHERE _topic = 'orders'"
        )
    for path, json_body in [
        ("segments/0/split", {"parts": 2}),
        ("segments/0/merge", {"with": 1}),
        ("loads", {"segments": 1}),
    ]:
        answer = await client.post(f"/v1/topics/orders/{path}", json=json_body)
        check_problem(answer, 409, "topic-group-member", "ask this of the group")
    answer = await client.post("/v1/topics/shop/segments/0/split", json={"parts": 2})
    check_problem(answer, 409, "not-splittable", '"splittable": true')
    answer = await client.post("/v1/topics/shop/loads", json={"segments": 1})
    check_problem(answer, 409, "topic-group", "no bulk loads")
    answer = await client.put(GROUP, json={"max_segments": 4})
    check_problem(answer, 422, "invalid-config", "max_segments is 4")
    assert not await values(memory_broker, "orders")


async def test_a_splittable_group_keeps_the_order_of_keys(memory_broker: HttpBroker) -> None:
    client = memory_broker.client
    await create(memory_broker, "orders", "payments", splittable=True, segments=2)
    for number in range(6):
        await publish(memory_broker, ("orders", "payments")[number % 2], number, key="k")
    split = await client.post("/v1/topics/shop/segments/0/split", json={"parts": 2})
    assert split.status_code == 200, split.text
    for number in range(6, 12):
        await publish(memory_broker, ("orders", "payments")[number % 2], number, key="k")
    assert await values(memory_broker, "orders") == list(range(0, 12, 2))
    assert await values(memory_broker, "payments") == list(range(1, 12, 2))
    assert await values(memory_broker, "shop") == list(range(12))


# -- reading past others' messages -----------------------------------------------------------------------------


async def test_few_messages_are_found_among_many_in_pages(memory_broker: HttpBroker) -> None:
    await create(memory_broker, "rare", "often")
    for number in range(5):
        await publish(memory_broker, "often", *range(500))
        await publish(memory_broker, "rare", number, f"{number} too")
    expected = [value for n in range(5) for value in (n, f"{n} too")]
    marker, found = None, list[Any]()
    while True:
        page = await read(memory_broker, "rare", limit=3, **({} if marker is None else {"marker": marker}))
        assert len(page["messages"]) <= 3
        if not page["messages"]:
            break
        found += [message["value"] for message in page["messages"]]
        marker = page["marker"]
    assert found == expected
    # By segment: the next offset moves on as well.
    offset, found = 0, []
    while offset < 2510:
        answer = await memory_broker.client.get(
            "/v1/topics/rare/segments/0/messages", params={"offset": offset, "limit": 4}
        )
        page = answer.raise_for_status().json()
        assert page["next_offset"] > offset
        found, offset = [*found, *(m["value"] for m in page["messages"])], page["next_offset"]
    assert found == expected


async def test_a_long_look_ends_with_a_marker_that_has_moved(
    memory_broker: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_reader, "PASSED_ROWS", 10)
    monkeypatch.setattr(topic_reader, "PASSED_BYTES", 1)
    monkeypatch.setattr(topic_reader, "MOST_PASSED_BYTES", 1)
    monkeypatch.setattr(messages_endpoint, "LONGEST_LOOK_SECONDS", 0.0)
    await create(memory_broker, "rare", "often")
    await publish(memory_broker, "often", *range(50))
    await publish(memory_broker, "rare", "found")
    pages, marker, found = 0, None, list[Any]()
    while not found:
        page = await read(memory_broker, "rare", limit=9, max_bytes=1, **({} if marker is None else {"marker": marker}))
        assert page["marker"] != marker
        pages, marker, found = pages + 1, page["marker"], page["messages"]
    assert pages > 2
    assert [message["value"] for message in found] == ["found"]


async def test_a_long_poll_waits_through_others_messages(memory_broker: HttpBroker) -> None:
    await create(memory_broker, "rare", "often")
    marker = (await read(memory_broker, "rare"))["marker"]
    async with asyncio.timeout(SECONDS):
        waiting = asyncio.create_task(read(memory_broker, "rare", marker=marker, wait=SECONDS))
        for number in range(20):
            await publish(memory_broker, "often", number)
        assert not waiting.done()
        await publish(memory_broker, "rare", "at last")
        assert [message["value"] for message in (await waiting)["messages"]] == ["at last"]
    empty = await read(memory_broker, "rare", marker=marker, wait=0.01, limit=1)
    assert [message["value"] for message in empty["messages"]] == ["at last"]


async def test_a_stream_of_a_member_gets_its_messages_and_moves_on(
    memory_broker: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_streams, "KEEPALIVE_SECONDS", 0.05)
    await create(memory_broker, "rare", "often")
    request = {"accept": NDJSON}
    path = "/v1/topics/rare/subscribe"
    async with asyncio.timeout(SECONDS), memory_broker.client.stream("GET", path, headers=request) as answer:
        lines = answer.aiter_lines()
        begin = json.loads(await anext(lines))["marker"]
        sending = asyncio.create_task(_send_for_ever(memory_broker))
        # There is news all the time, and none of it is for this stream: it tells that it lives, and how far it is.
        while (told := json.loads(await anext(lines)))["marker"] == begin:
            assert told["keepalive"]
        await publish(memory_broker, "rare", "at last")
        while "message" not in (told := json.loads(await anext(lines))):
            pass
        assert told["message"]["value"] == "at last" and "topic" not in told["message"]
        sending.cancel()
    # From the marker that it told, only what came behind is looked at.
    assert not await values(memory_broker, "rare", marker=told["marker"])


async def _send_for_ever(broker: HttpBroker) -> None:
    while True:
        await publish(broker, "often", "x")


async def test_whole_groups_are_streamed_with_the_topic(memory_broker: HttpBroker) -> None:
    await create(memory_broker, "orders", "payments")
    path, parameters = "/v1/topics/shop/subscribe", {"from": "earliest"}
    async with (
        asyncio.timeout(SECONDS),
        memory_broker.client.stream("GET", path, headers={"accept": NDJSON}, params=parameters) as answer,
    ):
        await publish(memory_broker, "orders", "o")
        await publish(memory_broker, "payments", "p")
        found: list[tuple[str, Any]] = []
        async for line in answer.aiter_lines():
            if (message := json.loads(line).get("message")) is not None:
                found.append((message["topic"], message["value"]))
            if len(found) == 2:
                break
    assert found == [("orders", "o"), ("payments", "p")]


async def test_reading_begins_at_a_time_and_at_the_end(memory_broker: HttpBroker) -> None:
    await create(memory_broker, "orders", "payments")
    await publish(memory_broker, "orders", "o1")
    await publish(memory_broker, "payments", "p1")
    (await_time,) = (await read(memory_broker, "payments"))["messages"]
    await publish(memory_broker, "orders", "o2")
    assert await values(memory_broker, "orders", **{"from": await_time["timestamp"]}) in (["o2"], ["o1", "o2"])
    assert not await values(memory_broker, "orders", **{"from": "latest"})


@pytest.mark.parametrize("overflow", ["reject", "block", "drop_oldest"])
async def test_overflow_policies_hold(overflow: str) -> None:
    """Four times as much as the front store holds goes through a group, and a stream of a member gets its own share."""
    value = "x" * 100_000
    async with http_broker(MemoryStore(), front_store_bytes=1024 * 1024) as broker:
        await create(broker, "orders", "payments", overflow=overflow)
        path = "/v1/topics/orders/subscribe"
        async with asyncio.timeout(SECONDS), broker.client.stream("GET", path, headers={"accept": NDJSON}) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            for number in range(20):
                await publish(broker, "payments", value)
                await publish(broker, "orders", f"{number} {value}")
            found: list[int] = []
            while not found or found[-1] < 19:
                if (message := json.loads(await anext(lines)).get("message")) is not None:
                    found.append(int(message["value"].split()[0]))
        # Under drop_oldest a reader that is behind what is in memory goes on there; under the others it reads files.
        assert found == sorted(set(found)) and (overflow == "drop_oldest" or found == list(range(20)))
        assert len(await values(broker, "orders", limit=100)) == 20
        body = {"messages": [{"value": value * 11}]}
        refused = await broker.client.post("/v1/topics/orders/messages", json=body)
        check_problem(refused, 413, "body-too-large")


# -- on the store ----------------------------------------------------------------------------------------------


async def test_a_flush_of_many_topics_is_one_put() -> None:
    """What comes to fifty small topics during a put is the next put if they are a group, and fifty if they are not."""
    store = GatedStore()
    async with http_broker(store) as broker, asyncio.timeout(SECONDS):
        names = [f"small-{n}" for n in range(50)]
        await create(broker, *names)
        for name in names:
            (await broker.client.put(f"/v1/topics/{name}-alone")).raise_for_status()
        store.gate.clear()
        first = asyncio.create_task(publish(broker, "small-0", "holds up the others"))
        await store.waits.wait()
        others = [asyncio.create_task(publish(broker, name, name)) for name in names]
        (writer,) = broker.broker.topics["shop"].writers.values()
        while writer.accepted_end < 51:
            await asyncio.sleep(0)
        before = store.created
        store.gate.set()
        await asyncio.gather(first, *others)
        assert store.created - before == 2
        await asyncio.gather(*(publish(broker, f"{name}-alone", name) for name in names))
        assert store.created - before == 52


class GatedStore(MemoryStore):
    """Counts the segment files that are created, while the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.created, self.gate, self.waits = 0, asyncio.Event(), asyncio.Event()
        self.gate.set()

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        if "/segments/" in key:
            if not self.gate.is_set():
                self.waits.set()
                await self.gate.wait()
            self.created += 1
        await super().create(key, data, metadata=metadata)


async def test_files_have_the_column_and_pandas_reads_one_member(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, clock=SystemClock())
    async with http_broker(store) as broker:
        await create(broker, "orders", "payments", value_type="string")
        await publish(broker, "orders", "o1", "o2")
        await publish(broker, "payments", "p1")
        listed = (await broker.client.get("/v1/topics/shop/files")).json()["files"]
    assert len(listed) == 2
    (path, *_) = sorted((tmp_path / "topics/shop/segments/segment=0").glob("*.parquet"))
    metadata = pq.ParquetFile(path).metadata
    column = metadata.row_group(0).column(metadata.num_columns - 1)
    assert (column.path_in_schema, column.has_dictionary_page) == ("_topic", True)
    assert (column.statistics.min, column.statistics.max) == ("orders", "orders")
    table = pq.read_table(tmp_path / "topics/shop/segments", filters=[("_topic", "=", "payments")])
    assert table["value"].to_pylist() == ["p1"]


async def test_after_a_restart_members_are_found_again(tmp_path: Path) -> None:
    for begin in (0, 1):
        async with http_broker(LocalStore(tmp_path, clock=SystemClock())) as broker:
            if not begin:
                await create(broker, "orders", "payments")
            for topic in ("orders", "payments"):
                await publish(broker, topic, begin)
            assert await values(broker, "orders") == list(range(begin + 1))
            assert await values(broker, "payments") == list(range(begin + 1))


async def test_metrics_and_verification_know_the_group(memory_broker: HttpBroker) -> None:
    await create(memory_broker, "orders", "payments")
    await publish(memory_broker, "orders", "o")
    text = (await memory_broker.client.get("/metrics")).text
    assert 'braidmq_messages_stored_total{topic="shop"} 1.0' in text
    answer: httpx.Response = await memory_broker.client.get("/v1/topics/shop/verification")
    assert answer.status_code == 200, answer.text


async def test_a_queue_group_works_through_a_whole_topic_group(memory_broker: HttpBroker) -> None:
    client, path = memory_broker.client, "/v1/topics/shop/groups/g"
    await create(memory_broker, "orders", "payments")
    await publish(memory_broker, "orders", "o")
    await publish(memory_broker, "payments", "p")
    claimed = (await client.post(f"{path}/claims", json={})).raise_for_status().json()
    assert [(m["topic"], m["value"]) for m in claimed["messages"]] == [("orders", "o"), ("payments", "p")]
    first, second = ({"claim": m["claim"], "id": m["id"]} for m in claimed["messages"])
    (await client.post(f"{path}/acks", json={"messages": [first]})).raise_for_status()
    given_up = {"messages": [second], "dead": True, "reason": "no"}
    (await client.post(f"{path}/releases", json=given_up)).raise_for_status()
    async with asyncio.timeout(SECONDS):
        while (await client.get(path)).json()["dead"] != 1:
            await asyncio.sleep(0.02)
    assert await values(memory_broker, "shop.dead") == ["p"]
    assert (await client.post(f"{path}/redrive", json={})).json() == {"redriven": 1, "more": False}
    assert await values(memory_broker, "payments") == ["p", "p"]


async def test_dead_letters_cannot_go_to_a_topic_group(memory_broker: HttpBroker) -> None:
    """Its rows have to say of which member they are, and nobody else's messages belong among a member's."""
    client, path = memory_broker.client, "/v1/topics/plain/groups/g"
    await create(memory_broker, "orders", "payments")
    (await client.put("/v1/topics/plain")).raise_for_status()
    for wrong in ("shop", "orders"):
        answer = await client.put(path, json={"dead_letter": {"topic": wrong}})
        check_problem(answer, 422, "invalid-config", f"{wrong!r}, which is a topic group or in one")
    assert (await client.get(path)).status_code == 404
    (await client.put(path)).raise_for_status()
    answer = await client.put(path, json={"dead_letter": {"topic": "orders"}})
    check_problem(answer, 422, "invalid-config", "a topic with segments of its own")


async def test_a_name_that_joins_a_topic_group_later_gets_no_dead_letters(
    memory_broker: HttpBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """They wait, and the log tells why. Once the group of consumers names another topic they are stored there."""
    client, path = memory_broker.client, "/v1/topics/plain/groups/g"
    (await client.put("/v1/topics/plain")).raise_for_status()
    (await client.put(path, json={"dead_letter": {"topic": "letters"}})).raise_for_status()
    await create(memory_broker, "letters")
    await publish(memory_broker, "plain", "x")
    (claimed,) = (await client.post(f"{path}/claims", json={})).raise_for_status().json()["messages"]
    given_up = {"messages": [{"claim": claimed["claim"], "id": claimed["id"]}], "dead": True}
    (await client.post(f"{path}/releases", json=given_up)).raise_for_status()
    async with asyncio.timeout(SECONDS):
        while not any("dead_letters_delayed" in each.getMessage() for each in caplog.records):
            await asyncio.sleep(0.02)
    (await client.put(path, json={"dead_letter": {"topic": "others"}})).raise_for_status()
    async with asyncio.timeout(SECONDS):
        while (await client.get(path)).json()["dead"] != 1:
            await asyncio.sleep(0.02)
    assert await values(memory_broker, "others") == ["x"]
