"""The audit trail: every change and every refusal is there when its answer is, and says who, what and how it ended."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from filer import request_ids
from filer.clock import SystemClock
from filer.errors import StoreError
from filer.keys import AUDIT_TOPIC
from filer.stores.memory_store import MemoryStore
from mq.http.routes import ROUTES, match_route
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.broker.socket_client import socket_client
from tests.support.token_maker import TokenMaker

EVERYTHING = ("topic:*:*", "cluster:*", "topic:__audit:read")
MESSAGES = f"/v1/topics/{AUDIT_TOPIC}/messages"


class BrokenStore(MemoryStore):
    """Takes no file of the audit trail while it is broken."""

    is_broken = False

    async def create(self, key: str, *arguments: Any, **options: Any) -> None:
        if self.is_broken and f"/{AUDIT_TOPIC}/" in key:
            raise StoreError("the disk is full")
        await super().create(key, *arguments, **options)


@pytest.fixture(scope="module")
def maker() -> TokenMaker:
    return TokenMaker(now_seconds=SystemClock().now_us() / 1e6)


@pytest.fixture
def store() -> BrokenStore:
    return BrokenStore()


@pytest.fixture
async def broker(tmp_path: Path, maker: TokenMaker, store: BrokenStore) -> AsyncIterator[HttpBroker]:
    (tmp_path / "keys.json").write_bytes(maker.key_set)
    async with http_broker(
        store, authorizer="tokens", token_keys=tmp_path / "keys.json", publish_timeout=0.5
    ) as served:
        served.client.headers["authorization"] = f"Bearer {maker.token(*EVERYTHING)}"
        yield served


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def trail(broker: HttpBroker) -> list[dict[str, Any]]:
    """All that was recorded, in its order; it takes a grant that names the topic."""
    answer = await broker.client.get(MESSAGES, headers={"accept": "application/json"}, params={"from": "earliest"})
    return [each["value"] for each in answer.raise_for_status().json()["messages"]]


async def test_changes_are_recorded_as_they_end(broker: HttpBroker) -> None:
    for method, path, status in (
        ("PUT", "/v1/topics/orders", 201),
        ("PUT", "/v1/topics/orders", 412),
        ("PUT", "/v1/topics/orders/groups/billing", 201),
        ("POST", "/v1/topics/orders/segments/0/split", 200),
        ("DELETE", "/v1/topics/orders/groups/billing", 204),
        ("DELETE", "/v1/topics/nothing", 404),
        ("DELETE", "/v1/topics/orders", 204),
    ):
        headers = {"if-none-match": "*"} if status == 412 else {}
        answer = await broker.client.request(method, path, headers=headers)
        assert answer.status_code == status, answer.text
        last = (await trail(broker))[-1]
        assert last == {
            "format": 1,
            "principal": "ann",
            "address": "127.0.0.1",
            "action": "manage",
            "resource": "topic:" + path.split("/")[3] + "/billing" * path.endswith("billing"),
            "request": f"{method} {path}",
            "outcome": "done" if status < 400 else "failed",
            "status": status,
            "count": 1,
            "broker": broker.broker.id,
            "request_id": answer.headers[request_ids.HEADER],
        }


async def test_refusals_are_recorded_on_every_path(broker: HttpBroker, maker: TokenMaker) -> None:
    """Those of the fast path, of an upload whose id is secret, of a socket's frame, of a topic group's member."""
    await broker.client.put("/v1/topics/bills")
    (await broker.client.put("/v1/topic-groups/all", json={"topics": ["orders"]})).raise_for_status()
    token = maker.token("topic:all:manage,observe", "topic:bills:observe")
    before = len(await trail(broker))
    for method, path, headers in (
        ("POST", "/v1/topics/bills/messages", bearer(token)),
        ("POST", "/v1/topics/bills/messages", bearer("nonsense")),
        ("PUT", "/v1/topics/bills/uploads/s3cr3t", bearer(token)),
        ("DELETE", "/v1/topic-groups/all", bearer(token)),
        ("GET", "/metrics", bearer(token)),
        ("POST", "/v1/topics/__audit/messages", {}),
        ("POST", "/internal/v1/refresh", {}),
    ):
        answer = await broker.client.request(method, path, headers=headers)
        assert answer.status_code in (401, 403), (path, answer.text)
    async with socket_client(broker.url, "bills", additional_headers=bearer(token)) as socket:
        await socket.problem("forbidden", publish=[{"value": "x"}])
    told = [
        (each["principal"], each["request"], each["status"], each["count"]) for each in (await trail(broker))[before:]
    ]
    assert told == [
        ("ann", "POST /v1/topics/bills/messages", 403, 1),
        (None, "POST /v1/topics/bills/messages", 401, 1),
        ("ann", "PUT /v1/topics/bills/uploads/(id)", 403, 1),
        ("ann", "DELETE /v1/topic-groups/all", 403, 1),
        ("ann", "GET /metrics", 403, 1),
        ("ann", "POST /v1/topics/__audit/messages", 403, 1),
        ("ann", "POST /internal/v1/refresh", 403, 1),
        ("ann", "POST /v1/topics/bills/messages", 403, 1),
    ]


async def test_the_trail_tells_whose_a_revoked_token_was(broker: HttpBroker, maker: TokenMaker) -> None:
    token = maker.token("topic:orders:read")
    policy = await broker.client.get("/v1/cluster/policy")
    entry = {"principal": "ann", "before": "2099-01-01T00:00:00Z"}
    admin = bearer(maker.token(*EVERYTHING, sub="admin"))
    change = {**admin, "if-match": policy.headers["etag"]}
    (
        await broker.client.put("/v1/cluster/policy", json={"revoked_principals": [entry]}, headers=change)
    ).raise_for_status()
    for credential in (token, "nonsense"):
        answer = await broker.client.get("/v1/topics/orders/messages", headers=bearer(credential))
        assert answer.status_code == 401
    broker.client.headers["authorization"] = admin["authorization"]
    told = [(each["principal"], each["status"]) for each in (await trail(broker))[-2:]]
    assert told == [("ann", 401), (None, 401)]


async def test_reads_and_messages_are_not_recorded(broker: HttpBroker) -> None:
    await broker.client.put("/v1/topics/orders")
    before = len(await trail(broker))
    await broker.client.post("/v1/topics/orders/messages", content=b"x")
    await broker.client.get("/v1/topics/orders/messages")
    await broker.client.get("/v1/topics/missing")
    await broker.client.post("/v1/topics/orders/groups/g/claims", json={})
    assert len(await trail(broker)) == before


async def test_what_cannot_be_recorded_is_not_answered_as_if_it_were(broker: HttpBroker, store: BrokenStore) -> None:
    await broker.client.put("/v1/topics/first")
    store.is_broken = True
    done = await broker.client.put("/v1/topics/orders")
    check_problem(done, 503, "audit-failed", "the request was done (status 201), but it cannot be recorded")
    refused = await broker.client.delete("/v1/topics/orders", headers=bearer("nonsense"))
    check_problem(refused, 503, "audit-failed", "the request was refused, but")
    assert (await broker.client.get("/v1/topics/orders")).status_code == 200
    store.is_broken = False
    # The segment is taken up again first.
    async with asyncio.timeout(30):
        while (again := await broker.client.put("/v1/topics/second")).status_code == 503:
            check_problem(again, 503, "audit-failed")
    assert (await trail(broker))[-1]["request"] == "PUT /v1/topics/second"


async def test_a_flood_of_refusals_is_a_few_records(broker: HttpBroker) -> None:
    await broker.client.put("/v1/topics/orders")
    before = len(await trail(broker))

    async def knock(session: aiohttp.ClientSession) -> None:
        for _ in range(10):
            async with session.get(f"{broker.url}/v1/topics/orders", headers=bearer("nonsense")) as answer:
                assert answer.status == 401

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(knock(session) for _ in range(60)))
    recorded = (await trail(broker))[before:]
    assert sum(each["count"] for each in recorded) == 600
    assert len(recorded) < 60


async def test_without_tokens_nothing_is_recorded_unless_asked_for() -> None:
    async with http_broker(MemoryStore()) as plain:
        await plain.client.put("/v1/topics/orders")
        assert (await plain.client.get(f"/v1/topics/{AUDIT_TOPIC}")).status_code == 404
    async with http_broker(MemoryStore(), audit="on") as asked:
        await asked.client.put("/v1/topics/orders")
        assert [each["principal"] for each in await trail(asked)] == [f"uid:{os.geteuid()}"]


def test_which_routes_change_something() -> None:
    """Derived from what they need, so a new route that manages something is recorded."""
    routes = {(route.method, route.template): route for route in ROUTES}
    recorded = {each for each in routes if match_route(*each).is_recorded}
    manage = {each for each, route in routes.items() if route.action == "manage"}
    assert recorded - manage == {
        ("POST", "/v1/topics/{topic}/loads"),
        ("POST", "/v1/topics/{topic}/loads/{load}"),
        ("DELETE", "/v1/topics/{topic}/loads/{load}"),
    }
    # To look at the policy takes the same right, and changes nothing.
    assert manage - recorded == {("GET", "/v1/cluster/policy")}


async def test_what_is_under_way_is_recorded_when_its_token_ends_it(broker: HttpBroker, maker: TokenMaker) -> None:
    """A subscription, and a socket: before either is told, and once each. Who goes by itself leaves nothing behind."""
    client = broker.client
    (await client.put("/v1/topics/orders")).raise_for_status()
    (await client.post("/v1/topics/orders/messages", content=b"x")).raise_for_status()
    who = bearer(maker.token("topic:orders:read", sub="bob", jti="t2"))
    path = "/v1/topics/orders/subscribe"
    async with client.stream("GET", path, headers=who) as left:
        assert left.status_code == 200
    before = len(await trail(broker))
    ended = asyncio.Event()

    async def subscribe() -> str:
        told = ""
        async with client.stream("GET", f"{path}?from=earliest", headers=who) as answer:
            async for line in answer.aiter_lines():
                told += line
                ended.set()
        return told

    reading = asyncio.create_task(subscribe())
    await ended.wait()
    async with socket_client(broker.url, "orders", additional_headers=who) as socket:
        policy = await client.get("/v1/cluster/policy")
        revoked = {"revoked_tokens": [{"id": "t2", "until": "2100-01-01T00:00:00Z"}]}
        put = await client.put("/v1/cluster/policy", json=revoked, headers={"if-match": policy.headers["etag"]})
        put.raise_for_status()
        assert (await socket.end())[0] == 1008
    assert "the token is revoked" in await reading
    told = [
        (each["principal"], each["request"], each["outcome"], each["status"], each["count"])
        for each in (await trail(broker))[before:]
    ]
    assert sorted(told) == [
        ("ann", "PUT /v1/cluster/policy", "done", 200, 1),
        ("bob", "GET /v1/topics/orders/socket (under way)", "refused", 401, 1),
        ("bob", f"GET {path} (under way)", "refused", 401, 1),
    ]
