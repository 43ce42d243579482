"""What readers can make a broker hold: pages by decoded bytes, all reads together, streams, segments per request."""

import asyncio
import base64
import contextlib
import gzip
import io
import os
import re
import socket
from collections.abc import AsyncIterator, Callable

import pyarrow as pa
import pytest

from filer.stores.memory_store import MemoryStore
from mq.forms.formats import ARROW, NDJSON, SSE
from mq.http.endpoints.subscribe import LARGEST_PAGE_BYTES
from mq.http.pieces import PIECE_BYTES
from mq.limits import read_budget
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem

PATIENCE_SECONDS = 20.0
MIB = 1024 * 1024
MESSAGES = "/v1/topics/t/messages"
COUNT = 12
BODY = gzip.compress(b"a" * MIB)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def connect(broker: HttpBroker) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection of which this machine takes as little as possible before somebody reads it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", broker.port))
    return await asyncio.open_connection(sock=sock, limit=1024)


@contextlib.asynccontextmanager
async def broker_of_large_messages(**settings: int) -> AsyncIterator[HttpBroker]:
    """Messages of 1 MiB that take a kilobyte each on the store, and are not in memory any more."""
    async with http_broker(MemoryStore(), front_store_bytes=8 * MIB, file_cache_bytes=MIB, **settings) as broker:
        (await broker.client.put("/v1/topics/t", json={"segments": 2})).raise_for_status()
        for number in range(COUNT):
            sent = {"content-encoding": "gzip"}
            answer = await broker.client.post(f"{MESSAGES}?key={number}", content=BODY, headers=sent)
            answer.raise_for_status()
        yield broker


@pytest.mark.parametrize("accept", ["application/json", NDJSON, ARROW])
async def test_a_page_is_bounded_by_what_its_messages_take_decoded(accept: str) -> None:
    async with broker_of_large_messages() as broker:
        query, keys, pages = f"max_bytes={3 * MIB}", set(), 0
        while len(keys) < COUNT:
            answer = (await broker.client.get(f"{MESSAGES}?{query}", headers={"accept": accept})).raise_for_status()
            assert MIB < len(answer.content) <= 4.1 * MIB
            found = _keys(accept, answer.content)
            assert not keys & set(found)
            keys |= set(found)
            pages += 1
            marker = answer.json()["marker"] if accept == "application/json" else answer.headers["braid-marker"]
            query = f"max_bytes={3 * MIB}&marker={marker}"
        assert pages >= COUNT / 4
        assert broker.broker.read_budget.held_bytes == 0


def _keys(accept: str, body: bytes) -> list[str]:
    if accept == ARROW:
        return [key.decode() for key in pa.ipc.open_stream(io.BytesIO(body)).read_all()["key"].to_pylist()]
    return [key.decode() for key in re.findall(rb'"key":"(\d+)"', body)]


async def test_a_message_larger_than_the_page_comes_alone() -> None:
    async with broker_of_large_messages() as broker:
        answer = (await broker.client.get("/v1/topics/t/segments/0/messages?max_bytes=1000")).json()
        assert len(answer["messages"]) == 1
        assert answer["next_offset"] == 1


async def test_a_message_larger_than_the_page_of_a_reader_or_than_all_reads_is_readable() -> None:
    large = os.urandom(6 * MIB)
    async with http_broker(MemoryStore(), read_bytes=4 * MIB, front_store_bytes=32 * MIB) as broker:
        (await broker.client.put("/v1/topics/t")).raise_for_status()
        for value in (large, b"x"):  # the second takes the first from memory
            (await broker.client.post(MESSAGES, content=value)).raise_for_status()
        first = broker.client.get("/v1/topics/t/messages/0-0/payload")
        small = broker.client.get("/v1/topics/t/messages/0-1/payload")
        for answer, value in zip(await asyncio.gather(first, small), (large, b"x"), strict=True):
            assert answer.raise_for_status().content == value
        found = (await broker.client.get(f"{MESSAGES}?max_bytes=1")).json()["messages"]
        assert base64.b64decode(found[0]["value_base64"]) == large
        held = broker.broker.read_budget
        assert held.held_bytes == 0


async def test_answers_that_nobody_takes_leave_others_429_until_they_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_budget, "WAIT_SECONDS", 0.05)
    async with broker_of_large_messages(read_bytes=64 * MIB) as broker:
        held = broker.broker.read_budget
        reader, writer = await connect(broker)
        # More than the buffers of the machine take.
        head = f"GET {MESSAGES}?max_bytes={32 * MIB} HTTP/1.1\r\nHost: localhost\r\nAccept: {ARROW}"
        writer.write(f"{head}\r\n\r\n".encode())
        await reader.readline()
        await until(lambda: held.held_bytes >= COUNT * MIB)
        others = held.lease()
        others.keep(64 * MIB - held.held_bytes)
        answer = await broker.client.get(f"{MESSAGES}?max_bytes={4 * MIB}")
        check_problem(answer, 429, "reads-full", "--read-bytes")
        assert answer.headers["retry-after"] == "1"
        text = (await broker.client.get("/metrics")).text
        assert float(re.search(r"^braidmq_read_bytes (\S+)$", text, re.MULTILINE)[1]) == held.held_bytes  # type: ignore[index]
        writer.transport.abort()
        await until(lambda: held.held_bytes == others.held_bytes)
        others.release()
        (await broker.client.get(f"{MESSAGES}?max_bytes={4 * MIB}")).raise_for_status()


async def test_long_polls_hold_nothing_while_they_wait() -> None:
    async with http_broker(MemoryStore(), read_bytes=MIB) as broker:
        (await broker.client.put("/v1/topics/t")).raise_for_status()
        polls = [asyncio.create_task(broker.client.get(f"{MESSAGES}?wait=20")) for _ in range(8)]
        await asyncio.sleep(0)
        (await broker.client.get(MESSAGES)).raise_for_status()
        assert broker.broker.read_budget.held_bytes == 0
        (await broker.client.post(MESSAGES, content=b"x")).raise_for_status()
        assert [len(answer.json()["messages"]) for answer in await asyncio.gather(*polls)] == [1] * 8


@pytest.mark.parametrize("accept", [SSE, NDJSON])
async def test_subscribers_that_stall_hold_a_small_page_each(accept: str) -> None:
    stalled = 20
    async with http_broker(MemoryStore(), read_bytes=64 * MIB) as broker:
        (await broker.client.put("/v1/topics/t")).raise_for_status()
        line = b'{"value": "%b"}\n' % (b"x" * 5_000)
        for _ in range(4):
            kind = {"content-type": NDJSON}
            (await broker.client.post(MESSAGES, content=line * 1000, headers=kind)).raise_for_status()
        async with contextlib.AsyncExitStack() as connections:
            for _ in range(stalled):
                reader, writer = await connect(broker)
                connections.callback(lambda each: each.transport.abort(), writer)
                head = f"GET /v1/topics/t/subscribe?from=earliest HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}"
                writer.write(f"{head}\r\n\r\n".encode())
                await reader.readline()
            await until(lambda: broker.broker.streams.count == stalled)
            # One that reads gets everything, as long as the others hold what they hold.
            async with broker.client.stream(
                "GET", "/v1/topics/t/subscribe?from=earliest", headers={"accept": accept}
            ) as stream:
                found = 0
                async for each in stream.aiter_lines():
                    found += '"value"' in each
                    if found == 4_000:
                        break
            assert broker.broker.read_budget.held_bytes <= (stalled + 1) * (LARGEST_PAGE_BYTES + PIECE_BYTES)
        await until(lambda: broker.broker.streams.count == 0)
        await until(lambda: broker.broker.read_budget.held_bytes == 0)


@pytest.mark.parametrize(
    ("limits", "what"), [({"max_streams": 2}, "--max-streams"), ({"streams_per_address": 2}, "--streams-per-address")]
)
async def test_subscriptions_have_a_limit(limits: dict[str, int], what: str) -> None:
    async with http_broker(MemoryStore(), **limits) as broker, contextlib.AsyncExitStack() as streams:
        (await broker.client.put("/v1/topics/t")).raise_for_status()
        first = contextlib.AsyncExitStack()
        await first.enter_async_context(broker.client.stream("GET", "/v1/topics/t/subscribe"))
        await streams.enter_async_context(broker.client.stream("GET", "/v1/topics/t/subscribe"))
        await until(lambda: broker.broker.streams.count == 2)
        answer = await broker.client.get("/v1/topics/t/subscribe")
        check_problem(answer, 429, "too-many-streams", what)
        await first.aclose()
        await until(lambda: broker.broker.streams.count == 1)
        async with broker.client.stream("GET", "/v1/topics/t/subscribe") as stream:
            assert stream.status_code == 200


async def test_one_request_opens_so_many_segments() -> None:
    async with http_broker(MemoryStore(), segments_per_request=8) as broker:
        client, wide = broker.client, {"max_segments": 4096}
        answer = await client.put("/v1/topics/t", json={"segments": 9, **wide})
        check_problem(answer, 422, "invalid-config", "segments is 9", "at most 8", "--segments-per-request")
        answer = await client.put("/v1/topics/t", json={"min_segments": 9, **wide})
        check_problem(answer, 422, "invalid-config", "min_segments is 9", "at most 8")
        (await client.put("/v1/topics/t", json={"segments": 8, **wide})).raise_for_status()
        answer = await client.put("/v1/topics/t", json={"min_segments": 17})
        check_problem(answer, 422, "invalid-config", "min_segments is 17", "at most 8")
        answer = await client.post("/v1/topics/t/segments/0/split", json={"parts": 9})
        check_problem(answer, 422, "invalid-config", "at most 8")
        (await client.post("/v1/topics/t/segments/0/split", json={"parts": 8})).raise_for_status()
        (await client.put("/v1/topics/t", json={"min_segments": 16})).raise_for_status()


async def test_the_page_of_the_api_runs_only_the_brokers_own_scripts() -> None:
    async with http_broker(MemoryStore()) as broker:
        page = await broker.client.get("/docs")
        assert page.headers["content-type"].startswith("text/html")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy
        named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert len(named) == 4
        for name in named:
            assert "//" not in name
            file = await broker.client.get(f"/{name}")
            assert file.status_code == 200 and file.content, name
        assert "SwaggerUIBundle" in (await broker.client.get("/docs/swagger-ui-bundle.js")).text
        assert (await broker.client.get("/openapi.json")).status_code == 200
        check_problem(await broker.client.get("/docs/other.js"), 404, "path-not-found")
        check_problem(await broker.client.get("/redoc"), 404, "not-found")
