"""How fast one WebSocket publishes 200 B messages, and how soon they are acknowledged.

    .venv/bin/python -m bench.websocket --seconds 5

One socket of one `mq serve` on a directory in memory. The client sends whatever the window allows, and counts answers;
its frames are made before, so that the broker is measured and not the client.
"""

import argparse
import base64
import os
import socket
import statistics
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import orjson

from bench.harness.process_use import processor_seconds
from bench.harness.server_process import BenchFailed, measured_broker
from braidmq import Client

TOPIC, MESSAGE_BYTES, PREPARED = "socket", 200, 50_000
RECEIVED_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Case:
    """How many messages a frame has, how many frames may be without an answer, and what is to be reached."""

    name: str
    messages: int
    window: int
    least_per_second: int | None = None
    most_ack_ms: float | None = None


CASES = (
    Case("one message a frame, 2,000 in flight", 1, 2_000, least_per_second=30_000),
    Case("100 messages a frame, 50 in flight", 100, 50, least_per_second=30_000),
    Case("one message at a time", 1, 1, most_ack_ms=5.0),
)


@dataclass(slots=True)
class Measured:
    """What was answered, and how long it took."""

    frames: int = 0
    ack_ms: list[float] = field(default_factory=list)
    broker_seconds: float = 0.0
    """Of processor time: it says more than a rate where the machine does other things as well."""


def masked(payload: bytes) -> bytes:
    """A text frame of a client (RFC 6455 §5.2)."""
    key = os.urandom(4)
    size = len(payload)
    head = struct.pack("!BB", 0x81, 0x80 | size) if size < 126 else struct.pack("!BBH", 0x81, 0x80 | 126, size)
    repeated = int.from_bytes((key * (size // 4 + 1))[:size])
    return head + key + (int.from_bytes(payload) ^ repeated).to_bytes(size)


def frames(case: Case) -> Iterator[bytes]:
    """Frames with publishes, over and over."""
    made = []
    for id_ in range(PREPARED // case.messages):
        value = base64.b64encode(os.urandom(MESSAGE_BYTES))[:MESSAGE_BYTES].decode()
        messages = [{"key": f"{(id_ + row) % 1000}", "value": value} for row in range(case.messages)]
        made.append(masked(orjson.dumps({"id": id_, "publish": messages[0] if case.messages == 1 else messages})))
    while True:
        yield from made


def opened(url: str) -> socket.socket:
    """A socket that has been opened, and has said hello."""
    address = urlsplit(url)
    connection = socket.create_connection((address.hostname, address.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(
        f"GET /v1/topics/{TOPIC}/socket HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        "Sec-WebSocket-Protocol: braidmq.v1\r\n\r\n".encode()
    )
    got = b""
    while b'"hello"' not in got:
        got += connection.recv(RECEIVED_BYTES) or b'"hello"'
    if not got.startswith(b"HTTP/1.1 101"):
        raise BenchFailed(got.decode(errors="replace"))
    return connection


class Window:
    """Frames without an answer: when each was sent."""

    def __init__(self, most: int) -> None:
        self._room = threading.Semaphore(most)
        self._sent: deque[float] = deque()

    def take(self, most: int) -> int:
        """Wait for room, and take up to so much of it."""
        self._room.acquire()
        taken = 1
        while taken < most and self._room.acquire(blocking=False):
            taken += 1
        self._sent.extend([time.monotonic()] * taken)
        return taken

    def answered(self, count: int) -> list[float]:
        """So many more are answered. Returns when they were sent: answers come in order here."""
        sent = [self._sent.popleft() for _ in range(count)]
        self._room.release(count)
        return sent


def _receive(connection: socket.socket, window: Window, measured: Measured) -> None:
    rest = b""
    while got := connection.recv(RECEIVED_BYTES):
        if b'"problem"' in got:
            raise BenchFailed(got[:500].decode(errors="replace"))
        got = rest + got
        count = got.count(b'"ok"')
        # What may be a part of the word is looked at again.
        rest = got[-3:] if not got.endswith(b'"ok"') else b""
        if count:
            now = time.monotonic()
            measured.ack_ms += [(now - sent) * 1000 for sent in window.answered(count)]
            measured.frames += count


def measure(case: Case, seconds: float) -> tuple[Measured, float]:
    """Run a case on a new broker; returns what was answered, and in how many seconds."""
    with measured_broker() as (url, pid):
        with Client(url) as client:
            client.create_topic(TOPIC)
        sys.stderr.write(f"{case.name}: broker {pid}\n")
        window, measured, made = Window(case.window), Measured(), frames(case)
        next(made)
        connection = opened(url)
        receiver = threading.Thread(target=_receive, args=(connection, window, measured), daemon=True)
        receiver.start()
        began, spent_seconds = time.monotonic(), processor_seconds(pid)
        while time.monotonic() < began + seconds and receiver.is_alive():
            connection.sendall(b"".join(next(made) for _ in range(window.take(64))))
        took = time.monotonic() - began
        measured.broker_seconds = processor_seconds(pid) - spent_seconds
        connection.shutdown(socket.SHUT_RDWR)
        receiver.join()
        if not measured.frames:
            raise BenchFailed("no publish was answered")
        return measured, took


def main() -> None:
    """Run all cases, and say which targets were reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    seconds = parser.parse_args().seconds
    missed = False
    for case in CASES:
        measured, took = measure(case, seconds)
        per_second = measured.frames * case.messages / took
        p50, p99 = statistics.median(measured.ack_ms), statistics.quantiles(measured.ack_ms, n=100)[98]
        good = per_second >= (case.least_per_second or 0) and p50 <= (case.most_ack_ms or p50)
        missed = missed or not good
        print(
            f"{case.name:38} {per_second:9,.0f} messages/s   ack p50 {p50:6.2f} ms   p99 {p99:6.2f} ms"
            f"   {measured.broker_seconds * 1e6 / (measured.frames * case.messages):5.1f} us of the broker"
            f"   {'reached' if good else 'MISSED'}"
        )
    sys.exit(missed)


if __name__ == "__main__":
    main()
