"""Clients that are known by their certificate: what the policy says is what they may do."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from filer.clock import SystemClock
from filer.stores.memory_store import MemoryStore
from mq.http.fast_path.fast_publisher import FastPublisher
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.net.authority import Authority
from tests.support.token_maker import TokenMaker

NAME = "certificate:spiffe://example.org/billing"


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def grant(broker: HttpBroker, admin: dict[str, str], **sections: Any) -> None:
    path = "/v1/cluster/policy"
    tag = (await broker.client.get(path, headers=admin)).raise_for_status().headers["etag"]
    (await broker.client.put(path, json=sections, headers={**admin, "if-match": tag})).raise_for_status()


async def test_who_shows_a_certificate_may_do_what_the_policy_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a grant 403, since it is known who asks. A token in the header counts instead. It ends as tokens do."""
    begun: list[bool] = []
    begin = FastPublisher.begin

    def counting(self: FastPublisher, *given: Any) -> bool:
        begun.append(begin(self, *given))
        return begun[-1]

    monkeypatch.setattr(FastPublisher, "begin", counting)
    authority, maker = Authority(tmp_path), TokenMaker(now_seconds=SystemClock().now_us() / 1e6)
    (tmp_path / "keys.json").write_bytes(maker.key_set)
    server, billing = (
        authority.sign("broker"),
        authority.sign("billing", "b.example.org", "spiffe://example.org/billing"),
    )
    admin = bearer(maker.token("topic:*:*", "cluster:*", sub="ada"))
    async with http_broker(
        MemoryStore(),
        authorizer="tokens",
        token_keys=tmp_path / "keys.json",
        tls_cert=server.cert,
        tls_key=server.key,
        tls_client_ca=authority.ca,
        client_tls=authority.client(billing),
    ) as broker:
        messages = "/v1/topics/orders/messages"
        (await broker.client.put("/v1/topics/orders", headers=admin)).raise_for_status()
        for refused in (
            await broker.client.get("/v1/topics/orders"),
            await broker.client.post(messages, content=b"x"),
            await broker.client.get("/v1/cluster/policy"),
        ):
            check_problem(refused, 403, "forbidden", f"'{NAME}' may not")
        assert (await broker.client.get("/v1/topics")).json()["topics"] == []
        assert not any(begun)

        await grant(broker, admin, grants=[{"principal": NAME, "grants": ["topic:orders:publish,read"]}])
        for _ in range(3):
            assert (await broker.client.post(messages, content=b"x")).status_code == 200
        assert sum(begun) == 3, "by the fast path, also with a head that is known"
        reader = bearer(maker.token("topic:orders:read", sub="bob"))
        answer = await broker.client.post(messages, content=b"x", headers=reader)
        check_problem(answer, 403, "forbidden", "'bob' may not publish")
        answer = await broker.client.post(messages, content=b"x", headers=bearer("braidmq_nobody"))
        check_problem(answer, 401, "unauthenticated")

        streaming = asyncio.create_task(last_line(broker))
        while not len(broker.broker.access.standings):
            await asyncio.sleep(0.01)
        await grant(broker, admin, revoked_principals=[{"principal": NAME, "before": "2020-01-01T00:00:00Z"}])
        async with asyncio.timeout(1.0):
            assert "are revoked" in (await streaming)["problem"]["detail"]
        check_problem(await broker.client.post(messages, content=b"x"), 401, "unauthenticated", "are revoked")
        await grant(broker, admin, grants=[{"principal": f"{NAME[:-3]}*", "grants": ["topic:orders:publish"]}])
        assert (await broker.client.post(messages, content=b"x")).status_code == 200


async def last_line(broker: HttpBroker) -> dict[str, Any]:
    path, accept = "/v1/topics/orders/subscribe?from=earliest", {"accept": "application/x-ndjson"}
    async with broker.client.stream("GET", path, headers=accept) as answer:
        lines = [json.loads(line) async for line in answer.aiter_lines()]
    return dict(lines[-1])


async def test_a_certificate_takes_nothing_from_a_user_who_is_served(tmp_path: Path) -> None:
    """With `--authorizer loopback` nobody is asked, and no one is known by a certificate."""
    authority = Authority(tmp_path)
    server = authority.sign("broker")
    async with http_broker(
        MemoryStore(),
        authorizer="loopback",
        tls_cert=server.cert,
        tls_key=server.key,
        tls_client_ca=authority.ca,
        client_tls=authority.client(authority.sign("billing")),
    ) as broker:
        assert (await broker.client.put("/v1/topics/orders")).status_code == 201
