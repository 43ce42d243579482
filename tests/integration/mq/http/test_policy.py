"""The policy over HTTP: who may change it, when it counts, and what it ends."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import orjson
import pytest
from websockets.exceptions import InvalidStatus

from filer import keys
from filer.clock import SystemClock
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import ScriptedFaults
from filer.stores.memory_store import MemoryStore
from filer.stores.open_store import open_store
from filer.stores.store_address import StoreAddress
from filer.topic.record_check import with_check
from mq.base.settings import BrokerSettings
from mq.http.endpoints.policy import _MOST_BODY_BYTES
from mq.limits import storage_meter, storage_watch
from mq.limits.quotas import Share
from mq.security.access import access_of
from mq.topic.topic_publisher import TopicPublisher
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.broker.socket_client import socket_client
from tests.support.token_maker import TokenMaker

PATH = "/v1/cluster/policy"
EVERYTHING = ("topic:*:*", "cluster:*")
LATE = "2126-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def maker() -> TokenMaker:
    return TokenMaker(now_seconds=SystemClock().now_us() // 1_000_000)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def broker(tmp_path: Path, maker: TokenMaker, store: MemoryStore) -> AsyncIterator[HttpBroker]:
    (tmp_path / "keys.json").write_bytes(maker.key_set)
    async with http_broker(store, authorizer="tokens", token_keys=tmp_path / "keys.json") as served:
        yield served


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def put(broker: HttpBroker, headers: dict[str, str], **sections: Any) -> httpx.Response:
    """The next version of the policy: of these sections alone."""
    tag = (await broker.client.get(PATH, headers=headers)).raise_for_status().headers["etag"]
    return await broker.client.put(PATH, json=sections, headers={**headers, "if-match": tag})


async def test_a_change_names_the_version_that_it_follows(broker: HttpBroker, maker: TokenMaker) -> None:
    admin = bearer(maker.token(*EVERYTHING, sub="ada"))
    empty = await broker.client.get(PATH, headers=admin)
    assert empty.json() == {
        "version": 0,
        "grants": [],
        "revoked_tokens": [],
        "revoked_principals": [],
        "quotas": [],
    }
    document = {"quotas": [{"principal": "shop*", "streams": 3}]}
    for given in ({}, {"if-match": "*"}, {"if-match": "0"}, {"if-match": ""}):
        answer = await broker.client.put(PATH, json=document, headers={**admin, **given})
        check_problem(answer, 428, "precondition-missing", "If-Match")
        assert ("no ETag of a policy" in answer.json()["detail"]) is bool(given.get("if-match"))
    first = await broker.client.put(PATH, json=document, headers={**admin, "if-match": empty.headers["etag"]})
    assert first.status_code == 200 and first.json()["version"] == 1
    # Repeated as it is, since its answer may have been lost, it has been done; anything else comes too late.
    again = await broker.client.put(PATH, json=document, headers={**admin, "if-match": empty.headers["etag"]})
    assert (again.json(), again.headers["etag"]) == (first.json(), first.headers["etag"])
    late = await broker.client.put(PATH, json={}, headers={**admin, "if-match": empty.headers["etag"]})
    check_problem(late, 412, "policy-changed", "version 1 by now")
    # What was read may be sent back with a change.
    read = (await broker.client.get(PATH, headers=admin)).json()
    second = await broker.client.put(PATH, json=read, headers={**admin, "if-match": first.headers["etag"]})
    assert second.json() == {**read, "version": 2}
    other = await broker.client.put(PATH, json=read, headers={**admin, "if-match": second.headers["etag"]})
    check_problem(other, 412, "policy-changed", "the body is of version 1")
    metrics = (await broker.client.get("/metrics", headers=admin)).text
    assert "braidmq_policy_version 2.0" in metrics and "braidmq_policy_failures_total 0.0" in metrics


async def test_what_is_no_policy_changes_nothing(broker: HttpBroker, maker: TokenMaker) -> None:
    admin = bearer(maker.token(*EVERYTHING, sub="ada"))
    bad = await put(broker, admin, qotas=[])
    check_problem(bad, 422, "invalid-request", "unknown section 'qotas': did you mean 'quotas'?")
    bad = await put(broker, admin, grants=[{"principal": "a", "grants": ["topic:a:raed"]}])
    check_problem(bad, 422, "invalid-request", "grants, 1 of 1", "did you mean 'read'?")
    wide = [{"principal": "x" * 900 + str(n), "before": LATE} for n in range(1500)]
    check_problem(await put(broker, admin, revoked_principals=wide), 422, "invalid-request", "1048576 are the most")
    huge = b" " * (_MOST_BODY_BYTES + 1)
    tag = (await broker.client.get(PATH, headers=admin)).headers["etag"]
    sent = await broker.client.put(PATH, content=huge, headers={**admin, "if-match": tag})
    check_problem(sent, 413, "body-too-large")
    sent = await broker.client.put(PATH, content=b"[]", headers={**admin, "if-match": tag})
    check_problem(sent, 422, "invalid-request", "the body should be an object")
    assert (await broker.client.get(PATH, headers=admin)).json()["version"] == 0


async def test_a_grant_counts_once_it_is_answered_and_ends_within_a_second(
    broker: HttpBroker, maker: TokenMaker, store: MemoryStore, tmp_path: Path
) -> None:
    """At this broker at once, at others within a second: also for what is open there."""
    admin, shop = bearer(maker.token(*EVERYTHING, sub="ada")), bearer(maker.token(sub="shop-1", jti="s1"))
    (await broker.client.put("/v1/topics/orders", headers=admin)).raise_for_status()
    messages = "/v1/topics/orders/messages"
    check_problem(await broker.client.post(messages, content=b"x", headers=shop), 403, "forbidden")
    settings = BrokerSettings(authorizer="tokens", token_keys=tmp_path / "keys.json")
    other = access_of(settings, SystemClock(), store)
    await other.open()
    watching = asyncio.create_task(other.watch())
    try:
        granted = [{"principal": "shop*", "grants": ["topic:orders:read,publish"]}]
        (await put(broker, admin, grants=granted)).raise_for_status()
        for _ in range(3):  # and by the fast path
            assert (await broker.client.post(messages, content=b"x", headers=shop)).status_code == 200
        checked = other.credentials
        assert checked is not None
        async with asyncio.timeout(1.0):
            while not checked.principal(shop["authorization"].encode()).grants.allow("publish", "orders"):
                await asyncio.sleep(0.01)

        ended = asyncio.create_task(last_line(broker, shop))
        while not len(broker.broker.access.standings):
            await asyncio.sleep(0.01)
        (await put(broker, admin, grants=[])).raise_for_status()
        check_problem(await broker.client.post(messages, content=b"x", headers=shop), 403, "forbidden")
        async with asyncio.timeout(1.0):
            line = await ended
            while checked.principal(shop["authorization"].encode()).grants.allow("publish", "orders"):
                await asyncio.sleep(0.01)
        assert (line["end"], line["problem"]["type"]) == ("refused", "urn:braidmq:forbidden")
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def last_line(broker: HttpBroker, headers: dict[str, str]) -> dict[str, Any]:
    """What a subscription says at its end."""
    path, accept = "/v1/topics/orders/subscribe?from=earliest", {"accept": "application/x-ndjson"}
    async with broker.client.stream("GET", path, headers={**headers, **accept}) as answer:
        lines = [json.loads(line) async for line in answer.aiter_lines()]
    return dict(lines[-1])


async def test_a_revoked_token_is_nobodys_and_what_it_has_open_ends(broker: HttpBroker, maker: TokenMaker) -> None:
    admin = bearer(maker.token(*EVERYTHING, sub="ada"))
    (await broker.client.put("/v1/topics/orders", headers=admin)).raise_for_status()
    first, second = (bearer(maker.token("topic:orders:read", sub="bob", jti=each)) for each in ("b1", "b2"))
    ended = asyncio.create_task(last_line(broker, first))
    while not len(broker.broker.access.standings):
        await asyncio.sleep(0.01)
    (await put(broker, admin, revoked_tokens=[{"id": "b1", "until": LATE}])).raise_for_status()
    async with asyncio.timeout(1.0):
        assert (await ended)["problem"]["type"] == "urn:braidmq:unauthenticated"
    check_problem(await broker.client.get("/v1/topics/orders", headers=first), 401, "unauthenticated", "is revoked")
    assert (await broker.client.get("/v1/topics/orders", headers=second)).status_code == 200
    # All that were issued up to now; what is issued later is good.
    revoked = [{"principal": "bob", "before": "2126-01-01T00:00:00Z"}]
    (await put(broker, admin, revoked_principals=revoked)).raise_for_status()
    refused = await broker.client.get("/v1/topics/orders", headers=second)
    check_problem(refused, 401, "unauthenticated", "credentials of 'bob' from before 2126")
    past = [{"principal": "bob", "before": "2026-01-01T00:00:00Z"}]
    (await put(broker, admin, revoked_principals=past)).raise_for_status()
    assert (await broker.client.get("/v1/topics/orders", headers=second)).status_code == 200
    timeless = bearer(maker.token("topic:orders:read", sub="bob", iat=None))
    check_problem(await broker.client.get("/v1/topics/orders", headers=timeless), 401, "unauthenticated")


async def test_damage_takes_nothing_back_and_a_broker_does_not_start_on_it(
    broker: HttpBroker, maker: TokenMaker, store: MemoryStore, tmp_path: Path
) -> None:
    admin, bob = bearer(maker.token(*EVERYTHING, sub="ada")), bearer(maker.token("topic:*:read", sub="bob", jti="b1"))
    (await put(broker, admin, revoked_tokens=[{"id": "b1", "until": LATE}])).raise_for_status()
    fetched = await store.get(keys.POLICY)
    await store.replace(keys.POLICY, b"{" + fetched.data, etag=fetched.info.etag)
    while "braidmq_policy_failures_total 0.0" in (await broker.client.get("/metrics", headers=admin)).text:
        await asyncio.sleep(0.05)
    check_problem(await broker.client.get("/v1/topics", headers=bob), 401, "unauthenticated", "is revoked")
    with pytest.raises(Exception, match=r"cluster/policy\.json is damaged"):
        async with http_broker(store, authorizer="tokens", token_keys=tmp_path / "keys.json"):
            pass
    mended = await put(broker, admin, revoked_tokens=[{"id": "b1", "until": LATE}])
    assert mended.json()["version"] == 2


async def test_a_broker_that_knows_nobody_has_no_policy() -> None:
    async with http_broker(MemoryStore(), authorizer="any") as served:
        check_problem(await served.client.get(PATH), 409, "no-policy", "asks nobody for tokens")
        check_problem(await served.client.put(PATH, json={}, headers={"if-match": '"0-"'}), 409, "no-policy")


async def test_a_quota_is_told_with_its_limit_and_when_to_come_back(
    broker: HttpBroker, maker: TokenMaker, store: MemoryStore
) -> None:
    """By both ways of a publish, for bytes in and out, for streams and for topics. Others are served meanwhile."""
    admin = bearer(maker.token(*EVERYTHING, sub="ada"))
    messages = "/v1/topics/orders/messages"
    (await broker.client.put("/v1/topics/orders", headers=admin)).raise_for_status()

    def who(name: str) -> dict[str, str]:
        return bearer(maker.token(*EVERYTHING, sub=name))

    quotas = [
        {"principal": "requests", "requests_per_second": 1},
        {"principal": "bytes", "publish_bytes_per_second": 1000},
        {"principal": "large", "publish_bytes_per_second": 1000},
        {"principal": "reads", "read_bytes_per_second": 1000},
        {"principal": "streams", "streams": 1},
        {"principal": "topics", "topics_per_hour": 1},
    ]
    (await put(broker, admin, quotas=quotas)).raise_for_status()

    requests = who("requests")
    sending = [broker.client.post(messages, content=b"x", headers=requests) for _ in range(30)]
    answers = await asyncio.gather(*sending)
    assert any(each.status_code == 200 for each in answers)
    told = check_problem(next(a for a in answers if a.status_code != 200), 429, "quota-exceeded", "at each broker")
    assert (told["limit"], told["value"]) == ("requests_per_second", 1)

    sent = [await broker.client.post(messages, content=bytes(5000), headers=who("bytes")) for _ in range(2)]
    assert sent[0].status_code == 200
    check_problem(sent[1], 429, "quota-exceeded", "publish_bytes_per_second = 1000")
    assert 3 <= int(sent[1].headers["retry-after"]) <= 5

    # A large body goes past the parser.
    sent = [await broker.client.post(messages, content=bytes(200_000), headers=who("large")) for _ in range(2)]
    assert sent[0].status_code == 200
    check_problem(sent[1], 429, "quota-exceeded", "publish_bytes_per_second = 1000")
    assert 190 <= int(sent[1].headers["retry-after"]) <= 200

    ndjson = {"content-type": "application/x-ndjson", **who("bytes-not")}
    assert (await broker.client.post(messages, content=b'{"value": "x"}', headers=ndjson)).status_code == 200
    read = [await broker.client.get(f"{messages}?from=earliest", headers=who("reads")) for _ in range(2)]
    assert read[0].status_code == 200 and len(read[0].content) > 5000
    check_problem(read[1], 429, "quota-exceeded", "read_bytes_per_second = 1000")

    first = asyncio.create_task(last_line(broker, who("streams")))
    while not len(broker.broker.access.standings):
        await asyncio.sleep(0.01)
    second = await broker.client.get("/v1/topics/orders/subscribe", headers=who("streams"))
    check_problem(second, 429, "quota-exceeded", "streams = 1")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)

    assert (await broker.client.put("/v1/topics/new-1", headers=who("topics"))).status_code == 201
    assert (await broker.client.put("/v1/topics/new-1", headers=who("topics"))).status_code == 200
    more = await broker.client.put("/v1/topics/new-2", headers=who("topics"))
    check_problem(more, 429, "quota-exceeded", "topics_per_hour = 1")
    assert int(more.headers["retry-after"]) >= 1
    assert (await broker.client.get("/v1/topics", headers=who("topics"))).status_code == 200
    assert (await broker.client.post(messages, content=b"x", headers=admin)).status_code == 200


WAITS = [
    pytest.param("GET", "/v1/topics/orders/messages?from=latest&wait=20", None, id="a page"),
    pytest.param("GET", "/v1/topics/orders/messages?from=latest&%77ait=20", None, id="a page, its query encoded"),
    pytest.param("GET", "/v1/topics/orders/segments/0/messages?%77%61it=20", None, id="a segment"),
    pytest.param("POST", "/v1/topics/orders/groups/q/claims", {"wait": 20}, id="a claim"),
    pytest.param("POST", "/v1/topics/orders/groups/s/members/m/heartbeats", {"wait": 20}, id="a heartbeat"),
]


@pytest.mark.parametrize(("method", "path", "body"), WAITS)
async def test_whatever_waits_counts_among_the_streams_of_its_principal(
    broker: HttpBroker, maker: TokenMaker, method: str, path: str, body: dict[str, Any] | None
) -> None:
    admin, held = (bearer(maker.token(*EVERYTHING, sub=name)) for name in ("ada", "held"))
    (await broker.client.put("/v1/topics/orders", headers=admin)).raise_for_status()
    (await put(broker, admin, quotas=[{"principal": "held", "streams": 1}])).raise_for_status()
    if "heartbeats" in path:
        joined = await broker.client.post("/v1/topics/orders/groups/s/members", json={"member_id": "m"}, headers=held)
        told = joined.raise_for_status().json()
        holds = [{"segment": each["segment"], "epoch": each["epoch"]} for each in told["segments"]]
        body = {**(body or {}), "member_epoch": told["member_epoch"], "segments": holds}

    async def asks(more: dict[str, Any] | None = None) -> httpx.Response:
        given = {} if body is None else {"json": {**body, **(more or {})}}
        return await broker.client.request(method, path, headers=held, **given)

    waiting = asyncio.create_task(asks())
    share = broker.broker.quotas.share("held")
    assert share is not None
    while not share._streams:
        await asyncio.sleep(0.01)
    check_problem(await asks(), 429, "quota-exceeded", "streams = 1")
    if body is not None:
        assert (await asks({"wait": 0})).status_code == 200
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_publish_that_the_app_takes_over_is_charged_once(
    broker: HttpBroker, maker: TokenMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way before ASGI begins it, and comes upon a wait: a segment that moves, say."""
    admin, shop = bearer(maker.token(*EVERYTHING, sub="ada")), bearer(maker.token(*EVERYTHING, sub="shop"))
    (await broker.client.put("/v1/topics/orders", headers=admin)).raise_for_status()
    (await put(broker, admin, quotas=[{"principal": "shop", "requests_per_second": 1}])).raise_for_status()
    begin = mock.Mock(return_value=None)
    monkeypatch.setattr(TopicPublisher, "begin_single", begin)
    charge = mock.Mock(side_effect=Share.begin_publish)
    monkeypatch.setattr(Share, "begin_publish", lambda *arguments: charge(*arguments))
    sent = await broker.client.post("/v1/topics/orders/messages", content=b"x" * 40, headers=shop)
    assert charge.called and begin.called
    assert sent.status_code == 200, "charged twice, it is past the quota"


async def test_a_socket_over_its_quota_rests(broker: HttpBroker, maker: TokenMaker) -> None:
    admin, shop = bearer(maker.token(*EVERYTHING, sub="ada")), bearer(maker.token(*EVERYTHING, sub="shop"))
    (await broker.client.put("/v1/topics/orders", headers=admin)).raise_for_status()
    (await put(broker, admin, quotas=[{"principal": "shop", "requests_per_second": 10}])).raise_for_status()
    began_seconds = asyncio.get_running_loop().time()
    async with socket_client(broker.url, "orders", additional_headers=shop) as socket:
        for _ in range(20):
            await socket.ok(publish={"value": "x"})
    assert asyncio.get_running_loop().time() - began_seconds > 0.8


async def test_connections_past_the_quota_are_told_so_and_closed(broker: HttpBroker, maker: TokenMaker) -> None:
    """By the fast path, by the other, and for a socket. One that ends makes room, and so does one that another uses."""
    admin, shop = bearer(maker.token(*EVERYTHING, sub="ada")), bearer(maker.token("topic:orders:*", sub="shop"))
    (await broker.client.put("/v1/topics/orders", headers=admin)).raise_for_status()
    (await put(broker, admin, quotas=[{"principal": "shop", "connections": 2}])).raise_for_status()

    def connected() -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=1)
        return httpx.AsyncClient(base_url=broker.url, limits=limits, trust_env=False, timeout=30)

    def publish(client: httpx.AsyncClient, headers: dict[str, str] = shop) -> Awaitable[httpx.Response]:
        return client.post("/v1/topics/orders/messages", content=b"x", headers=headers)

    async with connected() as first, connected() as second, connected() as third:
        for client in (first, second, first, second, first):
            assert (await publish(client)).status_code == 200
        for ask in (publish(third), third.get("/v1/topics/orders", headers=shop)):
            told = check_problem(refused := await ask, 429, "quota-exceeded", "connections = 2", "so many are open")
            assert (told["limit"], told["value"], told["used"]) == ("connections", 2, 2)
            assert refused.headers["connection"] == "close" and refused.headers["retry-after"] == "1"
        with pytest.raises(InvalidStatus, match="429"):
            async with socket_client(broker.url, "orders", additional_headers=shop):
                pass
        assert (await publish(third, admin)).status_code == 200, "others have no such quota"
        for ask in (publish(second, admin), second.get("/v1/topics/orders", headers=admin)):
            assert (await publish(second)).status_code == 200
            assert (await ask).status_code == 200
            assert (await publish(third)).status_code == 200, "the second counts for another now"
            assert (await publish(second)).status_code == 429
            await publish(third, admin)
        assert (await publish(second)).status_code == 200
        await second.aclose()
        async with asyncio.timeout(10):
            while (await publish(third)).status_code != 200:
                pass
        async with connected() as fourth:
            assert (await publish(fourth)).status_code == 429
    async with socket_client(broker.url, "orders", additional_headers=shop) as socket:
        await socket.ok(publish={"value": "x"})


async def test_what_is_stored_past_the_quota_is_told(
    broker: HttpBroker, maker: TokenMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By all ways of publishing, for the topics that it names. Once there is less, publishes go on."""
    monkeypatch.setattr(storage_meter, "APART_SECONDS", 0.01)
    client, admin, shop = broker.client, *(bearer(maker.token(*EVERYTHING, sub=name)) for name in ("ada", "shop"))
    for topic in ("orders-1", "orders-2", "bills"):
        (await client.put(f"/v1/topics/{topic}", headers=admin)).raise_for_status()
    quota = {"principal": "shop", "storage_bytes": 100_000, "storage_topics": "orders-*"}
    (await put(broker, admin, quotas=[quota])).raise_for_status()

    def publish(topic: str, size_bytes: int, **headers: str) -> Awaitable[httpx.Response]:
        data = os.urandom(size_bytes)
        return client.post(f"/v1/topics/{topic}/messages", content=data, headers={**shop, **headers})

    assert (await publish("orders-1", 90_000)).status_code == 200
    assert (await publish("orders-2", 90_000)).status_code == 200
    for topic in ("orders-1", "orders-2"):
        for data in (publish(topic, 5), publish(topic, 200_000), client.post(
            f"/v1/topics/{topic}/uploads", json={"size": 3}, headers=shop
        )):  # fmt: skip
            told = check_problem(
                await data, 429, "quota-exceeded", "storage_bytes = 100000", "'orders-*'", "delete some"
            )
            assert (told["limit"], told["value"]) == ("storage_bytes", 100_000) and told["used"] >= 180_000
    async with socket_client(broker.url, "orders-1", additional_headers=shop) as socket:
        await socket.problem("quota-exceeded", "storage_bytes", publish={"value": "x"})
    assert (await publish("bills", 200_000)).status_code == 200
    assert (await client.get("/v1/topics/orders-1/messages", headers=shop)).status_code == 200
    (await client.delete("/v1/topics/orders-2", headers=admin)).raise_for_status()
    async with asyncio.timeout(10):
        while (await publish("orders-1", 5)).status_code != 200:
            pass


async def test_a_scrape_tells_what_was_measured_of_storage_and_asks_the_store_nothing(
    tmp_path: Path, maker: TokenMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart, when measuring takes reads of the store."""
    monkeypatch.setattr(storage_meter, "APART_SECONDS", 0.0)
    monkeypatch.setattr(storage_watch, "WATCH_SECONDS", 3600.0)
    asked: list[str] = []

    def note(point: str, key: str) -> None:
        if point.startswith("before") and key.startswith("topics/orders/"):
            asked.append(f"{point} {key}")

    admin, memory = bearer(maker.token(*EVERYTHING, sub="ada")), MemoryStore()
    (tmp_path / "keys.json").write_bytes(maker.key_set)
    settings = {"authorizer": "tokens", "token_keys": tmp_path / "keys.json", "maintenance_interval": 3600}
    async with http_broker(memory, **settings) as broker:
        (await broker.client.put("/v1/topics/orders", headers=admin)).raise_for_status()
        published = await broker.client.post("/v1/topics/orders/messages", content=os.urandom(50_000), headers=admin)
        published.raise_for_status()
        quota = {"principal": "shop", "storage_bytes": 100_000, "storage_topics": "orders"}
        (await put(broker, admin, quotas=[quota])).raise_for_status()
    store = FailingStore(memory, ScriptedFaults(), clock=SystemClock(), on_point=note)
    async with http_broker(store, **settings) as broker:

        async def scrape() -> dict[str, float]:
            lines = (await broker.client.get("/metrics", headers=admin)).raise_for_status().text.splitlines()
            told = (line.rsplit(" ", 1) for line in lines if line.startswith("braidmq_storage_quota_"))
            return {name: float(value) for name, value in told}

        async with asyncio.timeout(30):
            while broker.broker.topics.get("orders") is None:
                await asyncio.sleep(0.01)
            asked.clear()
            assert [await scrape() for _ in range(5)] == [{}] * 5 and asked == []
            broker.broker.quotas.measure_storage()
            while not (told := await scrape()):
                await asyncio.sleep(0.01)
        assert asked, "what measuring takes is seen here"
        assert 0.5 <= told['braidmq_storage_quota_used_ratio{topics="orders"}'] < 0.6
        asked.clear()
        ages = [(await scrape())['braidmq_storage_quota_age_seconds{topics="orders"}'] for _ in range(5)]
        assert ages == sorted(ages) and 0.0 <= ages[0] < ages[-1] < 30.0 and asked == []


async def test_topics_that_are_created_at_once_count(broker: HttpBroker, maker: TokenMaker) -> None:
    admin, shop = bearer(maker.token(*EVERYTHING, sub="ada")), bearer(maker.token("topic:*:*", sub="shop"))
    (await put(broker, admin, quotas=[{"principal": "shop", "topics_per_hour": 2}])).raise_for_status()

    def create(name: str, **config: Any) -> Awaitable[httpx.Response]:
        return broker.client.put(f"/v1/topics/{name}", json=config, headers=shop)

    for number in range(3):
        check_problem(await create(f"bad-{number}", nonsense=1), 422, "invalid-config")
    answers = await asyncio.gather(*(create(f"topic-{number}") for number in range(20)))
    assert sorted(answer.status_code for answer in answers) == [201] * 2 + [429] * 18


async def test_storage_counts_what_is_stored_and_once(
    broker: HttpBroker, maker: TokenMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever way it comes. What one principal is refused keeps nothing from another."""
    monkeypatch.setattr(storage_meter, "APART_SECONDS", 3600.0)
    client, admin, shop, bob = broker.client, *(
        bearer(maker.token(*EVERYTHING, sub=name)) for name in ("ada", "shop", "bob")
    )  # fmt: skip
    (await client.put("/v1/topics/orders", json={"value_type": "json"}, headers=admin)).raise_for_status()
    quota = {"storage_bytes": 100_000, "storage_topics": "orders"}
    (await put(broker, admin, quotas=[{"principal": name, **quota} for name in ("shop", "bob")])).raise_for_status()

    def publish(headers: dict[str, str], content: bytes, **more: str) -> Awaitable[httpx.Response]:
        return client.post("/v1/topics/orders/messages", content=content, headers={**headers, **more})

    text, value = {"content-type": "text/plain"}, orjson.dumps(os.urandom(30_000).hex())
    for more in (text, {"content-type": "application/json"}):
        assert (await publish(shop, b"{" * 200_000, **more)).status_code in (400, 422)
    opened = await client.post("/v1/topics/orders/uploads", json={"size": 150_000}, headers=shop)
    upload = opened.raise_for_status().json()
    sent = await client.put(upload["url"], content=bytes(150_000), headers={**shop, **upload.get("headers", {})})
    assert sent.is_success, sent.text
    async with socket_client(broker.url, "orders", additional_headers=shop) as socket:
        await socket.problem("invalid-request", "2 replicas", publish=[{"value": "x" * 200_000}], acks="replicated")
        await socket.ok(publish={"value": "7"})
    assert (await publish(bob, value, **text)).status_code == 200
    async with socket_client(broker.url, "orders", additional_headers=bob) as socket:
        await socket.ok(publish={"value": f'"{os.urandom(15_000).hex()}"'})
    assert (await publish(bob, value, **text)).status_code == 200, "the limit is not reached before"
    check_problem(await publish(shop, b"1", **text), 429, "quota-exceeded", "storage_bytes = 100000")


async def test_what_a_newer_version_has_written_keeps_no_revocation_from_counting(
    broker: HttpBroker, maker: TokenMaker, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """While brokers are upgraded one by one. It is not changed here: what is not known here would be lost."""
    admin, bob = bearer(maker.token(*EVERYTHING, sub="ada")), bearer(maker.token(*EVERYTHING, sub="bob", jti="t2"))
    written = {
        "format": 1,
        "version": 7,
        "grants": [],
        "revoked_tokens": [{"kid": "k1", "until": LATE}, {"id": "t2", "until": LATE, "why": "lost"}],
        "revoked_principals": [],
        "quotas": [{"role": "shop", "streams": 3}, {"principal": "shop", "dreams_per_night": 3}],
    }
    await store.create(keys.POLICY, with_check(orjson.dumps(written)))
    async with asyncio.timeout(10):
        while (await broker.client.get("/v1/topics", headers=bob)).status_code != 401:
            await asyncio.sleep(0.05)
    assert "policy_newer" in caplog.text and "quotas.dreams_per_night" in caplog.text
    assert "policy_revokes_more" in caplog.text and "revoked_tokens, 1 of 2" in caplog.text
    assert "braidmq_policy_failures_total 1.0" in (await broker.client.get("/metrics", headers=admin)).text
    refused = await put(broker, admin, quotas=[{"principal": "shop", "streams": 3}])
    check_problem(refused, 409, "policy-newer", "revoked_tokens.why", "at a broker of that version")


async def put_until_known(broker: HttpBroker, headers: dict[str, str], **sections: Any) -> httpx.Response:
    """As `put`, and the same again while the store has not said what came of it: S3 tells who comes at once to wait."""
    tag = (await broker.client.get(PATH, headers=headers)).raise_for_status().headers["etag"]
    async with asyncio.timeout(60):
        while True:
            answer = await broker.client.put(PATH, json=sections, headers={**headers, "if-match": tag})
            if answer.status_code != 503:
                return answer
            assert answer.json()["retryable"]


async def test_brokers_on_s3_have_one_policy(
    tmp_path: Path, maker: TokenMaker, s3_endpoint: str, s3_bucket: str
) -> None:
    """What one of them revokes counts at all, and of changes at the same time one is made."""
    (tmp_path / "keys.json").write_bytes(maker.key_set)
    admin, bob = bearer(maker.token(*EVERYTHING, sub="ada")), bearer(maker.token("topic:orders:*", sub="bob", jti="t2"))
    async with contextlib.AsyncExitStack() as running:
        brokers = []
        for _ in range(3):
            store = open_store(StoreAddress(f"s3://{s3_bucket}/prefix", s3_endpoint), SystemClock())
            served = http_broker(store, authorizer="tokens", token_keys=tmp_path / "keys.json", audit="off")
            brokers.append(await running.enter_async_context(served))
        revoked = [{"id": "t2", "until": LATE}]
        (await put(brokers[0], admin, revoked_tokens=revoked)).raise_for_status()
        for each in brokers:
            async with asyncio.timeout(10):
                while (await each.client.get("/v1/topics", headers=bob)).status_code != 401:
                    await asyncio.sleep(0.02)
        changed = await asyncio.gather(
            *(
                put_until_known(each, admin, quotas=[{"principal": "shop", "streams": n}])
                for n, each in enumerate(brokers, 1)
            )
        )
        assert sorted({answer.status_code for answer in changed}) in ([200], [200, 412])
        shown = [(await each.client.get(PATH, headers=admin)).json() for each in brokers]
        assert shown[0] == shown[1] == shown[2]
        assert shown[0]["version"] == 1 + sum(answer.status_code == 200 for answer in changed)


async def test_a_principal_has_so_many_groups_of_a_topic(broker: HttpBroker, maker: TokenMaker) -> None:
    """Whether it makes them by name, by claims or by joining. Others make theirs, and so does it of another topic."""
    admin = bearer(maker.token(*EVERYTHING, sub="ada"))
    (await put(broker, admin, quotas=[{"principal": "ben", "groups": 2}])).raise_for_status()
    for topic in ("t", "u"):
        (await broker.client.put(f"/v1/topics/{topic}", headers=admin)).raise_for_status()
    groups = "/v1/topics/t/groups"
    ben = bearer(maker.token("topic:*:*", sub="ben"))
    (await broker.client.put(f"{groups}/a", headers=ben)).raise_for_status()
    (await broker.client.post(f"{groups}/b/members", headers=ben)).raise_for_status()
    for refused in (
        await broker.client.post(f"{groups}/c/claims", headers=ben),
        await broker.client.put(f"{groups}/c", headers=ben),
    ):
        check_problem(refused, 409, "too-many-groups", "this principal has made 2 groups of topic 't'")
    (await broker.client.post(f"{groups}/a/claims", headers=ben)).raise_for_status()
    (await broker.client.post(f"{groups}/c/claims", headers=admin)).raise_for_status()
    (await broker.client.post("/v1/topics/u/groups/c/claims", headers=ben)).raise_for_status()
    (await broker.client.post(f"{groups}/a/reset", json={"to": "latest"}, headers=ben)).raise_for_status()
    check_problem(await broker.client.put(f"{groups}/d", headers=ben), 409, "too-many-groups")
    (await broker.client.delete(f"{groups}/a", headers=ben)).raise_for_status()
    (await broker.client.put(f"{groups}/d", headers=ben)).raise_for_status()
