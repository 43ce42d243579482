import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pyarrow as pa
import pytest
import uvloop

from braidmq import AsyncClient, Client, ConnectionBroken, NoConnection, NotABroker, OutcomeUnknown, Retry
from braidmq.testing import InMemoryBroker
from tests.support.process.processes import free_port


@asynccontextmanager
async def server_saying(answer: bytes | None) -> AsyncIterator[str]:
    """The address of a server that answers every request with `answer` and closes, or with None never answers."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        if answer is not None:
            writer.write(answer)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.close()
            await writer.wait_closed()
        await server.wait_closed()


def test_large_values_and_bulk_loads_reach_a_broker_that_a_proxy_names_otherwise() -> None:
    """It answers with addresses that are made of the name by which it was asked."""
    with (
        InMemoryBroker(allowed_hosts="inside.invalid") as broker,
        broker.client(headers={"host": "inside.invalid"}, upload_threshold_bytes=10) as client,
    ):
        client.create_topic("t")
        client.publish("t", b"x" * 100)
        (message,) = client.browse("t")
        with client.open(message) as payload:
            assert payload.read() == b"x" * 100
        assert client.load("t", pa.table({"value": [b"a", b"b"]}), load="l", value="value").messages == 2


def test_a_wrong_port_fails_fast_naming_the_address_and_the_cause() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    began = time.monotonic()
    with Client(url) as client, pytest.raises(NoConnection) as caught:
        client.cluster()
    assert time.monotonic() - began < 2
    assert str(caught.value) == f"no connection to {url}: Connection refused; is a broker listening there?"


async def test_an_unknown_host_is_named() -> None:
    async with AsyncClient("http://no-such-host.invalid:1") as client:
        with pytest.raises(NoConnection, match=r"no-such-host\.invalid:1: .*known|resolution"):
            await client.cluster()


async def test_silence_ends_with_the_timeout() -> None:
    async with (
        server_saying(None) as url,
        AsyncClient(url, timeout_seconds=0.05, delivery_timeout_seconds=0.2) as client,
    ):
        with pytest.raises(OutcomeUnknown, match=r"no acknowledgement within 0\.2 seconds.*no answer in time"):
            await client.publish("t", "v")


async def test_a_server_that_hangs_up_leaves_the_outcome_of_a_publish_unknown() -> None:
    async with server_saying(b"") as url, AsyncClient(url, delivery_timeout_seconds=0.2) as client:
        with pytest.raises(OutcomeUnknown, match="may or may not be stored"):
            await client.publish("t", "v")


async def test_another_protocol_is_no_broker_and_no_hang() -> None:
    async with (
        server_saying(b"SSH-2.0-OpenSSH_9.6\r\n") as url,
        AsyncClient(url, delivery_timeout_seconds=0.2) as client,
    ):
        with pytest.raises(OutcomeUnknown):
            await client.publish("t", "v")


async def test_another_web_server_is_recognised() -> None:
    answer = b"HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\n\r\nsorry"
    async with server_saying(answer) as url, AsyncClient(url) as client:
        with pytest.raises(NotABroker, match=f"{url} answered with 404 Not Found"):
            await client.cluster()


async def test_an_answer_cut_short_is_broken() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{}"
    async with server_saying(answer) as url, AsyncClient(url, retry=Retry(give_up_after_seconds=0)) as client:
        with pytest.raises(ConnectionBroken):
            await client.cluster()


def test_connections_that_are_reset_at_once_are_told_as_such_on_uvloop_too() -> None:
    """uvloop has forgotten their socket before anyio asks for it: it was an `AttributeError`, in one of six tries."""

    async def failures() -> set[str]:
        told: set[str] = set()
        with socket.create_server(("127.0.0.1", 0)) as server:
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
            resetting = asyncio.create_task(_reset_all(server))
            async with AsyncClient(url, retry=Retry(give_up_after_seconds=0)) as client:
                while not any("closed at once" in each for each in told):
                    with pytest.raises((NoConnection, ConnectionBroken)) as caught:
                        await client.cluster()
                    told.add(str(caught.value))
            resetting.cancel()
            await asyncio.wait([resetting])
        return told

    assert uvloop.run(asyncio.wait_for(failures(), 30))


async def _reset_all(server: socket.socket) -> None:
    server.setblocking(False)
    while True:
        connection, _ = await asyncio.get_running_loop().sock_accept(server)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


@pytest.mark.parametrize("kind", ["worker", "consumer", "subscription"])
async def test_whoever_consumes_waits_for_the_first_broker_and_says_so_once(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    async with AsyncClient(url, retry=Retry(first_delay_seconds=0.01, longest_delay_seconds=0.01)) as client:
        taking = {
            "worker": client.worker("t", group="g").take,
            "consumer": client.consumer("t", group="s").take,
            "subscription": client.subscribe("t", from_="earliest").__anext__,
        }[kind]
        waiting = asyncio.ensure_future(taking())
        while client.waiting is None or client.waiting.seconds < 0.2:
            assert not waiting.done()
            await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait([waiting])
    told = "no broker has answered yet, and it goes on trying: no connection to " + url
    assert [each.getMessage().startswith(told) for each in caplog.records] == [True]
