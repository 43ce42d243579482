"""Publishes that are served before ASGI: the same answers, and the same messages stored, as the ASGI app has."""

import asyncio
import gzip
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import uvicorn
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from filer.clock import settle
from filer.errors import OutcomeUnknown, SegmentMoved
from filer.segment.writer.pending_request import Waiter
from filer.segment.writer.segment_writer import SegmentWriter
from filer.stores.memory_store import MemoryStore
from mq.http.app import create_served
from mq.http.fast_path.fast_publisher import FastPublisher
from mq.process.connections.fast_protocol import served_protocol
from mq.process.server import connection_watch
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.unit.mq.process.connections.test_protocol import Transport

MESSAGES = "/v1/topics/t/messages"
MOST_BYTES = 1024
_ANY = re.compile(rb"[0-9a-f]{16}-[0-9]+|[0-9-]{10}T[0-9:.]+Z")
"""Ids that the broker makes, and times."""


class LocalTransport(Transport):
    """Of a client on this machine."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else super().get_extra_info(name, default)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))


class Side:
    """A broker, and how it serves connections."""

    def __init__(self, http: HttpBroker, is_fast: bool) -> None:
        self.http, self.watch = http, connection_watch(http.broker)
        app, fast = create_served(http.broker)
        assert fast is not None
        self._protocol: Any = served_protocol(self.watch, fast if is_fast else None)
        self._config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", ws="none", proxy_headers=False
        )

    def connect(self) -> "Connection":
        return Connection(self._protocol(self._config, ServerState(), {}))


class Connection:
    """Sends to a connection as an event loop does."""

    def __init__(self, protocol: Any) -> None:
        self.protocol, self.transport = protocol, LocalTransport()
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)

    async def send(self, *pieces: bytes) -> bytes:
        """What is answered to that, without what no two brokers have alike."""
        before = len(self.transport.written)
        for piece in pieces:
            if not self.transport.closed:
                self.protocol.data_received(piece)
                await settle()
        await self._until_answered()
        return _ANY.sub(b"<any>", self.transport.written[before:])

    async def _until_answered(self) -> None:
        async with asyncio.timeout(10):
            while not self.transport.closed and self._is_under_way():
                await asyncio.sleep(0.001)

    def _is_under_way(self) -> bool:
        cycle = self.protocol.cycle
        return not self.protocol._in_message and cycle is not None and not cycle.response_complete

    async def end(self) -> None:
        self.transport.closed = True
        self.protocol.connection_lost(None)
        await settle()


@asynccontextmanager
async def side(is_fast: bool) -> AsyncIterator[Side]:
    async with http_broker(MemoryStore(), max_body_bytes=MOST_BYTES) as http:
        for name, config in (("t", {"segments": 2}), ("json", {"segments": 1, "value_type": "json"})):
            (await http.client.put(f"/v1/topics/{name}", json=config)).raise_for_status()
        yield Side(http, is_fast)


def request(
    target: str = MESSAGES,
    body: bytes = b"value",
    headers: Sequence[str] = (),
    *,
    method: str = "POST",
    host: str | None = "127.0.0.1:8080",
    length: str | None = None,
    version: str = "1.1",
) -> bytes:
    lines = [
        f"{method} {target} HTTP/{version}",
        *([] if host is None else [f"Host: {host}"]),
        *headers,
        f"Content-Length: {len(body) if length is None else length}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.fixture
async def fast() -> AsyncIterator[Side]:
    async with side(is_fast=True) as made:
        yield made


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What `FastPublisher.begin` returned, call by call."""
    found: list[bool] = []
    begin = FastPublisher.begin

    def noted(*arguments: Any) -> bool:
        found.append(begin(*arguments))
        return found[-1]

    monkeypatch.setattr(FastPublisher, "begin", noted)
    return found


PLAIN = [
    pytest.param(request(), id="a value"),
    pytest.param(request(body=b""), id="an empty value"),
    pytest.param(request(f"{MESSAGES}?key=k&acks=stored"), id="with a key"),
    pytest.param(request(f"{MESSAGES}?producer=p&sequence=7"), id="with an id"),
    pytest.param(request(headers=["Braid-Header-A: b", "Content-Type: text/plain"]), id="with headers"),
    pytest.param(request("/v1/topics/json/messages", b"[1]", ["Content-Type: text/plain"]), id="checked as JSON"),
    pytest.param(
        request(headers=["User-Agent: x", "Accept: */*", "Connection: keep-alive", "X-Request-Id: mine"]), id="usual"
    ),
]


@pytest.mark.parametrize("whole", PLAIN)
async def test_a_publish_that_is_understood_needs_no_app(fast: Side, begun: list[bool], whole: bytes) -> None:
    connection = fast.connect()
    head_bytes = whole.index(b"\r\n\r\n") + 4
    for pieces in ([whole], [whole[:head_bytes], whole[head_bytes:]], [whole[:20], whole[20:]]):
        assert (await connection.send(*filter(None, pieces))).startswith(b"HTTP/1.1 200 OK\r\n")
    assert begun == [True] * 3
    assert fast.http.broker.front_store.pending_bytes == 0
    assert fast.http.broker.turns.publishing.under_way == 0


OTHER = [
    pytest.param([request(headers=["Content-Type: application/json"], body=b'{"messages": []}')], 200, id="JSON"),
    pytest.param([request(headers=["Expect: 100-continue"])], 100, id="waits to be asked"),
    pytest.param([request(headers=["X-Unknown: 1"])], 200, id="an unknown header"),
    pytest.param([request(headers=["Connection: close"])], 200, id="the last one"),
    pytest.param([request(headers=["Content-Encoding: gzip"], body=gzip.compress(b"v"))], 200, id="compressed"),
    pytest.param([request(f"{MESSAGES}?nonsense=1")], 422, id="an unknown parameter"),
    pytest.param([request(version="1.0")], 200, id="HTTP/1.0"),
    pytest.param([request(body=b"x" * 100)[:-50], b"x" * 50], 200, id="a body in two pieces"),
    pytest.param([request() + request()], 200, id="two at once"),
]


@pytest.mark.parametrize(("pieces", "status"), OTHER)
async def test_whatever_else_comes_the_app_serves(
    fast: Side, begun: list[bool], pieces: list[bytes], status: int
) -> None:
    assert (await fast.connect().send(*pieces)).startswith(b"HTTP/1.1 %d " % status)
    assert begun == []


REFUSED = [
    pytest.param(request(host="evil.example"), 403, id="foreign host"),
    pytest.param(request("/v1/topics/none/messages"), 404, id="no such topic"),
    pytest.param(request(body=b"x" * (MOST_BYTES + 1)), 413, id="too large"),
    pytest.param(request(f"{MESSAGES}?acks=replicated"), 422, id="no replicas"),
    pytest.param(request("/v1/topics/json/messages", b"{", ["Content-Type: text/plain"]), 422, id="not JSON"),
    pytest.param(request(body=b'{"messages": []}'), 415, id="an envelope"),
]


@pytest.mark.parametrize(("whole", "status"), REFUSED)
async def test_whatever_is_refused_the_app_answers(fast: Side, begun: list[bool], whole: bytes, status: int) -> None:
    connection = fast.connect()
    assert (await connection.send(whole)).startswith(b"HTTP/1.1 %d " % status)
    assert begun == [False]
    assert fast.http.broker.front_store.pending_bytes == 0
    assert (await connection.send(request())).startswith(b"HTTP/1.1 200 ")


async def test_a_draining_broker_and_a_full_front_store_take_none(fast: Side, begun: list[bool]) -> None:
    broker, connection = fast.http.broker, fast.connect()
    assert broker.front_store.try_reserve(broker.front_store.limit_bytes)
    assert (await connection.send(request())).startswith(b"HTTP/1.1 429 ")
    broker.front_store.release(broker.front_store.limit_bytes)
    broker.draining.set()
    assert (await connection.send(request())).startswith(b"HTTP/1.1 503 ")
    assert begun == [False] * 2


class HeldWriter:
    """Takes what is appended, and answers when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiters: list[Waiter] = []
        self._append = SegmentWriter.append
        self._patch = monkeypatch
        monkeypatch.setattr(SegmentWriter, "append", self._hold)

    def _hold(self, *arguments: object, **named: object) -> Waiter:
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        return waiter

    def let_go(self) -> None:
        self._patch.setattr(SegmentWriter, "append", self._append)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> HeldWriter:
    return HeldWriter(monkeypatch)


async def test_nothing_is_answered_before_the_segment_has_acknowledged_it(fast: Side, held: HeldWriter) -> None:
    connection = fast.connect()
    connection.protocol.data_received(request())
    await settle()
    assert connection.transport.written == b"" and fast.http.broker.front_store.pending_bytes == len(b"value")
    assert fast.http.broker.turns.publishing.under_way == 1
    held.waiters[0].set_exception(OutcomeUnknown("no answer"))
    answered = await connection.send()
    assert b"HTTP/1.1 503 " in answered and b'"retryable":false' in answered
    assert fast.http.broker.front_store.pending_bytes == fast.http.broker.turns.publishing.under_way == 0


async def test_what_was_moved_away_is_appended_again(fast: Side, held: HeldWriter) -> None:
    connection = fast.connect()
    connection.protocol.data_received(request())
    held.let_go()
    held.waiters[0].set_exception(SegmentMoved())
    assert (await connection.send()).startswith(b"HTTP/1.1 200 ")
    assert len(held.waiters) == 1 and sum((await fast.http.end_offsets("t")).values()) == 1


async def test_an_unforeseen_error_is_answered_and_nothing_is_appended_twice(
    fast: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def failing(*arguments: object, **named: object) -> Waiter:
        calls.append(arguments)
        raise RuntimeError("not foreseen")

    monkeypatch.setattr(SegmentWriter, "append", failing)
    assert (await fast.connect().send(request())).startswith(b"HTTP/1.1 500 ")
    assert len(calls) == 1


async def test_what_is_sent_ahead_waits_for_the_answer(fast: Side, held: HeldWriter) -> None:
    connection = fast.connect()
    connection.protocol.data_received(request(headers=["X-Request-Id: first"]))
    held.let_go()
    connection.protocol.data_received(request(headers=["X-Request-Id: second"]))
    await settle()
    assert connection.transport.written == b""
    held.waiters[0].set_exception(OutcomeUnknown("no answer"))
    answered = await connection.send()
    assert 0 < answered.index(b"x-request-id: first") < answered.index(b"x-request-id: second")


async def test_a_client_that_is_gone_gets_nothing_and_leaves_nothing(fast: Side, held: HeldWriter) -> None:
    connection = fast.connect()
    connection.protocol.data_received(request())
    await connection.end()
    held.waiters[0].set_exception(OutcomeUnknown("no answer"))
    await settle()
    assert connection.transport.written == b""
    assert fast.http.broker.front_store.pending_bytes == fast.http.broker.turns.publishing.under_way == 0


async def test_a_server_that_stops_answers_first_and_closes_then(fast: Side, held: HeldWriter) -> None:
    connection = fast.connect()
    connection.protocol.data_received(request())
    connection.protocol.shutdown()
    assert not connection.transport.closed
    held.waiters[0].set_exception(OutcomeUnknown("no answer"))
    assert b"\r\nconnection: close\r\n" in await connection.send()
    assert connection.transport.closed


async def test_who_is_not_allowed_gets_no_message_in(begun: list[bool]) -> None:
    async with side(is_fast=True) as made:
        connection = made.connect()
        connection.protocol.client = ("192.0.2.7", 1)
        assert (await connection.send(request())).startswith(b"HTTP/1.1 403 ")
        assert begun == [False] and not sum((await made.http.end_offsets("t")).values())


@pytest.mark.parametrize("observed", [{"access_log": "on"}], ids=["access log"])
async def test_a_broker_that_tells_of_each_request_has_the_app_serve_all(observed: dict[str, Any]) -> None:
    async with http_broker(MemoryStore(), **observed) as http:
        assert create_served(http.broker)[1] is None


TARGETS = st.sampled_from(
    [
        *[MESSAGES] * 8,
        *(
            f"{MESSAGES}?{query}"
            for query in (
                "key=k",
                "key=k&key=j",
                "key=%C3%BC",
                "key=%FF",
                "key=a+b",
                "key=",
                "key_base64=a2V5",
                "key_base64=!",
                "key=a&key_base64=a2V5",
                "acks=stored",
                "acks=replicated",
                "acks=x",
                "producer=p&sequence=1",
                "producer=p&sequence=2",
                "producer=p",
                "sequence=-1&producer=p",
                "nonsense=1",
                "",
                "&",
                "key",
                "key=a#b",
                "a?b",
            )
        ),
        f"{MESSAGES}/",
        f"{MESSAGES}#x",
        f"/{MESSAGES}",
        f"http://127.0.0.1{MESSAGES}",
        "/v1/topics/json/messages",
        "/v1/topics/json/messages?key=k",
        "/v1/topics/none/messages",
        "/v1/topics/%74/messages",
        "/v1/topics/a%2Fb/messages",
        "/v1/topics/../messages",
        "/v1/topics//messages",
        "*",
        "127.0.0.1:80",
    ]
)
BODIES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [b"", b"1", b'{"a": 1}', b"{", b'{"messages": [{"value": 1}]}', b"x" * (MOST_BYTES + 1), gzip.compress(b"v")]
    ),
)
HEADERS = st.lists(
    st.sampled_from(
        [
            "Accept: */*",
            "User-Agent: x",
            "Cookie: a=b",
            "Connection: keep-alive",
            "Connection: Keep-Alive",
            "Connection: close",
            "Connection: keep-alive, close",
            "Connection: upgrade\r\nUpgrade: x",
            "Upgrade: h2c",
            "Content-Type: application/octet-stream",
            "Content-Type: text/plain; charset=utf-8",
            "Content-Type: Application/JSON",
            "Content-Type: application/x-ndjson",
            "Content-Type: application/vnd.apache.arrow.stream",
            "Content-Type: application/x-www-form-urlencoded",
            "Content-Type:",
            "Content-Encoding: gzip",
            "Content-Encoding: identity",
            "Content-Encoding: br",
            "Content-Length: 1",
            "Transfer-Encoding: chunked",
            "Transfer-Encoding: identity",
            "Expect: 100-continue",
            "Expect: x",
            "Host: localhost",
            "Origin: http://127.0.0.1:8080",
            "Origin: http://evil.example",
            "Sec-Fetch-Site: cross-site",
            "Sec-Fetch-Mode: cors",
            "X-Forwarded-For: 1.2.3.4",
            "Forwarded: for=1.2.3.4",
            "Via: 1.1 x",
            "X-Real-IP: 1.2.3.4",
            "X-Request-Id: mine",
            "X-Request-Id: not valid",
            "X-Request-Id:",
            "Braid-Header-A: b",
            "Braid-Header-: b",
            "Braid-Header-A: \xfc",
            "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "X y: z",
            "X: a\r\n b",
        ]
    ),
    max_size=2,
)
METHODS = st.sampled_from(["GET", "PUT", "HEAD", "OPTIONS", "DELETE", "post"])
HOSTS = st.sampled_from(["localhost", "[::1]:1", "evil.example", "", None])
LENGTHS = st.sampled_from(["3", "0", "+3", "3, 3", "99"])
VERSIONS = st.sampled_from(["1.0", "0.9", "2.0"])
DEVIATIONS = {
    "target": TARGETS,
    "body": BODIES,
    "headers": HEADERS,
    "method": METHODS,
    "host": HOSTS,
    "length": LENGTHS,
    "version": VERSIONS,
}


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request that differs from a plain one in a thing or two."""
    names = draw(st.lists(st.sampled_from(sorted(DEVIATIONS)), max_size=2, unique=True))
    return request(**{name: draw(DEVIATIONS[name]) for name in names})


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Requests, of which some bytes are others, or missing, or there twice."""
    data = bytearray(b"".join(draw(st.lists(requests(), min_size=1, max_size=3))))
    mutations = st.tuples(st.integers(0, 600), st.sampled_from(["other", "missing", "more"]), st.integers(0, 255))
    for at, how, byte in draw(st.lists(mutations, min_size=1, max_size=3)):
        place = at % len(data)
        if how == "other":
            data[place] = byte
        elif how == "missing":
            data[place : place + 1] = b""
        else:
            data.insert(place, byte)
    return bytes(data)


def cut(data: bytes, at: Sequence[int]) -> list[bytes]:
    places = sorted({0, len(data), *(each % (len(data) + 1) for each in at)})
    return [data[start:end] for start, end in pairwise(places)]


@pytest.fixture
def both() -> Iterator[tuple[asyncio.Runner, Sequence[Side]]]:
    """Two brokers, the second without a fast path, and what runs their event loop."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def start() -> Sequence[Side]:
            return [await stack.enter_async_context(side(is_fast)) for is_fast in (True, False)]

        sides = runner.run(start())
        try:
            yield runner, sides
        finally:
            runner.run(stack.aclose())


async def answer(side: Side, pieces: Sequence[bytes]) -> tuple[bytes, bool]:
    connection = side.connect()
    answered = await connection.send(*pieces)
    closed = connection.transport.closed
    await connection.end()
    return answered, closed


def test_any_bytes_are_answered_as_by_the_app(both: tuple[asyncio.Runner, Sequence[Side]]) -> None:
    runner, (fast, asgi) = both

    async def same(pieces: Sequence[bytes]) -> None:
        assert await answer(fast, pieces) == await answer(asgi, pieces)
        assert await fast.http.end_offsets("t") == await asgi.http.end_offsets("t")

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @example(request(), [])
    @example(request() + b"junk", [])
    @example(request(length="3"), [])
    @example(request(length="9"), [])
    @example(request(host="evil.example"), [])
    @given(st.one_of(requests(), mutated()), st.one_of(st.just([]), st.lists(st.integers(0, 2000), max_size=3)))
    def check(data: bytes, at: list[int]) -> None:
        runner.run(same(cut(data, at)))

    check()

    async def stored(side: Side) -> Any:
        page = await side.http.client.get(MESSAGES, params={"limit": 1000})
        keys = ("key", "key_base64", "value", "value_base64", "headers")
        return [{key: message.get(key) for key in keys} for message in page.raise_for_status().json()["messages"]]

    of_fast, of_asgi = runner.run(stored(fast)), runner.run(stored(asgi))
    assert of_fast == of_asgi and len(of_fast) > 3
