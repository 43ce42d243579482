"""Brokers that call each other over TLS: they trust a CA, say who they are, and go nowhere else."""

import asyncio
import contextlib
import ssl
from pathlib import Path

import orjson
import pytest

from filer.stores.memory_store import MemoryStore
from mq.base.errors import PeerUnreachable
from mq.peers.http_peers import HttpPeers
from mq.tls.contexts import TlsFiles, read_contexts
from tests.support.broker.http_broker import TIMEOUT_SECONDS, HttpBroker, http_broker
from tests.support.cluster.shared_coordinator import Membership, SharedCoordinator
from tests.support.net.authority import Authority

NDJSON = {"content-type": "application/x-ndjson"}
KEYS = [str(number) for number in range(40)]


async def publish(broker: HttpBroker, value: str) -> list[dict[str, int]]:
    """Publish each key through this broker: the owners are both."""
    lines = b"\n".join(orjson.dumps({"key": key, "value": value}) for key in KEYS)
    answer = await broker.client.post("/v1/topics/t/messages", content=lines, headers=NDJSON)
    found: list[dict[str, int]] = answer.raise_for_status().json()["positions"]
    return found


async def test_two_brokers_forward_and_read_over_mutual_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    store, membership = MemoryStore(), Membership()
    membership.session_seconds = 30.0
    async with contextlib.AsyncExitStack() as stack:
        brokers = []
        for name in ("a", "b"):
            identity = authority.sign(name)
            made = http_broker(
                store,
                coordinator=SharedCoordinator(membership),
                client_tls=authority.client(identity),
                broker=name,
                drain_timeout=2.0,
                tls_cert=identity.cert,
                tls_key=identity.key,
                tls_client_ca=authority.ca,
                tls_ca=authority.ca,
            )
            brokers.append(await stack.enter_async_context(made))
        assert all(each.url.startswith("https://") for each in membership.members.values())
        (await brokers[0].client.put("/v1/topics/t", json={"segments": 4})).raise_for_status()
        topic = (await brokers[1].client.get("/v1/topics/t")).raise_for_status().json()
        assert len({segment["brokers"][0] for segment in topic["segments"]}) == 2, "both own segments"
        for broker, value in zip(brokers, ("by a", "by b"), strict=True):
            assert sum(each["count"] for each in await publish(broker, value)) == len(KEYS)
        for broker in brokers:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                page = await broker.client.get("/v1/topics/t/messages?limit=1000&from=earliest")
                values = [message["value"] for message in page.raise_for_status().json()["messages"]]
            assert sorted(values) == ["by a"] * len(KEYS) + ["by b"] * len(KEYS)


@pytest.mark.parametrize(
    ("shown", "names", "cause"),
    [
        ("ca", ["broker-2.example.org"], "IP address mismatch, certificate is not valid for '127.0.0.1'"),
        ("other-ca", ["127.0.0.1"], "unable to get local issuer certificate"),
    ],
    ids=["another name", "another CA"],
)
async def test_an_impostor_is_not_called(
    shown: str, names: list[str], cause: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authorities = {name: Authority(tmp_path, name) for name in ("ca", "other-ca")}
    context, received = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), []
    context.load_cert_chain(*authorities[shown].sign("impostor", *names))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            received.append(await reader.read(1))

    tls = read_contexts(TlsFiles(ca=authorities["ca"].ca)).peers
    peers = HttpPeers(tls_of=lambda url: tls)
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(PeerUnreachable, match=cause):
            await peers.send("POST", f"{url}/internal/x", {"secret": "s"}, b"", timeout_seconds=TIMEOUT_SECONDS)
    await peers.close()
    assert not received
    assert f"broker_not_trusted url={url}" in caplog.text


async def test_no_redirect_is_followed() -> None:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()

    peers = HttpPeers()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
        answer = await peers.send("GET", url, {}, b"", timeout_seconds=TIMEOUT_SECONDS)
    await peers.close()
    assert (answer.status, len(asked)) == (307, 1)
