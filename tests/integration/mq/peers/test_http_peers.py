"""What the sockets of another broker show: a refusal is told apart from everything else that keeps a request away."""

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Iterator

import pytest

from mq.base.errors import PeerRefused, PeerSilent, PeerUnreachable
from mq.peers import http_peers
from mq.peers.http_peers import HttpPeers
from mq.tls.newest_context import NewestContext

SECONDS = 20.0


@pytest.fixture
async def peers() -> AsyncIterator[HttpPeers]:
    made = HttpPeers()
    yield made
    await made.close()


@contextlib.contextmanager
def bound_port() -> Iterator[int]:
    """A port that is taken, and on which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


async def error_of(peers: HttpPeers, url: str, seconds: float = SECONDS) -> Exception:
    with pytest.raises((PeerUnreachable, PeerSilent)) as caught:
        await peers.send("GET", url, {}, b"", timeout_seconds=seconds)
    return caught.value


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["one address", "a name, maybe of several"])
async def test_nobody_listens(peers: HttpPeers, host: str) -> None:
    with bound_port() as port:
        assert type(await error_of(peers, f"http://{host}:{port}")) is PeerRefused


async def test_an_error_is_told_in_words_whatever_the_tls() -> None:
    """The log had `<mq.tls.newest_context.NewestContext object at 0x7f…>` in each line."""
    context = NewestContext.of(ssl.create_default_context(), server_side=False)
    peers = HttpPeers(tls_of=lambda base_url: context)
    with bound_port() as port:
        told = str(await error_of(peers, f"https://127.0.0.1:{port}"))
    await peers.close()
    assert told.startswith(f"https://127.0.0.1:{port}: ") and "Connect call failed" in told
    assert "object at" not in told and "ssl:" not in told


async def test_a_name_that_nobody_knows(peers: HttpPeers) -> None:
    assert type(await error_of(peers, "http://no-such-host.invalid")) is PeerUnreachable


@pytest.mark.parametrize("number", [errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT])
async def test_a_network_that_does_not_get_there(
    peers: HttpPeers, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise OSError(number, "the network says so")

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", fails)
    assert type(await error_of(peers, "http://127.0.0.1:9")) is PeerUnreachable


async def test_a_process_that_stands_still(peers: HttpPeers) -> None:
    """Its kernel takes connections as long as the queue of its listener has room."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        assert type(await error_of(peers, url, seconds=0.2)) is PeerSilent


async def test_a_process_whose_queue_is_full(peers: HttpPeers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_peers, "CONNECT_SECONDS", 0.2)
    with socket.socket() as listening, contextlib.ExitStack() as stack:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(2):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        assert type(await error_of(peers, url)) in (PeerUnreachable, PeerSilent)


async def test_a_connection_that_is_reset(peers: HttpPeers) -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with await asyncio.start_server(reset, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert type(await error_of(peers, url)) is PeerSilent
