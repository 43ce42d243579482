"""The listening socket: what the system holds for clients that do not read."""

import contextlib
import socket
from collections.abc import Iterator

from mq.process.listen import UNSENT_BYTES, bind


@contextlib.contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The broker's end of a connection, and the client's."""
    with bind("127.0.0.1", 0) as listening:
        listening.listen()
        with socket.create_connection(listening.getsockname()) as client:
            listening.setblocking(True)
            accepted, _ = listening.accept()
            with accepted:
                yield accepted, client


def taken_bytes(sock: socket.socket) -> int:
    """How much of an endless answer the system takes at once."""
    sock.setblocking(False)
    taken = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            taken += sock.send(bytes(16 * 1024))
    return taken


def test_the_system_takes_little_for_a_client_that_does_not_read() -> None:
    with connected() as (accepted, client):
        first = taken_bytes(accepted)
        # What the client's system takes is the client's business; what waits here is ours.
        assert first <= UNSENT_BYTES + 2 * client.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 2**31 - 1)
        assert taken_bytes(accepted) > 4 * UNSENT_BYTES, "else this test shows nothing"


def test_a_client_that_reads_gets_everything() -> None:
    size_bytes = 32 * 1024 * 1024
    with connected() as (accepted, client):
        accepted.setblocking(False)
        sent = received = 0
        client.settimeout(20)
        while received < size_bytes:
            with contextlib.suppress(BlockingIOError):
                while sent < size_bytes:
                    sent += accepted.send(bytes(min(256 * 1024, size_bytes - sent)))
            received += len(client.recv(1024 * 1024))
        assert sent == received == size_bytes
