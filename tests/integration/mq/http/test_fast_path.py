"""Publishes that are served before ASGI: the same answers, and the same messages stored, as the ASGI app has."""

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from filer import request_ids
from filer.clock import settle
from filer.errors import OutcomeUnknown, SegmentMoved
from filer.event_log import Event
from filer.segment.writer.pending_request import Waiter
from filer.segment.writer.segment_writer import SegmentWriter
from filer.tracing import NO_SPAN, Carrier, Span
from mq.http.access_lines import log_answered
from mq.http.fast_path.fast_publisher import FastPublisher
from mq.security.caller import Caller
from mq.tracing.tracer import Tracer
from tests.support.mutated_publishes.comparison import comparison
from tests.support.mutated_publishes.http_bytes import MESSAGES, head_of, request
from tests.support.mutated_publishes.sides import MOST_BYTES, Connection, Side, side
from tests.support.thoroughness import few_or_many


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


async def test_a_publish_with_known_headers_needs_no_parser(fast: Side, begun: list[bool]) -> None:
    connection = fast.connect()
    await connection.send(request())
    parser, connection.protocol.parser = connection.protocol.parser, None
    assert (await connection.send(request(f"{MESSAGES}?key=k", b"other"))).startswith(b"HTTP/1.1 200 OK\r\n")
    connection.protocol.parser = parser
    assert begun == [True] * 2 and fast.known == 1
    assert (await connection.send(request(f"{MESSAGES}?acks=x"))).startswith(b"HTTP/1.1 422 ")
    assert begun == [True, True, False, False]
    assert (await connection.send(request(headers=["X-Unknown: 1"]))).startswith(b"HTTP/1.1 200 ")
    # The parser goes on behind a request that the app has served.
    assert (await connection.send(request())).startswith(b"HTTP/1.1 200 ") and fast.known == 1
    assert (await connection.send(request())).startswith(b"HTTP/1.1 200 ") and fast.known == 2
    assert len(fast.watch.connections) == 1 and connection.protocol.received_bytes > 0


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


async def until_answered(connection: Connection, data: bytes) -> bytes:
    """The answer to a part of a request."""
    await connection.send(data)
    async with asyncio.timeout(10):
        while not connection.transport.written:
            await settle()
    return connection.transport.written


REFUSED_HEADS = [
    pytest.param(request(host="evil.example"), 403, id="foreign host"),
    pytest.param(request("/v1/topics/none/messages"), 404, id="no such topic"),
    pytest.param(request(length=str(MOST_BYTES + 1)), 413, id="too large"),
    pytest.param(request(f"{MESSAGES}?acks=replicated"), 422, id="no replicas"),
]


@pytest.mark.parametrize(("whole", "status"), REFUSED_HEADS)
async def test_whatever_the_head_refuses_is_answered_before_its_body_comes(
    fast: Side, whole: bytes, status: int
) -> None:
    assert (await until_answered(fast.connect(), head_of(whole))).startswith(b"HTTP/1.1 %d " % status)


async def test_a_draining_broker_and_a_full_front_store_take_none(fast: Side, begun: list[bool]) -> None:
    broker, connection = fast.http.broker, fast.connect()
    assert broker.front_store.try_reserve(broker.front_store.limit_bytes)
    assert (await connection.send(request())).startswith(b"HTTP/1.1 429 ")
    assert (await until_answered(fast.connect(), head_of(request()))).startswith(b"HTTP/1.1 429 ")
    broker.front_store.release(broker.front_store.limit_bytes)
    broker.draining.set()
    assert (await connection.send(request())).startswith(b"HTTP/1.1 503 ")
    assert begun == [False] * 2


class HeldWriter:
    """Takes what is appended, and answers when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, gathers: bool) -> None:
        self.waiters: list[Waiter] = []
        self._usual = {name: getattr(SegmentWriter, name) for name in ("append", "gather")}
        self._patch, self._gathers = monkeypatch, gathers
        monkeypatch.setattr(SegmentWriter, "append", self._hold)
        monkeypatch.setattr(SegmentWriter, "gather", self._gather)

    def _hold(self, *arguments: object, **named: object) -> Waiter:
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        return waiter

    def _gather(self, *arguments: object) -> tuple[Waiter, int] | None:
        return (self._hold(), 0) if self._gathers else None

    def let_go(self) -> None:
        for name, usual in self._usual.items():
            self._patch.setattr(SegmentWriter, name, usual)


@pytest.fixture(params=[pytest.param(True, id="gathered"), pytest.param(False, id="by itself")])
def held(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> HeldWriter:
    return HeldWriter(monkeypatch, gathers=request.param)


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


async def test_whoever_is_cut_off_as_the_process_ends_gets_an_answer(fast: Side, held: HeldWriter) -> None:
    connection = fast.connect()
    connection.protocol.data_received(request())
    await settle()
    held.waiters[0].cancel()
    assert (await connection.send()).startswith(b"HTTP/1.1 503 ")
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
    monkeypatch.setattr(SegmentWriter, "gather", failing)
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
        connection.protocol.caller = Caller("192.0.2.7")
        assert (await connection.send(request())).startswith(b"HTTP/1.1 403 ")
        assert begun == [False] and not sum((await made.http.end_offsets("t")).values())


class Lines(logging.Handler):
    """Lines of the access log, each with the id of the request that a writer of lines adds."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str | None, dict[str, Any]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert isinstance(record.msg, Event)
        self.found.append((request_ids.current(), dict(record.msg.fields)))


@pytest.fixture
def lines() -> Iterator[Lines]:
    log, handler = logging.getLogger(log_answered.__module__), Lines()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler
    log.setLevel(before)
    log.removeHandler(handler)


async def test_the_access_log_has_the_same_line(begun: list[bool], lines: Lines) -> None:
    """Also of several that come together, which share what they wait for: each with its own id."""
    found = []
    for is_fast in (True, False):
        async with side(is_fast=is_fast, access_log="on") as made:
            lines.found.clear()
            connections = [made.connect() for _ in range(3)]
            asked = [request(headers=[f"X-Request-Id: mine-{number}"]) for number in range(3)]
            assert len(await asyncio.gather(*(each.send(one) for each, one in zip(connections, asked, strict=True))))
            assert all(line.pop("duration_seconds") >= 0 for _, line in lines.found)
            found.append(sorted(lines.found, key=lambda each: each[0] or ""))
    assert begun == [True] * 3
    assert found[0] == found[1] and [id_ for id_, _ in found[0]] == ["mine-0", "mine-1", "mine-2"]


class Choosing(Tracer):
    """Chooses each third request."""

    is_on = True

    def __init__(self) -> None:
        self.asked = 0
        self.traced: list[str] = []

    def would_pass_over(self) -> bool:
        return (self.asked + 1) % 3 != 0

    def passes_over(self) -> bool:
        self.asked += 1
        return self.asked % 3 != 0

    def begin(self, step: str, topic: str, carrier: Carrier) -> Span:
        self.traced.append(f"{step} {topic}")
        return NO_SPAN


async def test_a_publish_that_is_traced_is_served_by_the_app(begun: list[bool]) -> None:
    """Each is asked for once, whoever serves it: else more or fewer would be traced than the ratio says."""
    tracer = Choosing()
    async with side(is_fast=True, tracer=tracer) as made:
        connection, tracer.asked = made.connect(), 0
        for _ in range(6):
            assert (await connection.send(request())).startswith(b"HTTP/1.1 200 OK")
        assert begun.count(True) == 4 and tracer.traced == ["publish t"] * 2 and tracer.asked == 6
        # Its client traces it.
        traced = request(headers=[f"traceparent: 00-{'1' * 32}-{'2' * 16}-01"])
        assert (await connection.send(traced)).startswith(b"HTTP/1.1 200 OK")
        assert begun.count(True) == 4 and len(tracer.traced) == 3


def test_any_bytes_are_answered_as_by_the_app() -> None:
    with comparison() as both:
        both.compare_each_deviation()
        both.compare_any(few_or_many(40, 200))
        begun, known = both.compare_stored()
        assert begun > known > 3


def test_behind_a_proxy_that_pools_connections_no_body_becomes_a_request() -> None:
    with comparison() as both:
        both.pass_on_any(few_or_many(60, 300))
        both.compare_stored()


async def test_one_that_cannot_be_answered_keeps_no_other_from_its_answer(
    fast: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
    broken, *others = connections = [fast.connect() for _ in range(4)]

    def fails(data: object) -> None:
        raise OSError("no such connection")

    monkeypatch.setattr(broken.transport, "write", fails)
    monkeypatch.setattr(broken.transport, "writelines", fails)
    for connection in connections:
        connection.protocol.data_received(request(body=b"together"))
    async with asyncio.timeout(10):
        while not all(b"offset" in connection.transport.written for connection in others):
            await asyncio.sleep(0.001)
    assert [str(error) for error in told] == ["no such connection"]
    assert fast.begun == 4 and fast.http.broker.front_store.pending_bytes == 0
    for connection in connections:
        await connection.end()
