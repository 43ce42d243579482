"""Bodies that go past the parser: the same requests and answers as with it, however the bytes are cut."""

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
import uvicorn
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from filer.clock import ManualClock, settle
from mq.base.settings import BrokerSettings
from mq.bodies import arriving_body as bodies
from mq.bodies.arriving_body import PIECE_BYTES, arriving_body
from mq.metrics.metrics import Metrics
from mq.process.connections import protocol as protocols
from mq.process.connections import request_head
from mq.process.connections.limits import connection_limits
from mq.process.connections.protocol import LimitedProtocol
from mq.process.connections.request_head import plain_body_bytes
from mq.process.connections.socket_reader import SocketReader
from mq.process.connections.watch import ConnectionWatch
from tests.support.thoroughness import few_or_many
from tests.unit.mq.process.connections.test_protocol import Transport

KIB = 1024
NEVER = 2**62


@dataclass
class Seen:
    """What the endpoints got: method, path, body (None if the client was gone before its end).

    They begin to read once `may_read` is set, as it is.
    """

    requests: list[tuple[str, str, bytes | None]] = field(default_factory=list)
    direct: int = 0
    may_read: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_read.set()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """Reads as its path says: `/keep`, `/take`, or `/refuse`, which answers without the body."""
        await self.may_read.wait()
        arriving = arriving_body(scope)
        self.direct += arriving is not None
        if scope["path"] != "/refuse":
            body = await _read(arriving if scope["path"] == "/keep" else None, receive)
            self.requests.append((scope["method"], scope["path"], body))
            if body is None:
                return
        else:
            self.requests.append((scope["method"], scope["path"], None))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


async def _read(arriving: bodies.ArrivingBody | None, receive: Any) -> bytes | None:
    if arriving is not None:
        arriving.keep()
    taken = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        taken += message["body"]
        if not message["more_body"]:
            assert not (arriving is not None and taken)
            return taken if arriving is None else bytes(arriving.whole())


class Client:
    """Sends to a connection as an event loop does: nothing while the connection reads nothing."""

    def __init__(self, seen: Seen, scratch_bytes: int = PIECE_BYTES) -> None:
        self.clock = ManualClock()
        limits = connection_limits(BrokerSettings(), 10_000, 0)
        self.watch = ConnectionWatch(limits, self.clock, Metrics(), lambda: "an-id")
        config = uvicorn.Config(seen.app, log_config=None, access_log=False, lifespan="off", interface="asgi3")
        config.proxy_headers = False
        self.protocol = LimitedProtocol(config, ServerState(), {}, watch=self.watch)
        self.watch.scratch = self.watch.scratch[:scratch_bytes]
        self.transport = Transport()
        self.transport.set_protocol(self.protocol)
        self.protocol.connection_made(self.transport)

    async def send(self, data: bytes) -> None:
        while data and not self.transport.closed:
            while self.transport.paused and not self.transport.closed:
                await self.clock.advance(1)
            reader = self.transport.get_protocol()
            if isinstance(reader, SocketReader):
                room = reader.get_buffer(-1)
                part = data[: len(room)]
                room[: len(part)] = part
                reader.buffer_updated(len(part))
            else:
                part = data[: len(self.watch.scratch)]
                self.protocol.data_received(part)
            data = data[len(part) :]
        await settle()

    async def end(self) -> None:
        self.transport.closed = True
        reader: Any = self.transport.get_protocol()
        reader.connection_lost(None)
        await settle()


@asynccontextmanager
async def connected(seen: Seen, scratch_bytes: int = PIECE_BYTES) -> AsyncIterator[Client]:
    client = Client(seen, scratch_bytes)
    try:
        yield client
    finally:
        await client.end()


async def exchange(pieces: Sequence[bytes], scratch_bytes: int = PIECE_BYTES) -> tuple[Seen, bytes]:
    """What the endpoints saw, and what was answered, of bytes that arrive in these pieces."""
    seen = Seen()
    async with connected(seen, scratch_bytes) as client:
        for piece in pieces:
            await client.send(piece)
        answered = client.transport.written
    return seen, answered


def request(path: str, body: bytes, *, method: str = "POST", more: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n{more}\r\n".encode() + body


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of eight bytes go past the parser, in pieces of at most five."""
    _use(monkeypatch, 8)


def _use(patch: pytest.MonkeyPatch, least_bytes: int) -> None:
    patch.setattr(protocols, "LEAST_BYTES", least_bytes)
    patch.setattr(request_head, "LEAST_BYTES", least_bytes)
    patch.setattr(bodies, "PIECE_BYTES", 5)
    patch.setattr(bodies, "_LEAST_ROOM_BYTES", 2)


TWO = (
    request("/keep", b"0123\r\n\r\n456789")
    + request("/take", b"abcdefghijklmnopq")
    + request("/keep", b"", method="GET")
)
OF_TWO = [("POST", "/keep", b"0123\r\n\r\n456789"), ("POST", "/take", b"abcdefghijklmnopq"), ("GET", "/keep", b"")]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("scratch_bytes", [7, 1000])
async def test_pipelined_requests_are_the_same_wherever_their_bytes_are_cut(scratch_bytes: int) -> None:
    direct = 0
    for at in range(len(TWO) + 1):
        seen, answered = await exchange([TWO[:at], TWO[at:]], scratch_bytes)
        assert seen.requests == OF_TWO and answered.count(b"HTTP/1.1 200") == 3, at
        direct += seen.direct
    assert direct > len(TWO) / 8


@pytest.mark.usefixtures("small")
async def test_a_client_that_goes_at_any_byte_has_sent_no_whole_request() -> None:
    whole = request("/keep", b"0123456789abcdef")
    for at in range(len(whole)):
        seen = Seen()
        async with connected(seen, 9) as client:
            await client.send(whole[:at])
        assert seen.requests in ([], [("POST", "/keep", None)]), at
        assert len(client.watch.connections) == 0


SMALL, LARGE = b"0123", b"0123\r\n\r\n" * 4
UPGRADES = [
    pytest.param("connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMA\r\n", id="h2c"),
    pytest.param("connection: upgrade\r\nupgrade: websocket\r\n", id="a socket elsewhere"),
    pytest.param("upgrade: TLS/1.0\r\nconnection: keep-alive, upgrade\r\n", id="TLS"),
]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("more", UPGRADES)
@pytest.mark.parametrize("body", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("frame", ["length", "chunks"])
async def test_an_upgrade_that_is_not_ours_is_ignored_and_its_body_is_read(more: str, body: bytes, frame: str) -> None:
    whole = request("/take", body, more=more)
    if frame == "chunks":
        head = f"POST /take HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n{more}\r\n".encode()
        whole = head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    behind = request("/take", b"behind")
    head_bytes = whole.index(b"\r\n\r\n") + 4
    for at in (head_bytes - 9, head_bytes, head_bytes + 2, len(whole), len(whole + behind)):
        seen, answered = await exchange(cut(whole + behind, [at]), 1000)
        assert seen.requests == [("POST", "/take", body), ("POST", "/take", b"behind")], at
        assert answered.count(b"HTTP/1.1 200") == 2, at


@pytest.mark.parametrize(
    "more", ["content-length: 5\r\n", "transfer-encoding: chunked\r\n"], ids=["a length", "chunks"]
)
async def test_a_handshake_with_a_body_opens_no_socket_and_its_body_is_read(more: str) -> None:
    head = "GET /keep/socket HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    body = b"01234" if "length" in more else b"5\r\n01234\r\n0\r\n\r\n"
    seen, answered = await exchange([f"{head}{more}\r\n".encode(), body + request("/take", b"behind")])
    assert [each[-1] for each in seen.requests] == [b"01234", b"behind"]
    assert answered.count(b"HTTP/1.1 200") == 2


async def test_a_handshake_behind_a_request_without_an_answer_opens_no_socket() -> None:
    """Its answer comes later, when bytes behind it have been read as requests."""
    socket = b"GET /keep/socket HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    seen, answered = await exchange([request("/take", b"first") + socket + request("/take", b"behind")])
    assert [each[-1] for each in seen.requests] == [b"first", b"", b"behind"]
    assert answered.count(b"HTTP/1.1 200") == 3


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (b"POST /take HTTP/1.1\r\ncontent-length: 1\r\n", b"Host"),
        (b"POST /take HTTP/1.1\r\nhost: x\r\nHost: x\r\ncontent-length: 1\r\n", b"Host"),
        (b"POST /take HTTP/1.0\r\nhost: x\r\nhost: y\r\ncontent-length: 1\r\n", b"Host"),
        (b"POST /take HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n", b"chunked"),
        (b"POST /take HTTP/1.1\r\nhost: x\r\ntransfer-encoding: identity, chunked\r\n", b"chunked"),
        (b"POST /take HTTP/1.0\r\ntransfer-encoding: chunked\r\n", b"chunked"),
        (b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n", b"CONNECT"),
        (b"POST /take HTTP/2.0\r\nhost: x\r\ncontent-length: 1\r\n", b"HTTP/1.1"),
        (b"POST /take HTTP/0.9\r\nhost: x\r\ncontent-length: 1\r\n", b"HTTP/1.1"),
    ],
)
async def test_a_request_that_two_readers_may_understand_differently_is_refused(head: bytes, part: bytes) -> None:
    seen, answered = await exchange([head + b"\r\n", request("/take", b"behind")])
    assert seen.requests == [] and answered.count(b"HTTP/1.1 4") == 1
    assert answered.startswith(b"HTTP/1.1 400 ") and part in answered


BODY = st.binary(max_size=40)
PATH = st.sampled_from(["/keep", "/take", "/refuse"])
MORE = st.sampled_from(
    [
        "",
        "expect: 100-continue\r\n",
        "connection: close\r\n",
        "connection: upgrade\r\nupgrade: x\r\n",
        "content-length: 9\r\n",
        "content-length: 10\r\n",
        "transfer-encoding: chunked\r\n",
        "transfer-encoding: identity\r\n",
    ]
)
METHOD = st.sampled_from(["POST", "PUT", "GET", "HEAD", "DELETE"])
PLAIN = st.builds(
    lambda path, body, method, more: request(path, body, method=method, more=more), PATH, BODY, METHOD, MORE
)
CHUNKED = st.builds(
    lambda path, body: (
        f"POST {path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        + (b"%x\r\n%b\r\n" % (len(body), body) if body else b"")
        + b"0\r\n\r\n"
    ),
    PATH,
    BODY,
)
ODD = st.sampled_from(
    [
        b"POST /take HTTP/1.1\r\nhost: x\r\ncontent-length: +12\r\n\r\n0123456789ab",
        b"POST /take HTTP/1.1\r\nhost: x\r\ncontent-length:   12  \r\n\r\n0123456789ab",
        b"POST /take HTTP/1.1\r\nhost: x\r\ncontent-length: 12, 12\r\n\r\n0123456789ab",
        b"POST /take HTTP/1.1\r\nhost: x\r\ncontent-length: 0012\r\n\r\n0123456789ab",
        b"POST /take HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999\r\n\r\n0123456789ab",
        b"POST /take HTTP/1.0\r\ncontent-length: 12\r\n\r\n0123456789ab",
        b"POST /take HTTP/1.0\r\nconnection: keep-alive\r\ncontent-length: 12\r\n\r\n0123456789ab",
        b"POST /take HTTP/1.1\r\nhost: x\r\ncontent-length : 12\r\n\r\n0123456789ab",
        b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\ncontent-length: 12\r\n\r\n0123456789ab",
        b"\r\n\r\n",
        b"junk",
    ]
)


def cut(data: bytes, at: Sequence[int]) -> list[bytes]:
    places = sorted({0, len(data), *(each % (len(data) + 1) for each in at)})
    return [data[start:end] for start, end in pairwise(places)]


LAST = [request("/take", b"0123456789ab", more="connection: close\r\n"), request("/take", b"behind the last")]


@settings(max_examples=few_or_many(100, 400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(LAST, [])
@example(LAST, [70])
@given(
    st.lists(st.one_of(PLAIN, PLAIN, CHUNKED, ODD), min_size=1, max_size=4), st.lists(st.integers(0, 2000), max_size=8)
)
def test_any_requests_are_seen_and_answered_as_with_the_parser_alone(requests: list[bytes], at: list[int]) -> None:
    pieces = cut(b"".join(requests), at)
    with pytest.MonkeyPatch.context() as patch:
        _use(patch, NEVER)
        expected, answered = asyncio.run(exchange(pieces))
    assert not expected.direct
    with pytest.MonkeyPatch.context() as patch:
        _use(patch, 8)
        patch.setattr(bodies, "PIECE_BYTES", 10_000)
        seen, same = asyncio.run(exchange(pieces))
    assert (seen.requests, same) == (expected.requests, answered)


@pytest.mark.parametrize(
    ("headers", "size_bytes"),
    [
        ([(b"content-length", b"65536")], 65536),
        ([(b"content-length", b"65535")], 0),
        ([(b"content-length", b"70000"), (b"content-length", b"70000")], 0),
        ([(b"content-length", b"70000"), (b"transfer-encoding", b"chunked")], 0),
        ([(b"transfer-encoding", b"identity"), (b"content-length", b"70000")], 0),
        ([(b"content-length", b"+70000")], 0),
        ([(b"content-length", b"7" * 19)], 0),
        ([], 0),
    ],
)
def test_only_a_large_body_whose_length_is_plain_goes_past_the_parser(
    headers: list[tuple[bytes, bytes]], size_bytes: int
) -> None:
    assert plain_body_bytes(headers) == size_bytes


async def test_what_is_declared_and_does_not_come_takes_no_memory() -> None:
    seen = Seen()
    head = request("/keep", b"").replace(b"content-length: 0", b"content-length: 67108864")
    gc.collect()  # what tests before have left may go at any time
    before_bytes = pa.total_allocated_bytes()
    async with connected(seen) as client:
        await client.send(head)
        assert seen.direct == 1 and pa.total_allocated_bytes() <= before_bytes
        await client.send(bytes(KIB))
        assert pa.total_allocated_bytes() - before_bytes <= PIECE_BYTES
        await client.send(bytes(999 * KIB))
        assert pa.total_allocated_bytes() - before_bytes <= 4 * 1000 * KIB + PIECE_BYTES
    del client
    assert seen.requests == [("POST", "/keep", None)]


async def test_a_body_that_is_read_as_it_comes_takes_the_memory_of_a_piece() -> None:
    seen = Seen()
    head = request("/take", b"").replace(b"content-length: 0", b"content-length: 67108864")
    gc.collect()  # what tests before have left may go at any time
    before_bytes = pa.total_allocated_bytes()
    async with connected(seen) as client:
        await client.send(head)
        for _ in range(64):
            await client.send(bytes(100 * KIB))
            assert pa.total_allocated_bytes() - before_bytes <= 4 * PIECE_BYTES


async def test_nothing_is_held_of_a_body_that_was_refused_and_the_next_request_is_served() -> None:
    seen = Seen()
    body, following = bytes(300 * KIB), request("/keep", bytes(100 * KIB))
    whole = request("/refuse", body)
    gc.collect()  # what tests before have left may go at any time
    before_bytes = pa.total_allocated_bytes()
    async with connected(seen) as client:
        await client.send(whole[: 200 * KIB])
        assert seen.requests == [("POST", "/refuse", None)] and client.transport.written.endswith(b"ok")
        assert pa.total_allocated_bytes() <= before_bytes
        await client.send(whole[200 * KIB :] + following)
        assert seen.requests[1:] == [("POST", "/keep", bytes(100 * KIB))]


async def test_a_body_is_kept_where_it_was_read_to() -> None:
    seen = Seen()
    body = bytes(range(256)) * 4096
    async with connected(seen) as client:
        await client.send(request("/keep", body) + request("/take", body) + request("/keep", body))
    assert [each[2] == body for each in seen.requests] == [True] * 3 and seen.direct == 3


async def test_an_endpoint_that_reads_nothing_holds_up_its_client() -> None:
    seen = Seen()
    seen.may_read.clear()
    async with connected(seen) as client:
        whole = request("/keep", bytes(1000 * KIB))
        client.protocol.data_received(whole[:PIECE_BYTES])
        await settle()
        assert client.transport.paused
        seen.may_read.set()
        await settle()
        assert not client.transport.paused
        await client.send(whole[PIECE_BYTES:])
    assert seen.requests == [("POST", "/keep", bytes(1000 * KIB))]
