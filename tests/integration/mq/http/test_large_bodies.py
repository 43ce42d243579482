"""Bodies that go past the HTTP parser, over real sockets: what arrives is what is stored, and limits hold."""

import asyncio
import gzip
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

from filer.stores.memory_store import MemoryStore
from tests.integration.mq.http.test_connections import Raw, connected
from tests.support.broker.http_broker import HttpBroker, http_broker

KIB = 1024
LIMIT_BYTES = 1000 * KIB
ARROW, JSON = "application/vnd.apache.arrow.stream", "application/json"
VALUES = [bytes(range(256)) * 3 + bytes([number % 251]) for number in range(500)]


@pytest.fixture
async def topic() -> AsyncIterator[HttpBroker]:
    async with http_broker(MemoryStore(), max_body_bytes=LIMIT_BYTES) as broker:
        (await broker.client.put("/v1/topics/t", json={"segments": 1})).raise_for_status()
        yield broker


def post(body: bytes, content_type: str, *, more: str = "", method: str = "POST") -> bytes:
    head = f"{method} /v1/topics/t/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\n"
    return f"{head}{more}content-length: {len(body)}\r\n\r\n".encode() + body


async def answer(connection: Raw) -> tuple[int, bytes]:
    head = await connection.head()
    lines = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
    return int(head.split()[1]), await connection.exactly(int(lines[b"content-length"]))


async def stored(broker: HttpBroker) -> list[Any]:
    page = await broker.client.get(
        "/v1/topics/t/messages", params={"from": "earliest", "limit": 10_000}, headers={"accept": ARROW}
    )
    rows: list[Any] = pa.ipc.open_stream(page.raise_for_status().content).read_all()["value"].to_pylist()
    return rows


def arrow_body() -> bytes:
    table, sink = pa.table({"value": pa.array(VALUES, pa.binary())}), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def json_body() -> bytes:
    return json.dumps({"messages": [{"value": value.hex()} for value in VALUES[:200]]}).encode()


FORMS = {
    "arrow": (arrow_body(), ARROW, "", VALUES),
    "json": (json_body(), JSON, "", [value.hex().encode() for value in VALUES[:200]]),
    "raw": (b"".join(VALUES), "application/octet-stream", "", [b"".join(VALUES)]),
    "gzip": (gzip.compress(arrow_body(), 0), ARROW, "content-encoding: gzip\r\n", VALUES),
}


@pytest.mark.parametrize("form", FORMS)
async def test_a_large_body_of_each_form_is_stored_as_it_was_sent(topic: HttpBroker, form: str) -> None:
    body, content_type, more, values = FORMS[form]
    sent = post(body, content_type, more=more)
    assert len(body) >= 64 * KIB
    async with connected(topic) as connection:
        # One whole, one in pieces of odd sizes, and two that arrive together.
        await connection.send(sent)
        assert (await answer(connection))[0] == 200
        sizes = itertools.cycle([1, 100, 70_001, 3, 300_007])
        at = 0
        while at < len(sent):
            size = next(sizes)
            await connection.send(sent[at : at + size])
            at += size
            await asyncio.sleep(0)
        assert (await answer(connection))[0] == 200
        await connection.send(sent + sent)
        assert [(await answer(connection))[0] for _ in range(2)] == [200, 200]
    assert await stored(topic) == values * 4


async def test_a_body_may_have_as_many_bytes_as_the_limit_and_none_more(topic: HttpBroker) -> None:
    async with connected(topic) as connection:
        await connection.send(post(bytes(LIMIT_BYTES), "x/y"))
        assert (await answer(connection))[0] == 200
        await connection.send(post(bytes(LIMIT_BYTES + 1), "x/y") + post(b"after", "x/y"))
        status, problem = await answer(connection)
        assert status == 413 and b"body-too-large" in problem
        assert (await answer(connection))[0] == 200
    assert await stored(topic) == [bytes(LIMIT_BYTES), b"after"]


async def test_a_client_that_waits_to_be_asked_is_asked_for_a_large_body(topic: HttpBroker) -> None:
    sent = post(bytes(300 * KIB), "x/y", more="expect: 100-continue\r\n")
    begin = sent.index(b"\r\n\r\n") + 4
    async with connected(topic) as connection:
        await connection.send(sent[:begin])
        assert (await connection.head()).startswith(b"HTTP/1.1 100 ")
        await connection.send(sent[begin:])
        assert (await answer(connection))[0] == 200
    assert await stored(topic) == [bytes(300 * KIB)]


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_a_large_body_that_an_endpoint_does_not_want_holds_up_nothing(topic: HttpBroker, method: str) -> None:
    async with connected(topic) as connection:
        await connection.send(post(bytes(300 * KIB), "x/y", method=method) + post(b"after", "x/y"))
        await answer(connection)
        assert (await answer(connection))[0] == 200
    assert await stored(topic) == [b"after"]


async def test_a_client_that_goes_in_the_middle_of_a_large_body_stores_nothing(topic: HttpBroker) -> None:
    sent = post(b"".join(VALUES), "x/y")
    for size in (len(sent) - 1, len(sent) // 2, 70 * KIB):
        async with connected(topic) as connection:
            await connection.send(sent[:size])
    async with asyncio.timeout(30):
        while topic.broker.front_store.pending_bytes:
            await asyncio.sleep(0.01)
    assert await stored(topic) == []


@pytest.mark.parametrize(
    "more",
    ["transfer-encoding: chunked\r\n", "content-length: 70000\r\n", "transfer-encoding: identity\r\n"],
)
async def test_a_large_body_of_two_lengths_is_refused(topic: HttpBroker, more: str) -> None:
    async with connected(topic) as connection:
        await connection.send(post(bytes(80_000), "x/y", more=more))
        assert (await connection.head()).startswith(b"HTTP/1.1 400 ")
    assert await stored(topic) == []
