"""Each toxic does what it says, to connections that stand and to new ones."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.net.tcp_proxy import HOST, TcpProxy, Toxics

SECONDS = 20.0
SILENCE_SECONDS = 0.2


class EchoServer:
    """Sends back what it gets, and keeps all of it."""

    def __init__(self) -> None:
        self._listening = socket.create_server((HOST, 0))
        self.port: int = self._listening.getsockname()[1]
        self.received = bytearray()
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._connections.append(connection)
                self._threads.append(threading.Thread(target=self._echo, args=(connection,)))
                self._threads[-1].start()

    def _echo(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65536):
                self.received += data
                connection.sendall(data)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(SECONDS)


@pytest.fixture
def server() -> Iterator[EchoServer]:
    server = EchoServer()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def proxy(server: EchoServer) -> Iterator[TcpProxy]:
    with TcpProxy(HOST, server.port) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: TcpProxy) -> Iterator[socket.socket]:
    with connect(proxy) as client:
        yield client


def connect(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection((HOST, proxy.port), SECONDS)


def echoed(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    return receive(client, len(data))


def receive(client: socket.socket, size_bytes: int) -> bytes:
    received = b""
    while len(received) < size_bytes and (part := client.recv(65536)):
        received += part
    return received


def is_silent(client: socket.socket) -> bool:
    client.settimeout(SILENCE_SECONDS)
    try:
        return client.recv(1) is None
    except TimeoutError:
        return True
    finally:
        client.settimeout(SECONDS)


def becomes(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.005)


def test_a_good_line(proxy: TcpProxy, client: socket.socket) -> None:
    data = bytes(range(256)) * 4000
    sender = threading.Thread(target=client.sendall, args=(data,))
    sender.start()
    assert receive(client, len(data)) == data
    sender.join()
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b"", "the end was not passed on"
    becomes(lambda: proxy.open_connections == 0)


@pytest.mark.parametrize("direction", ["requests", "answers", "both"])
def test_latency(proxy: TcpProxy, client: socket.socket, direction: str) -> None:
    assert echoed(client, b"before") == b"before"
    proxy.set(Toxics(latency_seconds=0.2), direction=direction)  # type: ignore[arg-type]
    began = time.monotonic()
    assert echoed(client, b"late") == b"late"
    assert time.monotonic() - began >= (0.4 if direction == "both" else 0.2)


def test_latency_delays_each_byte_but_does_not_hold_up_those_behind(proxy: TcpProxy, client: socket.socket) -> None:
    proxy.set(Toxics(latency_seconds=0.3))
    began = time.monotonic()
    for _ in range(10):
        client.sendall(b"x" * 100)
        time.sleep(0.01)
    assert receive(client, 1000) == b"x" * 1000
    assert 0.6 <= time.monotonic() - began < 3.0, "the delays add up"


def test_bandwidth(proxy: TcpProxy, client: socket.socket) -> None:
    proxy.set(Toxics(bytes_per_second=200_000), direction="requests")
    data = b"x" * 100_000
    began = time.monotonic()
    assert echoed(client, data) == data
    assert time.monotonic() - began >= 0.5


def test_cut_and_heal(proxy: TcpProxy, client: socket.socket) -> None:
    assert echoed(client, b"before") == b"before"
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    assert proxy.open_connections == 0
    proxy.heal()
    with connect(proxy) as again:
        assert echoed(again, b"after") == b"after"


def test_black_hole_and_heal(proxy: TcpProxy, server: EchoServer, client: socket.socket) -> None:
    assert echoed(client, b"before") == b"before"
    proxy.black_hole()
    client.sendall(b"held")
    assert is_silent(client)
    with connect(proxy) as newcomer:
        newcomer.sendall(b"me too")
        assert is_silent(newcomer)
        assert server.received == b"before"
        proxy.heal()
        assert receive(client, 4) == b"held"
        assert receive(newcomer, 6) == b"me too"


def test_dropped_answers(proxy: TcpProxy, server: EchoServer, client: socket.socket) -> None:
    proxy.drop_answers()
    client.sendall(b"a request")
    becomes(lambda: server.received == b"a request")
    assert is_silent(client)
    proxy.heal()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with connect(proxy) as again:
        assert echoed(again, b"after") == b"after"


def test_swallowed_requests(proxy: TcpProxy, server: EchoServer, client: socket.socket) -> None:
    proxy.set(Toxics(swallowed=True), direction="requests")
    client.sendall(b"never there")
    assert is_silent(client)
    assert server.received == b""


@pytest.mark.parametrize("direction", ["requests", "answers"])
def test_reset_after_some_bytes(proxy: TcpProxy, server: EchoServer, client: socket.socket, direction: str) -> None:
    assert echoed(client, b"before") == b"before"
    proxy.set(Toxics(reset_after_bytes=5), direction=direction)  # type: ignore[arg-type]
    client.sendall(b"0123456789")
    with pytest.raises(ConnectionResetError):
        assert len(receive(client, 10)) <= 5
        raise ConnectionResetError
    passed = b"before01234" if direction == "requests" else b"before0123456789"
    becomes(lambda: server.received == passed or proxy.open_connections == 0)
    assert passed.startswith(server.received)
    with connect(proxy) as again:
        assert echoed(again, b"1234") == b"1234"


def test_a_client_that_goes_away(proxy: TcpProxy, server: EchoServer) -> None:
    with connect(proxy) as client:
        assert echoed(client, b"before") == b"before"
    becomes(lambda: proxy.open_connections == 0)
    assert proxy.accepted == 1


def test_a_target_that_is_not_there() -> None:
    with contextlib.ExitStack() as stack:
        unused = stack.enter_context(socket.socket())
        unused.bind((HOST, 0))
        proxy = stack.enter_context(TcpProxy(HOST, unused.getsockname()[1]))
        with pytest.raises(ConnectionResetError):
            stack.enter_context(connect(proxy)).recv(1)


async def test_it_works_while_the_event_loop_is_busy(server: EchoServer) -> None:
    """Everything here blocks the loop that this test runs on."""
    with TcpProxy(HOST, server.port) as proxy, connect(proxy) as client:
        assert echoed(client, b"x") == b"x"


def test_leaving_it_ends_connections_and_thread(server: EchoServer) -> None:
    with TcpProxy(HOST, server.port) as proxy:
        proxy.black_hole()
        client = connect(proxy)
        client.sendall(b"held")
    with client, pytest.raises(ConnectionResetError):
        client.recv(1)
    assert not proxy._thread.is_alive()
