"""What clients without any rights can make a broker hold: raw sockets against a real server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from filer.stores.memory_store import MemoryStore
from tests.support.broker.http_broker import TIMEOUT_SECONDS, HttpBroker, http_broker

GET = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
POST = b"POST /v1/topics/t/messages HTTP/1.1\r\nhost: localhost\r\n"
MIB = 1024 * 1024


class Raw:
    """One connection, whose bytes the test sends itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        """Send these bytes, if the broker still takes any."""
        with contextlib.suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    async def head(self) -> bytes:
        """The next answer's status line and headers."""
        return await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), TIMEOUT_SECONDS)

    async def exactly(self, size_bytes: int) -> bytes:
        """The next so many bytes."""
        return await asyncio.wait_for(self._reader.readexactly(size_bytes), TIMEOUT_SECONDS)

    async def rest(self) -> bytes:
        """All that comes until the broker ends the connection."""
        return await asyncio.wait_for(self._reader.read(), TIMEOUT_SECONDS)


@contextlib.asynccontextmanager
async def connected(broker: HttpBroker) -> AsyncIterator[Raw]:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    try:
        yield Raw(reader, writer)
    finally:
        writer.transport.abort()


def refused(broker: HttpBroker, reason: str) -> float:
    """How many connections were refused or ended for that reason."""
    return broker.broker.metrics.registry.get_sample_value("braidmq_connections_refused_total", {"reason": reason}) or 0


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not holds():
            await asyncio.sleep(0.005)


async def until_open(broker: HttpBroker, count: int) -> None:
    """Wait until that many connections are open."""
    await until(lambda: broker.broker.metrics.registry.get_sample_value("braidmq_connections") == count)


@pytest.mark.parametrize(
    ("request_bytes", "status", "slug", "reason"),
    [
        (GET + b"x: " + b"x" * 9000 + b"\r\n\r\n", 431, "headers-too-large", "head"),
        (GET + b"x: " + b"x" * 9000, 431, "headers-too-large", "head"),
        (GET + b"x: " + b"x" * 3_000_000 + b"\r\n\r\n", 431, "headers-too-large", "head"),
        (GET + b"x: y\r\n" * 300 + b"\r\n", 431, "headers-too-large", "head"),
        (b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\n\r\n", 414, "uri-too-long", "uri"),
        (b"GET /" + b"x" * 10_000, 414, "uri-too-long", "uri"),
        (b"GET /?" + b"x" * 66_000 + b" HTTP/1.1\r\n\r\n", 414, "uri-too-long", "uri"),
        (b"nonsense\r\n\r\n", 400, "invalid-request", "not-http"),
        ("GET /v1/topics/t/messages?key=ő HTTP/1.1\r\n\r\n".encode(), 400, "invalid-request", "not-http"),
    ],
)
async def test_heads_are_bounded(request_bytes: bytes, status: int, slug: str, reason: str) -> None:
    async with http_broker(MemoryStore(), max_head_bytes=8192) as broker, connected(broker) as raw:
        await raw.send(request_bytes)
        answer = await raw.rest()
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:200]
        assert b"urn:braidmq:" + slug.encode() in answer
        assert b"connection: close" in answer
        assert refused(broker, reason) == 1


async def test_what_is_within_the_bounds_is_served_however_it_is_cut() -> None:
    request = GET + b"x: " + b"x" * 7000 + b"\r\n" + b"y: z\r\n" * 200 + b"\r\n"
    async with http_broker(MemoryStore(), max_head_bytes=9000) as broker, connected(broker) as raw:
        for step in (len(request), 1000, 7):
            for at in range(0, len(request), step):
                await raw.send(request[at : at + step])
            assert b"HTTP/1.1 200 " in await raw.head()


async def test_a_long_marker_fits() -> None:
    async with http_broker(MemoryStore()) as broker, connected(broker) as raw:
        await broker.client.put("/v1/topics/t", json={})
        marker = b"x" * 60_000
        await raw.send(
            b"GET /v1/topics/t/messages?marker=" + marker + b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )
        assert b"urn:braidmq:invalid-marker" in await raw.rest()


async def test_headers_that_trickle_are_cut_off() -> None:
    async with http_broker(MemoryStore(), head_timeout=0.4) as broker, connected(broker) as raw:
        trickling = asyncio.create_task(_trickle(raw, GET + b"x: "))
        answer = await raw.rest()
        trickling.cancel()
        assert answer.startswith(b"HTTP/1.1 408 ") and b"urn:braidmq:request-timeout" in answer
        assert refused(broker, "head-late") == 1


async def test_a_body_that_trickles_is_cut_off_and_nothing_of_it_is_stored() -> None:
    async with http_broker(MemoryStore(), stall_timeout=0.4) as broker, connected(broker) as raw:
        await broker.client.put("/v1/topics/t", json={})
        trickling = asyncio.create_task(_trickle(raw, POST + b"content-length: 1000\r\n\r\n"))
        answer = await raw.rest()
        trickling.cancel()
        assert answer.startswith(b"HTTP/1.1 408 ") and b'"retryable":true' in answer
        assert await broker.end_offsets("t") == {0: 0}
        assert broker.broker.front_store.pending_bytes == 0


CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        pytest.param(b"1;x=", b"x" * 64 * 1024, id="the extension of a chunk"),
        pytest.param(b"1\r\nx\r\n0\r\nx-trailer: ", b"x" * 64 * 1024, id="a trailer"),
        pytest.param(b"1\r\nx\r\n0\r\n", b"x-trailer: x\r\n" * 5_000, id="many trailers"),
        pytest.param(b"", b"1\r\nx\r\n" * 10_000, id="chunks of a byte"),
    ],
)
async def test_what_stands_around_chunks_is_bounded(start: bytes, piece: bytes) -> None:
    async with http_broker(MemoryStore()) as broker, connected(broker) as raw:
        await broker.client.put("/v1/topics/t", json={})
        await raw.send(CHUNKED + start)
        for _ in range(20):
            await raw.send(piece)
        answer = await raw.rest()
        assert answer.startswith(b"HTTP/1.1 400 ") and b"chunks" in answer
        assert refused(broker, "framing") == 1
        assert await broker.end_offsets("t") == {0: 0}
        assert broker.broker.front_store.pending_bytes == 0


async def test_small_chunks_and_trailers_are_served_and_a_trailer_is_no_header() -> None:
    async with http_broker(MemoryStore()) as broker, connected(broker) as raw:
        await broker.client.put("/v1/topics/t", json={})
        line = b'{"value":"0123456789012345678901234567890"}\n'
        await raw.send(CHUNKED.replace(b"t/messages", b"t/messages?acks=stored"))
        for _ in range(10):
            await raw.send(b"%x\r\n%b\r\n" % (len(line), line) * 1_000)
        await raw.send(b"0\r\nbraid-header-a: b\r\ncontent-type: application/json\r\n\r\n")
        assert b"HTTP/1.1 200 " in await raw.head()
        (message,) = (await broker.client.get("/v1/topics/t/messages")).json()["messages"]
        assert message["headers"] == {} and message["value"].count("\n") == 10_000


async def _trickle(raw: Raw, start: bytes) -> None:
    await raw.send(start)
    while True:
        await asyncio.sleep(0.05)
        await raw.send(b"x")


async def test_what_is_declared_and_does_not_come_takes_no_room() -> None:
    async with http_broker(MemoryStore(), front_store_bytes=MIB, max_body_bytes=MIB) as broker:
        await broker.client.put("/v1/topics/t", json={})
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(4):
                raw = await stack.enter_async_context(connected(broker))
                await raw.send(POST + b"content-length: 1000000\r\n\r\nx")
            await until_open(broker, 5)
            answer = await broker.client.post("/v1/topics/t/messages", content=b"x" * 500_000)
            assert answer.status_code == 200


@pytest.mark.parametrize("overflow", ["reject", "block"])
async def test_bodies_that_stall_give_way_to_others(overflow: str) -> None:
    async with http_broker(MemoryStore(), front_store_bytes=3 * MIB, max_body_bytes=MIB) as broker:
        await broker.client.put("/v1/topics/t", json={"overflow": overflow})
        front_store = broker.broker.front_store
        async with contextlib.AsyncExitStack() as stack:
            halves = [await stack.enter_async_context(connected(broker)) for _ in range(3)]
            for number, raw in enumerate(halves, 1):
                await raw.send(POST + b"content-length: %d\r\n\r\n" % MIB + bytes(MIB - 1))
                # All of it is there before the next one begins: so the first is the one that stalls first.
                await until(lambda number=number: front_store.pending_bytes == number * (MIB - 1))
            await until(lambda: front_store.has_stalled)
            answer = await broker.client.post("/v1/topics/t/messages", content=b"x" * 1000)
            assert answer.status_code == 200
            assert (await halves[0].head()).startswith(b"HTTP/1.1 408 ")
            await halves[1].send(b"x")
            assert (await halves[1].head()).startswith(b"HTTP/1.1 200 ")


async def test_a_connection_without_a_request_ends() -> None:
    async with (
        http_broker(MemoryStore(), idle_timeout=0.4) as broker,
        connected(broker) as silent,
        connected(broker) as served,
    ):
        await served.send(GET + b"\r\n")
        assert (await served.head()).startswith(b"HTTP/1.1 200 ")
        assert await silent.rest() == b""
        await served.rest()


async def test_a_long_poll_and_a_stream_outlive_every_time_out() -> None:
    short = {"idle_timeout": 0.2, "head_timeout": 0.2, "stall_timeout": 0.2}
    async with http_broker(MemoryStore(), **short) as broker, connected(broker) as polls, connected(broker) as streams:
        await broker.client.put("/v1/topics/t", json={})
        await polls.send(b"GET /v1/topics/t/messages?from=latest&wait=20 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await streams.send(b"GET /v1/topics/t/subscribe?from=latest HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b" 200 " in await streams.head()
        async with connected(broker) as silent:
            for _ in range(3):  # three idle connections after each other end of old age
                async with connected(broker) as silent:
                    await silent.rest()
        (await broker.client.post("/v1/topics/t/messages", content=b"hello")).raise_for_status()
        assert b" 200 " in await polls.head()
        assert b"hello" in await asyncio.wait_for(streams._reader.readuntil(b"hello"), TIMEOUT_SECONDS)


async def test_past_the_limit_who_is_idle_gives_way_and_requests_go_on() -> None:
    async with http_broker(MemoryStore(), connections=8) as broker, contextlib.AsyncExitStack() as stack:
        await broker.client.put("/v1/topics/t", json={})
        busy = await stack.enter_async_context(connected(broker))
        await busy.send(b"GET /v1/topics/t/messages?from=latest&wait=20 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        idle = [await stack.enter_async_context(connected(broker)) for _ in range(20)]
        assert await idle[0].rest() == b""
        await idle[-1].send(GET + b"connection: close\r\n\r\n")
        assert (await idle[-1].rest()).startswith(b"HTTP/1.1 200 ")
        (await broker.client.post("/v1/topics/t/messages", content=b"x")).raise_for_status()
        assert b" 200 " in await busy.head()
        assert refused(broker, "gave-way") >= 13


async def test_where_all_are_busy_others_are_told_and_brokers_are_served() -> None:
    async with http_broker(MemoryStore(), connections=8) as broker, contextlib.AsyncExitStack() as stack:
        await broker.client.put("/v1/topics/t", json={})
        await broker.client.aclose()
        await until_open(broker, 0)
        for _ in range(8):
            busy = await stack.enter_async_context(connected(broker))
            await busy.send(b"GET /v1/topics/t/subscribe?from=latest HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await busy.head()
        async with connected(broker) as other:
            await other.send(GET + b"\r\n")
            answer = await other.rest()
            assert answer.startswith(b"HTTP/1.1 503 ") and b"urn:braidmq:too-many-connections" in answer
            assert b"retry-after" in answer
        async with connected(broker) as peer:
            await peer.send(b"POST /internal/v1/nothing HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert not (await peer.rest()).startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize(
    "path", ["messages?limit=1&max_bytes=33554432", "messages/0-0/payload", "subscribe?from=earliest"]
)
async def test_an_answer_that_is_not_taken_is_given_up(path: str) -> None:
    async with http_broker(MemoryStore(), stall_timeout=0.5, connections=8) as broker:
        await broker.client.put("/v1/topics/t", json={})
        for _ in range(4):
            (await broker.client.post("/v1/topics/t/messages", content=bytes(8 * MIB))).raise_for_status()
        async with connected(broker) as slow:
            await slow.send(f"GET /v1/topics/t/{path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            await slow.head()
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while not refused(broker, "answer-late"):
                    await asyncio.sleep(0.01)
                while broker.broker.streams.count or broker.broker.read_budget.held_bytes:
                    await asyncio.sleep(0.01)
            await until_open(broker, 1)


async def test_requests_far_ahead_of_their_answers_end_the_connection() -> None:
    async with http_broker(MemoryStore()) as broker, connected(broker) as raw:
        await broker.client.put("/v1/topics/t", json={})
        await raw.send(b"GET /v1/topics/t/messages?from=latest&wait=20 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await raw.send((GET + b"\r\n") * 1000)
        # It is reset where the broker has not read all of them.
        with contextlib.suppress(ConnectionResetError):
            assert await raw.rest() == b""
        assert refused(broker, "ahead") == 1


async def test_a_few_requests_ahead_are_answered_in_order() -> None:
    async with http_broker(MemoryStore()) as broker, connected(broker) as raw:
        await raw.send((GET + b"\r\n") * 20 + GET + b"connection: close\r\n\r\n")
        assert (await raw.rest()).count(b"HTTP/1.1 200 ") == 21


async def test_bodies_that_nobody_reads_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mq.process.connections.connections.UNREAD_BYTES", 3 * MIB)
    async with http_broker(MemoryStore()) as broker, contextlib.AsyncExitStack() as stack:
        await broker.client.put("/v1/topics/t", json={})
        polls = b"GET /v1/topics/t/messages?from=latest&wait=20 HTTP/1.1\r\nhost: localhost\r\n"
        senders = [await stack.enter_async_context(connected(broker)) for _ in range(40)]
        for each in senders:
            await each.send(polls + b"content-length: 250000\r\n\r\n" + bytes(200_000))
        answer = await senders[0].rest()
        assert answer.startswith(b"HTTP/1.1 503 ") and b"urn:braidmq:too-many-connections" in answer
        (await broker.client.post("/v1/topics/t/messages", content=bytes(MIB))).raise_for_status()
        assert b" 200 " in await senders[-1].head()


async def test_a_body_that_the_broker_does_not_read_yet_is_not_late() -> None:
    async with http_broker(MemoryStore(), stall_timeout=0.2) as broker, connected(broker) as raw:
        await broker.client.put("/v1/topics/t", json={})
        polls = b"GET /v1/topics/t/messages?from=latest&wait=20 HTTP/1.1\r\nhost: localhost\r\n"
        await raw.send(polls + b"content-length: 9000000\r\n\r\n" + bytes(500_000))
        async with connected(broker) as late:
            await late.send(POST + b"content-length: 10\r\n\r\n")
            assert b" 408 " in await late.head()
        (await broker.client.post("/v1/topics/t/messages", content=b"x")).raise_for_status()
        assert b" 200 " in await raw.head()
