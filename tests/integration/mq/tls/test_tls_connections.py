"""Connections with TLS: who may connect, what the others are told, and what a handshake may hold."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from braidmq import AsyncClient, Client, InvalidArgument, NoConnection
from braidmq.transport.retry import Retry
from filer.stores.memory_store import MemoryStore
from mq.http.fast_path.fast_publisher import FastPublisher
from mq.tls.peer_certificate import PeerCertificate
from tests.support.broker.http_broker import TIMEOUT_SECONDS, HttpBroker, http_broker
from tests.support.net.authority import Authority, Identity

SOON = {"head_timeout": 0.4, "idle_timeout": 0.4}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextlib.asynccontextmanager
async def tls_broker(
    authority: Authority, *, shows: Identity | None = None, store: MemoryStore | None = None, **settings: Any
) -> AsyncIterator[HttpBroker]:
    """A broker with a certificate of that CA, and a client that trusts it."""
    identity = authority.sign("broker")
    async with http_broker(
        store or MemoryStore(),
        tls_cert=identity.cert,
        tls_key=identity.key,
        client_tls=authority.client(shows),
        **settings,
    ) as broker:
        yield broker


@contextlib.asynccontextmanager
async def plain_socket(broker: HttpBroker) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection without TLS."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def client_hello() -> bytes:
    """How a connection with TLS begins."""
    outgoing = ssl.MemoryBIO()
    begins = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        begins.do_handshake()
    return outgoing.read()


def counted(broker: HttpBroker, name: str, **labels: str) -> float:
    return broker.broker.metrics.registry.get_sample_value(name, labels) or 0


async def test_an_upgrade_to_http2_is_ignored_and_the_body_is_read(authority: Authority) -> None:
    upgrade = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAMAAABkAAQAAP__"}
    async with tls_broker(authority) as broker:
        await broker.client.put("/v1/topics/t", json={})
        for size_bytes in (5, 200_000):
            answer = await broker.client.post("/v1/topics/t/messages", content=b"x" * size_bytes, headers=upgrade)
            assert answer.status_code == 200, answer.text
        page = (await broker.client.get("/v1/topics/t/messages")).json()
        assert [len(message["value"]) for message in page["messages"]] == [5, 200_000]


async def test_publishes_and_reads(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[bool] = []
    begin = FastPublisher.begin

    def counting(self: FastPublisher, *given: Any) -> bool:
        begun.append(begin(self, *given))
        return begun[-1]

    monkeypatch.setattr(FastPublisher, "begin", counting)
    async with tls_broker(authority) as broker:
        assert broker.url.startswith("https://")
        await broker.client.put("/v1/topics/t", json={})
        for value in ("1", "2", "3"):
            answer = await broker.client.post("/v1/topics/t/messages?key=a", content=value)
            assert answer.status_code == 200
        assert begun == [True] * 3, "publishes of one message go past the app with TLS too"
        large = bytes(range(256)) * 40_000
        (await broker.client.post("/v1/topics/t/messages?key=b", content=large)).raise_for_status()
        async with AsyncClient(broker.url, ca=authority.ca, upload_threshold_bytes=1000) as client:
            await client.publish("t", b"by the client", key="c")
            # The broker's own address, since this store has none: that is https too.
            (await client.upload("t", bytes(5000)))
            found = (await client.read_table("t"))["value"].to_pylist()
        assert found[:3] == [b"1", b"2", b"3"] and set(found[3:]) == {large, b"by the client"}


async def test_who_is_not_trusted_or_speaks_no_tls_is_told(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    other = Authority(tmp_path / "others", "other-ca")
    async with tls_broker(authority) as broker:
        address = f"127.0.0.1:{broker.port}"
        async with httpx.AsyncClient(trust_env=False) as http:
            answer = await http.post(f"http://{address}/v1/topics/t/messages", content=bytes(100_000))
        assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
        assert answer.json()["detail"].startswith("this port speaks TLS, and the request came without")
        async with AsyncClient(f"http://{address}") as client:
            with pytest.raises(Exception, match="this port speaks TLS"):
                await client.topic("t")
        async with AsyncClient(broker.url, ca=other.ca) as client:
            with pytest.raises(NoConnection, match=r"its certificate is not trusted \(unable to get local issuer"):
                await client.topic("t")
        async with AsyncClient(f"https://127.0.0.2:{broker.port}", ca=authority.ca) as client:
            with pytest.raises(NoConnection, match=r"(not for this address|Connect)"):
                await client.topic("t")
        # What is neither gets nothing.
        async with plain_socket(broker) as (reader, writer):
            writer.write(b"\x00\x01\x02")
            assert await asyncio.wait_for(reader.read(), TIMEOUT_SECONDS) == b""
        assert counted(broker, "braidmq_connections_refused_total", reason="tls") >= 3
        assert counted(broker, "braidmq_connections") <= 1


async def test_clients_have_to_show_a_certificate(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "others").mkdir()
    stranger = Authority(tmp_path / "others", "other-ca").sign("stranger")
    billing = authority.sign("billing", "billing.example.org", "spiffe://example.org/billing")
    seen: list[PeerCertificate | None] = []
    monkeypatch.setattr(
        "mq.process.connections.protocol.offer_certificate", lambda scope, certificate: seen.append(certificate)
    )
    async with tls_broker(authority, shows=billing, tls_client_ca=authority.ca) as broker:
        await broker.client.put("/v1/topics/t", json={})
        assert seen == [
            PeerCertificate(
                "CN=billing,O=Braid\\, tests",
                "billing",
                ("DNS:billing.example.org", "URI:spiffe://example.org/billing"),
            )
        ]
        never = Retry(give_up_after_seconds=0)
        async with AsyncClient(broker.url, ca=authority.ca, client_cert=billing, retry=never) as client:
            await client.publish("t", b"x")
        for shown, told in ((None, "it demands a certificate of the client"), (stranger, "it does not trust the CA")):
            async with AsyncClient(broker.url, ca=authority.ca, client_cert=shown, retry=never) as client:
                with pytest.raises(NoConnection, match=told):
                    await client.topic("t")
                # Nothing can have been stored, so that nobody asks again for two minutes.
                with pytest.raises(NoConnection, match=told):
                    await asyncio.wait_for(client.publish("t", b"x"), TIMEOUT_SECONDS)
        page = (await broker.client.get("/v1/topics/t/messages")).json()
        assert len(page["messages"]) == 1


async def test_handshakes_that_do_not_end_are_ended_and_count(authority: Authority) -> None:
    async with tls_broker(authority, **SOON) as broker, contextlib.AsyncExitStack() as stack:
        silent, half, hello = [await stack.enter_async_context(plain_socket(broker)) for _ in range(3)]
        half[1].write(client_hello()[:20])
        hello[1].write(client_hello())
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert (await hello[0].readexactly(1))[0] == 22, "the broker goes on with the handshake"
            for reader, _ in (silent, half, hello):
                with contextlib.suppress(ConnectionResetError):
                    await reader.read()
            while counted(broker, "braidmq_connections"):
                await asyncio.sleep(0.005)
        assert counted(broker, "braidmq_connections_refused_total", reason="head-late") == 2


async def test_a_broker_that_is_full_ends_what_has_only_connected(authority: Authority) -> None:
    async with tls_broker(authority, connections=8) as broker, contextlib.AsyncExitStack() as stack:
        waiting = [await stack.enter_async_context(plain_socket(broker)) for _ in range(8)]
        waiting[0][1].write(client_hello())
        assert (await broker.client.get("/livez")).status_code == 200
        async with asyncio.timeout(TIMEOUT_SECONDS):
            done, _ = await asyncio.wait(
                [asyncio.create_task(reader.read()) for reader, _ in waiting], return_when=asyncio.FIRST_COMPLETED
            )
        assert done and counted(broker, "braidmq_connections_refused_total", reason="gave-way") >= 1


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({"ca": "missing"}, "the file of the certificates to trust cannot be read: 'missing': No such file"),
        ({"ca": "text"}, "the file 'text' has no certificates to trust (PEM)"),
        ({"client_cert": "missing"}, "the file of the client's certificate cannot be read: 'missing': No such file"),
        ({"client_cert": "good"}, "the client's certificate 'good' is without its key"),
        ({"client_cert": ("good", "text")}, "the client's certificate 'good' cannot be used: they have to be PEM"),
        ({"client_cert": ("good", "other")}, "cannot be used: the key in 'other' does not belong to it"),
        ({"client_cert": ("secret", "secret key")}, "the client's key is encrypted: give it without a passphrase"),
    ],
    ids=str,
)
def test_files_that_a_client_cannot_use_are_named(
    named: dict[str, Any], told: str, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    good, other, secret = authority.sign("a"), authority.sign("b"), authority.sign("c", passphrase=b"secret")
    Path("text").write_text("no")
    for path, name in ((good.cert, "good"), (other.key, "other"), (secret.cert, "secret"), (secret.key, "secret key")):
        path.rename(name)
    with pytest.raises(InvalidArgument) as caught:
        Client("https://127.0.0.1:9", **named)
    assert told in str(caught.value)


def test_variables_say_what_a_client_trusts(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAIDMQ_CLIENT_KEY", str(authority.sign("a").key))
    with pytest.raises(InvalidArgument, match=r"BRAIDMQ_CLIENT_KEY\) is of no use without its certificate"):
        Client("https://127.0.0.1:9")
    monkeypatch.setenv("BRAIDMQ_CA", "missing")
    with pytest.raises(InvalidArgument, match="'missing': No such file"):
        Client("https://127.0.0.1:9", client_cert=authority.sign("b"))


# -- certificates that expire ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
async def test_a_certificate_that_has_expired_is_of_no_use_to_open_connections_and_resumed_sessions(
    authority: Authority, version: ssl.TLSVersion
) -> None:
    shows = authority.sign("short", until=timedelta(seconds=2.5))
    client = authority.client(shows)
    client.maximum_version = version
    settings = {"authorizer": "any", "tls_client_ca": authority.ca}

    async with tls_broker(authority, shows=shows, **settings) as broker, AsyncExitStack() as stack:
        ask = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
        first = await asyncio.to_thread(_connected, client, broker.port, None)
        stack.callback(first.close)
        await asyncio.to_thread(first.sendall, ask)
        answer = await asyncio.to_thread(_all_of, first)  # it is closed once the certificate has expired
        assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b'{"status":"ok"}')
        session = first.session
        assert session is None or not session.has_ticket
        with pytest.raises((ssl.SSLError, ConnectionError)):
            resumed = await asyncio.to_thread(_connected, client, broker.port, session)
            stack.callback(resumed.close)
            await asyncio.to_thread(resumed.sendall, ask)
            if not await asyncio.to_thread(_all_of, resumed):
                raise ConnectionResetError


def _connected(client: ssl.SSLContext, port: int, session: ssl.SSLSession | None) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)
    try:
        return client.wrap_socket(plain, server_hostname="localhost", session=session)
    except BaseException:
        plain.close()
        raise


def _all_of(connection: ssl.SSLSocket) -> bytes:
    return b"".join(iter(lambda: connection.recv(4096), b""))
