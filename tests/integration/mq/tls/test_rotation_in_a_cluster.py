"""Three brokers with TLS, certificates of clients, peer keys and tokens: all of it is changed under load."""

import asyncio
import contextlib
import logging
from pathlib import Path

import orjson
import pytest

from filer.stores.memory_store import MemoryStore
from mq.peer_keys.signatures import REQUEST_HEADER
from mq.security import issuer_keys
from tests.support.broker.http_broker import TIMEOUT_SECONDS, HttpBroker, http_broker
from tests.support.cluster.http_cluster import until
from tests.support.cluster.shared_coordinator import Membership, SharedCoordinator
from tests.support.issuer import issuer_running
from tests.support.net.authority import Authority, Identity

NAMES = ("a", "b", "c")
NDJSON = {"content-type": "application/x-ndjson"}
OLD, NEW = "old " + "ab" * 32, "new " + "cd" * 32
GRANTS = ("topic:*:*", "cluster:*")
LINES = b"\n".join(orjson.dumps({"key": str(number), "value": "v"}) for number in range(30))


def put_in_place(text: bytes, file: Path) -> None:
    beside = file.with_name(f".{file.name}")
    beside.write_bytes(text)
    beside.replace(file)


async def test_certificates_keys_and_tokens_change_without_a_failed_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(issuer_keys, "AGAIN_SECONDS", 0.05)
    authority, store, membership = Authority(tmp_path), MemoryStore(), Membership()
    membership.session_seconds = 30.0
    keys = tmp_path / "peer-keys"
    keys.write_text(OLD)
    published, ended = 0, asyncio.Event()

    async with issuer_running() as issuer, contextlib.AsyncExitStack() as stack:
        brokers: list[HttpBroker] = []
        identities: list[Identity] = []
        for name in NAMES:
            identities.append(authority.sign(name))
            made = http_broker(
                store,
                coordinator=SharedCoordinator(membership),
                client_tls=authority.client(identities[-1]),
                broker=name,
                drain_timeout=2.0,
                tls_cert=identities[-1].cert,
                tls_key=identities[-1].key,
                tls_client_ca=authority.ca,
                tls_ca=authority.ca,
                peer_keys=keys,
                authorizer="tokens",
                oidc_issuer=issuer.url,
                oidc_audience="queue",
            )
            brokers.append(await stack.enter_async_context(made))

        async def is_told(event: str, times: int) -> None:
            async def said() -> bool:
                return caplog.text.count(event) >= times

            await until(said)

        await is_told("issuer_keys_read", len(NAMES))
        token = [issuer.maker.token(*GRANTS)]

        def bearer() -> dict[str, str]:
            return {"authorization": f"Bearer {token[0]}"}

        (await brokers[0].client.put("/v1/topics/t", json={"segments": 6}, headers=bearer())).raise_for_status()

        async def load(broker: HttpBroker) -> None:
            nonlocal published
            while not ended.is_set():
                answer = await broker.client.post(
                    "/v1/topics/t/messages", content=LINES, headers={**NDJSON, **bearer()}
                )
                published += sum(each["count"] for each in answer.raise_for_status().json()["positions"])

        async def go_on() -> None:
            before = published
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while published < before + 6 * 30:
                    await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as tasks:
            for broker in brokers:
                tasks.create_task(load(broker))
            await go_on()
            for name, identity in zip(NAMES, identities, strict=True):
                fresh = authority.sign(name)
                put_in_place(fresh.cert.read_bytes(), identity.cert)
                put_in_place(fresh.key.read_bytes(), identity.key)
            await is_told("tls_reloaded", len(NAMES))
            await go_on()
            for step, text in enumerate((f"{OLD}\n{NEW}", f"{NEW}\n{OLD}", NEW), 1):
                put_in_place(text.encode(), keys)
                await is_told("peer_keys_read", step * len(NAMES))
                await go_on()
            both = [orjson.loads(issuer.rotate().key_set)["keys"], orjson.loads(issuer.maker.key_set)["keys"]]
            answer_before = issuer.answer
            together = orjson.dumps({"keys": [*both[0], *both[1]]})
            issuer.answer = lambda path: together if path == "/keys" else answer_before(path)
            renewed = issuer.maker.token(*GRANTS)
            for broker in brokers:
                # A key that a broker does not know yet has it ask the issuer. Until then the token is refused.
                await broker.client.get("/v1/cluster", headers={"authorization": f"Bearer {renewed}"})
            await is_told("issuer_keys_read", 2 * len(NAMES))
            token[0] = renewed
            await go_on()
            ended.set()
        page = await brokers[1].client.get("/v1/topics/t/messages?limit=10000", headers=bearer())
        assert len(page.raise_for_status().json()["messages"]) == min(published, 10_000)
        refused = await brokers[0].client.get("/internal/v1/presence", headers={REQUEST_HEADER: "", **bearer()})
        assert refused.status_code == 403, "neither a certificate nor a token makes a broker"
