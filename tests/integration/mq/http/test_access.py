"""Every route, for every kind of token: who may, who may not, and who is nobody."""

import asyncio
import hashlib
import hmac
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from filer.clock import SystemClock
from filer.errors import InvalidConfig
from filer.stores.memory_store import MemoryStore
from mq.base.settings import BrokerSettings
from mq.http.routes import ROUTES
from mq.http.sockets.like_requests import OF_SUBSCRIPTIONS
from mq.http.sockets.requests import ACK, COMMIT, EXTEND, FIELDS, RELEASE
from mq.peers.calls import CALLS, PREFIX, SECRET_HEADER
from mq.security import issuer_keys
from mq.security.access import access_of
from mq.security.grants import ACTIONS
from mq.security.signed_tokens import SKEW_SECONDS
from mq.security.standing import REVIEW_SECONDS
from mq.security.static_tokens import digest_of
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.broker.socket_client import checked, socket_client
from tests.support.issuer import issuer_running
from tests.support.process.processes import free_port
from tests.support.token_maker import TokenMaker

STATIC = "braidmq_static"
STREAM = "/v1/topics/orders-1/subscribe?from=earliest"
PRIVATE = json.dumps({"keys": [{**TokenMaker().public_jwk, "d": "c2VjcmV0"}]})
EVERYTHING = ("topic:*:*", "cluster:*")


@pytest.fixture(scope="module")
def maker() -> TokenMaker:
    return TokenMaker(now_seconds=SystemClock().now_us() / 1e6)


@pytest.fixture
async def broker(tmp_path: Path, maker: TokenMaker) -> AsyncIterator[HttpBroker]:
    (tmp_path / "keys.json").write_bytes(maker.key_set)
    stanza = f'[[token]]\nname = "old"\nsha256 = "{digest_of(STATIC)}"\ngrants = ["topic:orders-*:read"]\n'
    (tmp_path / "static.toml").write_text(stanza)
    async with http_broker(
        MemoryStore(),
        authorizer="tokens",
        token_keys=tmp_path / "keys.json",
        static_tokens=tmp_path / "static.toml",
        audit="off",  # hundreds of refusals, one after the other; test_audit.py has it on
    ) as served:
        yield served


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def filled(template: str, topic: str) -> str:
    """A path of that route. Nothing of what it names is there."""
    path = template.replace("topic-groups/{group}", f"topic-groups/{topic}").replace("{topic}", topic)
    path = path.replace("{segment}", "7").replace("{base_offset}", "0")
    return re.sub(r"\{\w+\}", "nothing", path)


async def routes_of(broker: HttpBroker, headers: dict[str, str]) -> set[tuple[str, str]]:
    """Every method and path that the application knows, as it tells itself; names in braces count alike."""
    document = (await broker.client.get("/openapi.json", headers=headers)).json()
    return {(method.upper(), named(path)) for path, methods in document["paths"].items() for method in methods}


def named(path: str) -> str:
    return re.sub(r"\{\w+\}", "{}", path)


async def test_every_route_is_in_the_table_and_described(broker: HttpBroker, maker: TokenMaker) -> None:
    """A new route without an entry fails here. Until it has one, only those who manage the cluster may use it."""
    routes = await routes_of(broker, bearer(maker.token()))
    undescribed = {("GET", path) for path in ("/docs", "/docs/{}", "/openapi.json")}
    assert {(route.method, named(route.template)) for route in ROUTES} == routes | undescribed


def refused_tokens(maker: TokenMaker) -> dict[str, str]:
    now = maker.now_seconds
    return {
        "expired": maker.token(*EVERYTHING, iat=now - 9000, exp=now - 60),
        "wrong audience": maker.token(*EVERYTHING, aud="another-cluster"),
        "wrong key": TokenMaker(now_seconds=now).token(*EVERYTHING),
        "alg none": maker.unsigned(*EVERYTHING),
        "HS256 with the public key": maker.signed_with_the_public_key(*EVERYTHING),
        "unknown static": "braidmq_other",
    }


async def test_nobody_gets_anything(broker: HttpBroker, maker: TokenMaker) -> None:
    """The same words whatever is there, and a challenge. Probes are told as little as without a broker's trust."""
    given = {name: bearer(token) for name, token in refused_tokens(maker).items()}
    given |= {"none": {}, "basic": {"authorization": "Basic YTpi"}}
    for route, headers in ((route, each) for route in ROUTES for each in given.values()):
        template = route.template
        answer = await broker.client.request(route.method, filled(template, "orders-1"), headers=headers)
        if route.is_probe:
            assert answer.json() in ({"status": "ok"}, {"ready": True})
            continue
        check_problem(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer", template


async def test_two_credentials_are_none(broker: HttpBroker, maker: TokenMaker) -> None:
    good = f"authorization: Bearer {maker.token(*EVERYTHING)}\r\n".encode()
    for line in (b"GET /v1/topics HTTP/1.1", b"POST /v1/topics/t/messages HTTP/1.1"):
        sent = line + b"\r\nhost: b\r\nconnection: close\r\ncontent-length: 0\r\n" + good + good + b"\r\n"
        assert b"401 Unauthorized" in await broker.raw(sent)


async def test_each_route_takes_the_grant_it_needs_and_no_other(broker: HttpBroker, maker: TokenMaker) -> None:
    for route in ROUTES:
        method, template = route.method, route.template
        path = filled(template, "orders-1")
        if route.is_probe or route.subject == "anybody":
            continue
        if route.subject == "cluster":
            right, others = (
                [f"cluster:{route.action}"],
                ["topic:*:*", *["cluster:observe"] * (route.action == "manage")],
            )
        else:
            others_actions = ",".join(each for each in ACTIONS if each != route.action)
            # Redriving publishes to the topic besides.
            right = [f"topic:orders-*:{route.action}{',publish' * template.endswith('/redrive')}"]
            others = ["topic:bills-*:*", "topic:orders:*", "cluster:*"]
            others += [f"topic:orders-*:{others_actions}"] * (route.action != "observe")
            others += ["topic:orders-*/billing-*:*"] * (route.subject == "group" or route.action != "observe")
        answer = await broker.client.request(method, path, headers=bearer(maker.token(*right)))
        assert answer.status_code not in (401, 403, 405), (method, template, answer.text)
        assert "no such path" not in answer.text, "the table has it, and an endpoint serves it"
        refused = await broker.client.request(method, path, headers=bearer(maker.token(*others)))
        check_problem(refused, 403, "forbidden", f"'ann' may not {route.action}")


async def test_a_grant_for_groups_is_for_those_groups(broker: HttpBroker, maker: TokenMaker) -> None:
    headers = bearer(maker.token("topic:orders-*/billing-*:consume"))
    (await broker.client.put("/v1/topics/orders-1", headers=bearer(maker.token(*EVERYTHING)))).raise_for_status()
    groups = "/v1/topics/orders-1/groups"
    for name in ("billing-1", "shipping"):
        made = await broker.client.put(
            f"{groups}/{name}", json={"mode": "queue"}, headers=bearer(maker.token(*EVERYTHING))
        )
        made.raise_for_status()
    assert (await broker.client.post(f"{groups}/billing-1/claims", headers=headers)).status_code == 200
    check_problem(await broker.client.post(f"{groups}/shipping/claims", headers=headers), 403, "forbidden", "shipping")
    check_problem(await broker.client.get("/v1/topics/orders-1/messages", headers=headers), 403, "forbidden")
    assert (await broker.client.get("/v1/topics/orders-1", headers=headers)).status_code == 200
    listed = (await broker.client.get(groups, headers=headers)).json()["groups"]
    assert [each["group"] for each in listed] == ["billing-1"]


async def test_lists_show_what_one_may_see(broker: HttpBroker, maker: TokenMaker) -> None:
    everything, orders = bearer(maker.token(*EVERYTHING)), bearer(maker.token("topic:orders-*:read"))
    for topic in ("orders-1", "orders-2", "secret"):
        (await broker.client.put(f"/v1/topics/{topic}", headers=everything)).raise_for_status()
    members = {"topics": ["orders-member", "secret-member"]}
    (await broker.client.put("/v1/topic-groups/secret-all", json=members, headers=everything)).raise_for_status()
    (
        await broker.client.put(
            "/v1/topic-groups/orders-all", json={"topics": ["orders-a", "secret-b"]}, headers=everything
        )
    ).raise_for_status()
    for path in (
        "/v1/topics",
        "/v1/topics?internal=true",
        "/v1/topic-groups",
        "/v1/topic-groups/orders-all",
        "/v1/cluster",
        "/v1/topics/orders-1",
        "/v1/topics/orders-member",
        "/v1/topics/orders-member/route",
        "/v1/topics/orders-member/history",
        "/v1/topics/orders-member/files",
        "/v1/topics/orders-member/groups",
    ):
        told = await broker.client.get(path, headers=orders)
        assert "secret" not in told.text, path
    listed = (await broker.client.get("/v1/topics?limit=2", headers=orders)).json()
    assert [each["topic"] for each in listed["topics"]] == ["orders-1", "orders-2"] or listed["next"]
    cluster = (await broker.client.get("/v1/cluster", headers=orders)).json()
    assert [(each["url"], each["segments"], each["pending_bytes"]) for each in cluster["brokers"]] == [
        (broker.url, None, None)
    ]
    assert (await broker.client.get("/v1/cluster", headers=everything)).json()["brokers"][0]["segments"] is not None


async def test_a_topic_that_one_may_not_see_is_as_one_that_is_not_there(broker: HttpBroker, maker: TokenMaker) -> None:
    everything, orders = bearer(maker.token(*EVERYTHING)), bearer(maker.token("topic:orders-*:*"))
    (await broker.client.put("/v1/topics/secret", headers=everything)).raise_for_status()
    for route in ROUTES:
        method, template = route.method, route.template
        if route.subject not in ("topic", "group"):
            continue
        there = await broker.client.request(method, filled(template, "secret"), headers=orders)
        missing = await broker.client.request(method, filled(template, "absent"), headers=orders)
        assert there.status_code == missing.status_code == 403, template
        assert there.json()["detail"].replace("secret", "absent") == missing.json()["detail"]


async def test_what_a_body_names_takes_a_grant_too(broker: HttpBroker, maker: TokenMaker) -> None:
    """Else a group's dead letters would be written, and a topic be taken into a group, by who may do neither."""
    orders = bearer(maker.token("topic:orders-*:*"))
    (await broker.client.put("/v1/topics/orders-1", headers=orders)).raise_for_status()
    group = "/v1/topics/orders-1/groups/g"
    refused = await broker.client.put(group, json={"dead_letter": {"topic": "bills"}}, headers=orders)
    check_problem(refused, 403, "forbidden", "may not publish topic 'bills'")
    for topic in ("orders-1.dead", "orders-2"):
        (await broker.client.put(group, json={"dead_letter": {"topic": topic}}, headers=orders)).raise_for_status()
    members = {"topics": ["orders-3", "bills"]}
    refused = await broker.client.put("/v1/topic-groups/orders-all", json=members, headers=orders)
    check_problem(refused, 403, "forbidden", "may not manage topic 'bills'")
    members = {"topics": ["orders-3", "bills"]}
    everything = bearer(maker.token(*EVERYTHING))
    (await broker.client.put("/v1/topic-groups/orders-all", json=members, headers=everything)).raise_for_status()
    for method, body in (("PUT", {"retention": {"seconds": 3600}}), ("DELETE", None)):
        refused = await broker.client.request(method, "/v1/topic-groups/orders-all", json=body, headers=orders)
        problem = check_problem(refused, 403, "forbidden", "may not manage every topic of topic group 'orders-all'")
        assert "bills" not in problem["detail"]
    manager = bearer(maker.token("topic:orders-*:manage"))
    check_problem(await broker.client.post(f"{group}/redrive", headers=manager), 403, "forbidden", "may not publish")


@pytest.mark.parametrize("is_known", [False, True])
async def test_the_fast_path_asks_as_the_other_does(broker: HttpBroker, maker: TokenMaker, is_known: bool) -> None:
    """Heads that were understood once are known by their bytes: so is the token in them, which may have ended."""
    right = bearer(maker.token("topic:orders-*:publish,manage"))
    (await broker.client.put("/v1/topics/orders-1", headers=right)).raise_for_status()
    messages = "/v1/topics/orders-1/messages"
    for _ in range(1 + 2 * is_known):
        assert (await broker.client.post(messages, content=b"x", headers=right)).status_code == 200
    for name, token in refused_tokens(maker).items():
        answer = await broker.client.post(messages, content=b"x", headers=bearer(token))
        check_problem(answer, 401, "unauthenticated"), name
    check_problem(await broker.client.post(messages, content=b"x"), 401, "unauthenticated")
    check_problem(
        await broker.client.post(messages, content=b"x", headers=bearer(maker.token("topic:orders-*:read"))),
        403,
        "forbidden",
    )
    check_problem(await broker.client.post("/v1/topics/bills/messages", content=b"x", headers=right), 403, "forbidden")
    offsets = await broker.client.get("/v1/topics/orders-1", headers=right)
    assert sum(each["end_offset"] for each in offsets.json()["segments"]) == 1 + 2 * is_known


GROUP, MEMBER = "topic:orders-*/g:consume", {"mode": "stream", "group": "s", "member_id": "m"}
FRAMES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"publish": {"value": "x"}}, {"publish": "topic:orders-*:publish"}),
    ({"subscribe": {"from": "earliest"}}, {"read": "topic:orders-*:read"}),
    ({"subscribe": {"mode": "queue", "group": "g"}}, {"consume": GROUP}),
    ({"subscribe": MEMBER}, {"consume": "topic:orders-*/s:consume", "read": "topic:orders-*:read"}),
    *[({kind: {"messages": []}, "group": "g"}, {"consume": GROUP}) for kind in (ACK, RELEASE, EXTEND)],
]
"""Frames of a socket, each with the grants that it takes, by their actions."""


def test_every_kind_of_frame_says_what_it_takes() -> None:
    """A new kind without a line here fails. The others are about what the socket has subscribed to before."""
    assert {next(iter(frame)) for frame, _ in FRAMES} | {COMMIT, *OF_SUBSCRIPTIONS} == set(FIELDS)


@pytest.mark.parametrize(("frame", "takes"), FRAMES, ids=[str(frame)[:60] for frame, _ in FRAMES])
async def test_each_frame_of_a_socket_takes_the_grants_it_needs_and_no_others(
    broker: HttpBroker, maker: TokenMaker, frame: dict[str, Any], takes: dict[str, str]
) -> None:
    (await broker.client.put("/v1/topics/orders-1", headers=bearer(maker.token(*EVERYTHING)))).raise_for_status()

    async def answer_to(*grants: str) -> dict[str, Any]:
        token = bearer(maker.token("topic:orders-*:observe", *grants))
        async with socket_client(broker.url, "orders-1", additional_headers=token) as socket:
            return await socket.ask(**frame)

    for action, grant in takes.items():
        refused = await answer_to(*(each for each in takes.values() if each != grant))
        checked(refused["problem"], "forbidden", f"may not {action}")
    allowed = await answer_to(*takes.values())
    assert allowed.get("problem", {}).get("type") != "urn:braidmq:forbidden", allowed


async def test_a_member_on_a_socket_ends_when_it_may_not_read_any_more(
    broker: HttpBroker, maker: TokenMaker, tmp_path: Path
) -> None:
    (await broker.client.put("/v1/topics/orders-1", headers=bearer(maker.token(*EVERYTHING)))).raise_for_status()
    stanza = '[[token]]\nname = "old"\nsha256 = "{}"\ngrants = ["topic:orders-*/s:consume"{}]\n'
    (tmp_path / "static.toml").write_text(stanza.format(digest_of(STATIC), ', "topic:orders-1:read"'))
    async with socket_client(broker.url, "orders-1", additional_headers=bearer(STATIC)) as socket:
        while "ok" not in await socket.ask(subscribe=MEMBER):
            await asyncio.sleep(0.02)  # until the file is taken
        (tmp_path / "static.toml").write_text(stanza.format(digest_of(STATIC), ""))
        await socket.end()
        checked(socket.told[-1], "forbidden", "may not read")


async def test_a_static_token_is_as_good(broker: HttpBroker, maker: TokenMaker) -> None:
    assert [*(await broker.client.get("/v1/topics", headers=bearer(STATIC))).json()["topics"]] == []
    check_problem(await broker.client.put("/v1/topics/orders-1", headers=bearer(STATIC)), 403, "forbidden", "'old'")


async def test_a_subscription_and_a_socket_end_with_their_token(
    broker: HttpBroker, maker: TokenMaker, tmp_path: Path
) -> None:
    """By its time, or because its key is not good any more: within a second, and with a word."""
    everything = bearer(maker.token(*EVERYTHING))
    (await broker.client.put("/v1/topics/orders-1", headers=everything)).raise_for_status()
    now = SystemClock().now_us() / 1e6
    ending = bearer(maker.token("topic:orders-*:read", exp=now - SKEW_SECONDS + 1))
    lasting = bearer(maker.token("topic:orders-*:read"))

    async def end_of_stream(headers: dict[str, str]) -> dict[str, Any]:
        lines = []
        async with broker.client.stream("GET", STREAM, headers={**headers, "accept": "application/x-ndjson"}) as answer:
            lines = [json.loads(line) async for line in answer.aiter_lines()]
        return dict(lines[-1])

    async def end_of_socket(headers: dict[str, str]) -> tuple[str, tuple[int, str] | None]:
        async with socket_client(broker.url, "orders-1", additional_headers=headers) as socket:
            await socket.ok(subscribe={"from": "earliest"})
            await socket.until(lambda: socket.closed is not None)
            return socket.told[-1]["type"], socket.closed

    async with asyncio.timeout(10):
        stream, socket = await asyncio.gather(end_of_stream(ending), end_of_socket(ending))
    assert (stream["end"], stream["problem"]["type"]) == ("refused", "urn:braidmq:unauthenticated")
    assert "has expired" in stream["problem"]["detail"] and "marker" in stream
    assert socket == ("urn:braidmq:unauthenticated", (1008, "see the message before"))

    going_on = [asyncio.create_task(end_of_stream(lasting)), asyncio.create_task(end_of_socket(lasting))]
    while len(broker.broker.access.standings) < 2:
        await asyncio.sleep(0.01)
    another = TokenMaker(key_id="k2", now_seconds=maker.now_seconds)
    (tmp_path / "keys.json").write_bytes(another.key_set)
    async with asyncio.timeout(10):
        stream, socket = await asyncio.gather(*going_on)
    assert stream["end"] == "refused" and "not known here: 'k1'" in stream["problem"]["detail"]
    assert socket[1] == (1008, "see the message before")
    check_problem(await broker.client.get("/v1/topics", headers=everything), 401, "unauthenticated")
    assert (await broker.client.get("/v1/topics", headers=bearer(another.token()))).status_code == 200


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file or directory"),
        ("{", "the key set is no JSON"),
        ('{"keys": 7}', "a key set has"),
        (PRIVATE, "it has private keys, which brokers must not have"),
    ],
    ids=["missing", "no JSON", "no keys", "private"],
)
async def test_a_broker_does_not_start_with_a_file_of_no_use(tmp_path: Path, text: str | None, why: str) -> None:
    path = tmp_path / "keys.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidConfig) as caught:
        await access_of(BrokerSettings(authorizer="tokens", token_keys=path), SystemClock(), MemoryStore()).open()
    assert str(caught.value).startswith(f"{path} (--token-keys): {why}")


async def test_a_file_that_cannot_be_used_leaves_in_force_what_was_there(
    broker: HttpBroker, maker: TokenMaker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    everything = bearer(maker.token(*EVERYTHING))
    (tmp_path / "keys.json").write_text("{")
    while "credentials_unusable" not in caplog.text:
        await asyncio.sleep(0.01)
    assert (await broker.client.get("/v1/topics", headers=everything)).status_code == 200
    (tmp_path / "static.toml").unlink()
    while caplog.text.count("credentials_unusable") < 2:
        await asyncio.sleep(0.01)
    assert (await broker.client.get("/v1/topics", headers=bearer(STATIC))).status_code == 200


async def test_who_waits_gets_nothing_once_the_token_has_ended(broker: HttpBroker, maker: TokenMaker) -> None:
    everything = bearer(maker.token(*EVERYTHING))
    (await broker.client.put("/v1/topics/orders-1", headers=everything)).raise_for_status()
    now = SystemClock().now_us() / 1e6
    ending = bearer(maker.token("topic:orders-*:read,consume", exp=now - SKEW_SECONDS + 0.7))
    polls = [
        asyncio.create_task(broker.client.get("/v1/topics/orders-1/messages?from=latest&wait=2", headers=ending)),
        asyncio.create_task(
            broker.client.post("/v1/topics/orders-1/groups/g/claims", json={"wait": 2}, headers=ending)
        ),
    ]
    while not any(task.done() for task in polls):
        await asyncio.sleep(0.3)
        if SystemClock().now_us() / 1e6 > now + 1:
            await broker.client.post("/v1/topics/orders-1/messages", content=b"secret", headers=everything)
    for answer in await asyncio.gather(*polls):
        check_problem(answer, 401, "unauthenticated", "has expired")
        assert "secret" not in answer.text


async def test_an_issuers_people_come_in_and_its_keys_are_rotated_under_way(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped issuer stops nobody; a dropped key is good no more once the issuer has said so."""
    caplog.set_level("INFO")
    monkeypatch.setattr(issuer_keys, "AGAIN_SECONDS", 0.05)
    async with (
        issuer_running() as issuer,
        http_broker(MemoryStore(), authorizer="tokens", oidc_issuer=issuer.url, oidc_audience="queue") as served,
    ):
        client, right = served.client, bearer(issuer.maker.token("topic:orders-*:manage,publish,read"))
        while "issuer_keys_read" not in caplog.text:
            await asyncio.sleep(0.01)
        assert (await client.put("/v1/topics/orders-1", headers=right)).status_code == 201
        forged = TokenMaker.on_p256(issuer=issuer.url, audience="queue", key_id="i1")
        forged.now_seconds = issuer.maker.now_seconds
        for token in (forged.token(*EVERYTHING), issuer.maker.token(*EVERYTHING, aud="other")):
            check_problem(await client.get("/v1/topics", headers=bearer(token)), 401, "unauthenticated")
        refused = await client.put("/v1/topics/bills", headers=right)
        check_problem(refused, 403, "forbidden", f"'{issuer.url}#ann' may not manage")

        answers, issuer.answer = issuer.answer, lambda path: None
        old = issuer.rotate()
        new = bearer(issuer.maker.token("topic:orders-*:publish"))
        check_problem(
            await client.post("/v1/topics/orders-1/messages", content=b"x", headers=new), 401, "unauthenticated"
        )
        assert (await client.get("/v1/topics/orders-1", headers=right)).status_code == 200, "its last keys count"

        issuer.answer = answers
        async with asyncio.timeout(10):
            while (await client.post("/v1/topics/orders-1/messages", content=b"x", headers=new)).status_code != 200:
                await asyncio.sleep(0.05)
        gone = bearer(old.token("topic:orders-*:read"))
        check_problem(await client.get("/v1/topics/orders-1", headers=gone), 401, "unauthenticated", "'i1'")


async def test_an_issuer_that_is_away_keeps_no_broker_from_starting(caplog: pytest.LogCaptureFixture) -> None:
    issuer = f"http://127.0.0.1:{free_port()}"
    async with http_broker(MemoryStore(), authorizer="tokens", oidc_issuer=issuer) as served:
        while "issuer_failed" not in caplog.text:
            await asyncio.sleep(0.01)
        assert (await served.client.get("/readyz")).json() == {"ready": True}


async def test_a_broker_takes_no_requests_before_it_has_asked_its_issuer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A good token would be refused, and who is refused does not come again."""
    async with issuer_running() as issuer:
        serve = issuer.serve

        async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for _ in range(3000):
                await asyncio.sleep(0)
            await serve(reader, writer)

        monkeypatch.setattr(issuer, "serve", late)
        asked = {"authorizer": "tokens", "oidc_issuer": issuer.url, "oidc_audience": "queue"}
        async with http_broker(MemoryStore(), **asked) as served:
            answer = await served.client.get("/v1/topics", headers=bearer(issuer.maker.token(*EVERYTHING)))
            assert answer.status_code == 200, answer.text


async def test_a_body_that_began_before_the_token_ended_changes_nothing(
    broker: HttpBroker, maker: TokenMaker, tmp_path: Path
) -> None:
    everything, path = bearer(maker.token(*EVERYTHING)), tmp_path / "static.toml"
    (await broker.client.put("/v1/topics/orders-1", headers=everything)).raise_for_status()
    lines = path.read_text().replace("topic:orders-*:read", "topic:orders-*:*")
    path.write_text(lines)
    while (await broker.client.get("/v1/topics/orders-1/loads/x", headers=bearer(STATIC))).status_code == 403:
        await asyncio.sleep(0.05)
    began, go_on = [asyncio.Event() for _ in range(3)], asyncio.Event()

    async def halves(first: bytes, second: bytes, has_begun: asyncio.Event) -> AsyncIterator[bytes]:
        yield first
        has_begun.set()
        await go_on.wait()
        yield second

    client, who = broker.client, bearer(STATIC)
    late = [
        client.post("/v1/topics/orders-1/messages", content=halves(b"a", b"b", began[0]), headers=who),
        client.put("/v1/topics/orders-late", content=halves(b"{", b"}", began[1]), headers=who),
        client.put("/v1/topics/orders-1/groups/g", content=halves(b"{", b"}", began[2]), headers=who),
    ]
    waiting = client.post("/v1/topics/orders-1/groups/waits/claims", json={"wait": 20}, headers=who)
    asked = [asyncio.create_task(each) for each in (*late, waiting)]
    await asyncio.gather(*(each.wait() for each in began))
    while not len(broker.broker.access.standings):
        await asyncio.sleep(0.01)
    path.write_text("")
    while (await client.get("/v1/topics", headers=who)).status_code != 401:
        await asyncio.sleep(0.05)
    await asyncio.sleep(REVIEW_SECONDS)
    go_on.set()
    for answer in await asyncio.gather(*asked):
        check_problem(answer, 401, "unauthenticated")
    described = (await client.get("/v1/topics/orders-1", headers=everything)).json()
    assert [each["end_offset"] for each in described["segments"]] == [0]
    assert (await client.get("/v1/topics/orders-late", headers=everything)).status_code == 404
    groups = (await client.get("/v1/topics/orders-1/groups", headers=everything)).json()["groups"]
    assert [each["group"] for each in groups] in ([], ["waits"])
    (await client.post("/v1/topics/orders-1/messages", content=b"x", headers=everything)).raise_for_status()
    claimed = await client.post("/v1/topics/orders-1/groups/waits/claims", json={"wait": 5}, headers=everything)
    assert [each["deliveries"] for each in claimed.json()["messages"]] == [1], "nobody else has it"


@pytest.mark.parametrize("odd", ["x = " + "1" * 5000, "x = " + "[" * 3000])
async def test_no_file_keeps_the_next_one_from_counting(broker: HttpBroker, tmp_path: Path, odd: str) -> None:
    """An error that nobody foresaw ended the watch: from then on nothing was revoked, and nobody was told."""
    (tmp_path / "static.toml").write_text(odd)
    await asyncio.sleep(2 * REVIEW_SECONDS)
    assert (await broker.client.get("/v1/topics", headers=bearer(STATIC))).status_code == 200
    (tmp_path / "static.toml").write_text("")
    async with asyncio.timeout(10):
        while (await broker.client.get("/v1/topics", headers=bearer(STATIC))).status_code != 401:
            await asyncio.sleep(0.05)


async def test_what_is_done_to_a_topic_group_is_done_to_each_topic_in_it(broker: HttpBroker, maker: TokenMaker) -> None:
    everything, group = bearer(maker.token(*EVERYTHING)), bearer(maker.token("topic:hush:*"))
    members = {"topics": ["orders-m", "secret-m"]}
    (await broker.client.put("/v1/topic-groups/hush", json=members, headers=everything)).raise_for_status()
    for method, path in (
        ("POST", "/v1/topics/hush/segments/0/split"),
        ("POST", "/v1/topics/hush/upkeep"),
        ("POST", "/v1/topics/hush/groups/g/redrive"),
        ("GET", "/v1/topics/hush/verification"),
        ("PUT", "/v1/topics/hush"),
        ("DELETE", "/v1/topic-groups/hush"),
    ):
        answer = await broker.client.request(method, path, headers=group)
        check_problem(answer, 403, "forbidden", "every topic of topic group 'hush'")
        assert "secret" not in answer.text


async def test_errors_do_not_name_the_topic_group_of_a_member(broker: HttpBroker, maker: TokenMaker) -> None:
    everything, orders = bearer(maker.token(*EVERYTHING)), bearer(maker.token("topic:orders-*:*"))
    members = {"topics": ["orders-m", "secret-m"]}
    (await broker.client.put("/v1/topic-groups/hush", json=members, headers=everything)).raise_for_status()
    reference = {"messages": [{"ref": {"upload": "x"}}]}
    for method, path, body in (
        ("PUT", "/v1/topics/orders-m", None),
        ("GET", "/v1/topic-groups/orders-m", None),
        ("PUT", "/v1/topic-groups/orders-m", None),
        ("PUT", "/v1/topic-groups/orders-new", {"topics": ["orders-m"]}),
        ("PUT", "/v1/topics/orders-m/uploads/x", None),
        ("PUT", "/v1/topics/orders-m/loads/x/files/0/0", None),
        ("POST", "/v1/topics/orders-m/messages", reference),
        ("POST", "/v1/topics/orders-m/segments/0/split", None),
        ("GET", "/v1/topics/orders-m/history", None),
        ("GET", "/v1/topics/orders-m/files", None),
    ):
        answer = await broker.client.request(method, path, json=body, headers=orders)
        assert answer.status_code in (404, 409, 422) and "hush" not in answer.text, (method, path, answer.text)
    async with socket_client(broker.url, "orders-m", additional_headers=orders) as socket:
        told = await socket.ask(publish=[{"ref": {"upload": "x"}}])
        assert told["problem"]["status"] == 422 and "hush" not in str(told)
    guesses = [
        (await broker.client.get(f"/v1/topics/orders-m/messages?from={guess}", headers=orders)).json()["detail"]
        for guess in ("hush", "push")
    ]
    assert guesses[0].replace("hush", "push") == guesses[1], "a guess is told from others"


async def test_a_long_header_is_no_token(broker: HttpBroker) -> None:
    headers = {"authorization": f"Bearer{' ' * 20_000}{STATIC}"}
    check_problem(await broker.client.get("/v1/topics", headers=headers), 401, "unauthenticated", "at most 8192")
    assert len(broker.broker.access.credentials or ()) == 0


async def test_refused_publishes_are_counted(broker: HttpBroker, maker: TokenMaker) -> None:
    messages = "/v1/topics/orders-1/messages"
    await broker.client.post(messages, content=b"x")
    await broker.client.post(messages, content=b"x", headers=bearer(STATIC))
    told = (await broker.client.get("/metrics", headers=bearer(maker.token("cluster:observe")))).text
    for reason in ("unauthenticated", "forbidden"):
        assert f'braidmq_publishes_refused_total{{reason="{reason}"}} 1.0' in told


async def test_a_broker_without_a_cluster_serves_no_broker_also_with_the_secret_that_its_store_tells() -> None:
    store = MemoryStore()
    async with http_broker(store) as running:
        (await running.client.put("/v1/topics/h")).raise_for_status()
        secret = hmac.new(running.broker.cluster.secret, b"braidmq peers", hashlib.sha256).hexdigest()
        for call in CALLS:
            folders = "".join(f"/{name}s/{'h' if name == 'topic' else 0}" for name in call.path_names)
            path = f"{PREFIX}{folders}/{call.name}"
            answer = await running.client.request(call.method, path, headers={SECRET_HEADER: secret})
            assert answer.status_code == 403, path
            assert "no cluster" in answer.json()["detail"]
        (await running.client.post("/v1/topics/h/messages", content=b"still open")).raise_for_status()
