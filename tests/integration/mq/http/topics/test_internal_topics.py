"""Topics whose names begin with `__`: users read those of the brokers and nothing else, and make no new ones."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from filer import keys
from filer.keys import RESERVED_TOPICS
from filer.segment.next_file import Single
from filer.stores.memory_store import MemoryStore
from filer.topic.topic_config import TopicConfig
from mq.base.internal_topics import why_not_changed
from mq.groups import group_topic
from mq.http.routes import ROUTES
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem

GROUPS = "/v1/topics/__groups"
ARROW = "application/vnd.apache.arrow.stream"
EARLIER = "/v1/topics/__mine"
RECORD = {"messages": [{"key": "t/g", "value": {"position": 1}}]}


def arrow(values: list[str]) -> bytes:
    table = pa.table({"key": values, "value": [f'"{each}"' for each in values]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


CHANGES = [
    ("PUT", "", {"json": {"retention": {"seconds": 1}}}),
    ("DELETE", "", {}),
    ("POST", "/messages", {"json": RECORD}),
    ("POST", "/messages?key=t/g", {"content": b'"1"'}),
    ("POST", "/messages", {"content": arrow(["t/g"]), "headers": {"content-type": ARROW}}),
    ("POST", "/messages", {"content": b"[" * 200_000, "headers": {"content-type": "application/json"}}),
    ("POST", "/uploads", {"json": {"size_bytes": 1}}),
    ("PUT", "/uploads/01M7YRGHXTF8BA0MZVE2CAXCTB.1", {"content": b"x"}),
    ("POST", "/loads", {"json": {}}),
    ("POST", "/loads/01M7YRGHXTF8BA0MZVE2CAXCTB", {"json": {}}),
    ("DELETE", "/loads/01M7YRGHXTF8BA0MZVE2CAXCTB", {}),
    ("PUT", "/loads/01M7YRGHXTF8BA0MZVE2CAXCTB/files/0/0", {"content": b"x"}),
]


@pytest.fixture
async def running() -> AsyncIterator[HttpBroker]:
    async with http_broker(MemoryStore()) as made:
        yield made


@pytest.fixture
async def client(running: HttpBroker) -> httpx.AsyncClient:
    """Of a broker that has made `__groups`. An earlier version has let a user make `__mine`."""
    await group_topic.ensure(running.broker.topics, running.broker.administration)
    await running.broker.administration.ensure("__mine", TopicConfig(value_type="json"))
    return running.client


async def recorded(client: httpx.AsyncClient) -> dict[str, Any]:
    """What is recorded of the groups' topic. What its broker measures comes by and by."""
    topic: dict[str, Any] = (await client.get(GROUPS)).raise_for_status().json()
    return topic | {"segments": [each | {"traffic": None} for each in topic["segments"]]}


@pytest.mark.parametrize(("method", "path", "sent"), CHANGES)
async def test_nobody_else_changes_a_topic_of_the_brokers(
    running: HttpBroker, client: httpx.AsyncClient, method: str, path: str, sent: dict[str, object]
) -> None:
    before = await recorded(client)
    for name in ("__groups", "%5F%5Fgroups", "__audit"):  # one of them is not there yet
        answer = await client.request(method, f"/v1/topics/{name}{path}", **sent)  # type: ignore[arg-type]
        problem = check_problem(answer, 403, "internal-topic", "is the brokers' own", "can be browsed", "another name")
        assert not problem["retryable"]
    assert await recorded(client) == before
    assert await running.broker.catalogue.names() == ["__groups", "__mine"]


async def test_everybody_reads_it(running: HttpBroker, client: httpx.AsyncClient) -> None:
    runtime = running.broker.topics["__groups"]
    await runtime.publisher.publish_single(Single(b"t/g", b'{"position":1}', None, None), 20)
    (message,) = (await client.get(f"{GROUPS}/messages")).raise_for_status().json()["messages"]
    assert (message["key"], message["value"]) == ("t/g", {"position": 1})
    for path in ("", "/route", "/history", "/files", "/positions", "/segments/0/messages", "/messages/0-0"):
        assert (await client.get(f"{GROUPS}{path}")).status_code == 200, path
    async with client.stream("GET", f"{GROUPS}/subscribe", params={"from": "earliest"}) as stream:
        assert stream.status_code == 200
        assert await anext(line async for line in stream.aiter_lines() if "position" in line)
    assert (await client.post(f"{GROUPS}/upkeep")).status_code == 202
    split = (await client.post(f"{GROUPS}/segments/0/split")).raise_for_status().json()
    left, right = (each["segment"] for each in split["segments"])
    (await client.post(f"{GROUPS}/segments/{left}/merge", json={"with": right})).raise_for_status()


@pytest.mark.parametrize("name", ["__x", "__", "__groups2", "__groups.dead"])
async def test_nobody_makes_a_new_one(client: httpx.AsyncClient, name: str) -> None:
    check_problem(
        await client.put(f"/v1/topics/{name}", json={}), 403, "internal-topic", repr(name), "kept for the brokers' own"
    )
    check_problem(await client.post(f"/v1/topics/{name}/messages", content=b"x"), 404, "topic-not-found")
    assert (await client.put("/v1/topics/_x", json={})).status_code == 201


async def test_one_that_an_earlier_version_let_a_user_make_goes_on(client: httpx.AsyncClient) -> None:
    (await client.post(f"{EARLIER}/messages", json=RECORD)).raise_for_status()
    configured = (await client.put(EARLIER, json={"retention": {"seconds": 60}})).raise_for_status().json()
    assert not configured["created"] and configured["config"]["retention"]["seconds"] == 60
    (await client.post(f"{EARLIER}/segments/0/split", json={})).raise_for_status()
    assert len((await client.get(f"{EARLIER}/messages")).json()["messages"]) == 1
    assert (await client.delete(EARLIER)).status_code == 204
    check_problem(await client.put(EARLIER, json={}), 403, "internal-topic", "'__mine' cannot name a new topic")


@pytest.mark.parametrize("limit", [1, 100])
async def test_lists_leave_them_out_unless_they_are_asked_for(client: httpx.AsyncClient, limit: int) -> None:
    for name in ("T", "a"):  # before and behind them
        (await client.put(f"/v1/topics/{name}", json={})).raise_for_status()

    async def listed(**params: str) -> list[str]:
        names: list[str] = []
        params["limit"] = str(limit)
        while True:
            page = (await client.get("/v1/topics", params=params)).raise_for_status().json()
            names += [each["topic"] for each in page["topics"]]
            if page["next"] is None:
                return names
            params["after"] = page["next"]

    assert await listed() == await listed(internal="false") == ["T", "a"]
    assert await listed(internal="true") == ["T", "__groups", "__mine", "a"]
    check_problem(await client.get("/v1/topics", params={"internal": "some"}), 422, "invalid-request", "internal")


async def test_one_that_cannot_be_used_is_told_in_any_case(running: HttpBroker, client: httpx.AsyncClient) -> None:
    await running.broker.store.delete([keys.topic("__groups")])
    await running.broker.store.create(keys.topic("__groups"), b"damaged")
    page = (await client.get("/v1/topics")).json()
    assert [each["topic"] for each in page["unusable"]] == ["__groups"] and not page["topics"]


def test_only_these_topics_are_refused() -> None:
    assert all(why_not_changed(topic) is not None for topic in RESERVED_TOPICS)
    for topic in ("", "t", *(f"{topic}x" for topic in RESERVED_TOPICS), *(f"x{topic}" for topic in RESERVED_TOPICS)):
        assert why_not_changed(topic) is None


async def test_each_route_that_changes_more_than_segments_is_refused(client: httpx.AsyncClient) -> None:
    for route in ROUTES:
        if route.effect == "none" or route.subject not in ("topic", "group"):
            continue
        path = route.of("__groups", *["7"] * (route.template.count("{") - 1)).path
        answer = await client.request(route.method, path)
        is_refused = answer.headers["content-type"] == "application/problem+json" and answer.status_code == 403
        assert is_refused == (route.effect == "change"), (route.method, path, answer.text)
