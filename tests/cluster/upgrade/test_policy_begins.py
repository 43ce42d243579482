"""A policy begins while a cluster is upgraded: the version before knows of none, and of no tokens."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from filer import keys
from filer.topic.record_check import with_check
from tests.support.cluster.access import Access, NewestToken
from tests.support.cluster.upgrading_cluster import UpgradingCluster
from tests.support.store.shared_store import SharedDirectory
from tests.support.token_maker import TokenMaker

pytestmark = pytest.mark.timeout(300)

SESSION_TIMEOUT_SECONDS = 2.5
LATE = "2126-01-01T00:00:00Z"
POLICY = "/v1/cluster/policy"
KEYS = 20


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


class Asker:
    """Asks brokers of the cluster by their names."""

    def __init__(self, cluster: UpgradingCluster) -> None:
        self._cluster = cluster

    async def __call__(
        self, name: str, method: str, path: str, token: str | None = None, **more: Any
    ) -> httpx.Response:
        headers = {**(bearer(token) if token else {}), **more.pop("headers", {})}
        url = self._cluster.brokers[name].process.url
        async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
            return await client.request(method, path, headers=headers, **more)

    async def put_policy(self, name: str, token: str, **sections: Any) -> httpx.Response:
        before = await self(name, "GET", POLICY, token)
        tag = before.raise_for_status().headers["etag"]
        return await self(name, "PUT", POLICY, token, json=sections, headers={"if-match": tag})


async def publish(ask: Asker, name: str, token: str | None, value: str) -> None:
    """To all segments of the topic, whoever owns them. What may not be stored is sent again, and stored once."""
    messages = [{"key": f"key-{number}", "value": value} for number in range(KEYS)]
    path = f"/v1/topics/orders/messages?producer={value}&sequence=0"
    async with asyncio.timeout(60):
        while (answer := await ask(name, "POST", path, token, json={"messages": messages})).status_code != 200:
            assert answer.json()["retryable"], answer.text
            await asyncio.sleep(0.2)


async def test_the_version_before_knows_no_policy_and_leaves_it_alone(tmp_path: Path) -> None:
    """It serves whom it served, and so do its segments. Where this version serves, the policy counts meanwhile.

    What a version after this one has written in it counts as well, and is not lost, whichever broker comes next.
    """
    maker = TokenMaker(now_seconds=time.time())
    (tmp_path / "keys.json").write_bytes(maker.key_set)
    admin = maker.token("topic:*:*", "topic:__audit:read", "cluster:*", sub="ada", jti="admin")
    bob, eve = (maker.token("topic:*:*", sub=name, jti=f"of-{name}") for name in ("bob", "eve"))
    (tmp_path / "token").write_text(admin)
    asks_tokens = ("--authorizer", "tokens", "--token-keys", str(tmp_path / "keys.json"))
    store = SharedDirectory(tmp_path / "store")
    file = tmp_path / "store" / keys.POLICY
    with UpgradingCluster(tmp_path, store, brokers=2, session_timeout_seconds=SESSION_TIMEOUT_SECONDS) as cluster:
        cluster.access = Access(auth=NewestToken(tmp_path / "token"))
        ask = Asker(cluster)
        await cluster.wait_until_settled()
        await cluster.create_topic("orders", segments=4)
        await cluster.wait_until_settled("orders")
        new, old = list(cluster.brokers)
        await cluster.upgrade(new, *asks_tokens)
        await cluster.wait_until_settled("orders")
        (await ask.put_policy(new, admin, revoked_tokens=[{"id": "of-bob", "until": LATE}])).raise_for_status()
        written = file.read_bytes()
        assert (await ask(new, "GET", "/v1/topics")).status_code == 401
        assert (await ask(new, "GET", "/v1/topics", bob)).status_code == 401
        await publish(ask, new, admin, "by-the-new-one")
        # The version before asks nobody who he is, as before, and as docs/security.md says, also of the audit trail.
        for token in (None, bob):
            assert (await ask(old, "GET", "/v1/topics/orders/messages", token)).status_code == 200
            assert (await ask(old, "GET", "/v1/topics/__audit/messages", token)).status_code == 200
            assert (await ask(old, "PUT", POLICY, token, json={})).status_code == 404
        await publish(ask, old, None, "by-the-old-one")
        # It starts beside a policy, leads, and takes segments over, and leaves the policy alone.
        await cluster.restart(old)
        await cluster.kill(new)
        await cluster.wait_until_settled("orders")
        await publish(ask, old, None, "by-the-old-one-alone")
        await cluster.start(new)
        await cluster.wait_until_settled("orders")
        assert file.read_bytes() == written
        assert (await ask(new, "GET", "/v1/topics", bob)).status_code == 401
        # A version after this one revokes another token, and says something besides that this one does not know.
        newer = orjson.loads(written)
        del newer["check"]
        newer |= {"version": newer["version"] + 1, "dreams": [{"principal": "shop"}]}
        newer["revoked_tokens"].append({"id": "of-eve", "until": LATE, "why": "lost"})
        written = with_check(orjson.dumps(newer))
        put_in_place(file, written)
        async with asyncio.timeout(10):
            while (await ask(new, "GET", "/v1/topics", eve)).status_code != 401:
                await asyncio.sleep(0.1)
        refused = await ask.put_policy(new, admin)
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:braidmq:policy-newer")
        await cluster.upgrade(old, *asks_tokens)
        await cluster.wait_until_settled("orders", "__audit")
        assert file.read_bytes() == written
        for name in (new, old):
            for token in (None, bob, eve):
                assert (await ask(name, "GET", "/v1/topics", token)).status_code == 401
            answer = await ask(name, "GET", "/v1/topics/orders/messages?limit=1000", admin)
            found = Counter(message["value"] for message in answer.raise_for_status().json()["messages"])
            assert found == dict.fromkeys(("by-the-new-one", "by-the-old-one", "by-the-old-one-alone"), KEYS)
            assert "Traceback" not in cluster.brokers[name].process.log


def put_in_place(file: Path, data: bytes) -> None:
    """In one step, as a store does."""
    beside = file.with_name("beside")
    beside.write_bytes(data)
    beside.replace(file)
