"""Streams: server-sent events and NDJSON."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from filer.stores.memory_store import MemoryStore
from mq.http.streaming import live_streams
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem

SUBSCRIBE = "/v1/topics/t/subscribe"
MESSAGES = "/v1/topics/t/messages"
SECONDS = 20
SSE, NDJSON = "text/event-stream", "application/x-ndjson"


class Stream:
    """One open subscription; `next` gives (kind, marker, document)."""

    def __init__(self, kind: str, lines: AsyncIterator[str]) -> None:
        self._kind, self._lines = kind, lines

    async def next(self) -> tuple[str, str, Any]:
        async with asyncio.timeout(SECONDS):
            return await (self._event() if self._kind == SSE else self._line())

    async def values(self, count: int) -> tuple[list[Any], str]:
        """The values of that many messages, and the marker after them."""
        found: list[Any] = []
        marker = ""
        while len(found) < count:
            kind, marker, document = await self.next()
            if kind == "message":
                found.append(document["value"])
            assert kind in ("message", "keepalive"), document
        return found, marker

    async def _event(self) -> tuple[str, str, Any]:
        fields: dict[str, str] = {}
        async for line in self._lines:
            if line.startswith(":"):
                fields["event"] = "keepalive"
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            else:
                return fields["event"], fields.get("id", ""), json.loads(fields.get("data", "null"))
        raise EOFError

    async def _line(self) -> tuple[str, str, Any]:
        async for line in self._lines:
            document = json.loads(line)
            kind = next(name for name in ("message", "keepalive", "end") if name in document)
            return kind, document["marker"], document[kind] if kind == "message" else document
        raise EOFError


@contextlib.asynccontextmanager
async def subscribed(
    broker: HttpBroker, kind: str, headers: dict[str, str] | None = None, **params: str
) -> AsyncIterator[Stream]:
    request = {"accept": kind} | (headers or {})
    async with broker.client.stream("GET", SUBSCRIBE, params=params, headers=request) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].partition(";")[0] == kind
        yield Stream(kind, answer.aiter_lines())


async def publish(broker: HttpBroker, *values: Any) -> None:
    body = {"messages": [{"key": "k", "value": value} for value in values]}
    (await broker.client.post(MESSAGES, json=body)).raise_for_status()


@pytest.fixture
async def topic(broker: HttpBroker) -> HttpBroker:
    (await broker.client.put("/v1/topics/t", json={"segments": 2})).raise_for_status()
    return broker


@pytest.mark.parametrize("kind", [SSE, NDJSON])
async def test_messages_arrive_as_they_are_published(topic: HttpBroker, kind: str) -> None:
    await publish(topic, "before")
    async with subscribed(topic, kind) as latest, subscribed(topic, kind, **{"from": "earliest"}) as all_of_them:
        assert (await latest.next())[0] == "keepalive"
        for n in range(20):
            await publish(topic, n, {"n": n}, "line\nbreak\r\n")
        expected = [value for n in range(20) for value in (n, {"n": n}, "line\nbreak\r\n")]
        assert (await latest.values(60))[0] == expected
        assert (await all_of_them.values(61))[0] == ["before", *expected]


@pytest.mark.parametrize("kind", [SSE, NDJSON])
async def test_streams_resume_from_every_marker(topic: HttpBroker, kind: str) -> None:
    await publish(topic, *range(5))
    await topic.broker.executor.give_successors("t", [0, 1], "roll")
    await publish(topic, *range(5, 10))
    async with subscribed(topic, kind, **{"from": "earliest"}) as stream:
        markers = [(await stream.values(1)) for _ in range(10)]
    for values, marker in markers:
        rest = list(range(values[0] + 1, 10))
        browsed = (await topic.client.get(MESSAGES, params={"marker": marker})).json()
        assert [m["value"] for m in browsed["messages"]] == rest
        async with subscribed(topic, kind, marker=marker) as stream:
            assert (await stream.values(len(rest)))[0] == rest
        if kind == SSE:
            # A browser repeats its first address and says in a header how far it has got.
            headers = {"last-event-id": marker}
            async with subscribed(topic, kind, headers, **{"from": "earliest"}) as stream:
                assert (await stream.values(len(rest)))[0] == rest


@pytest.mark.parametrize("kind", [SSE, NDJSON])
async def test_streams_show_that_they_live(topic: HttpBroker, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_streams, "KEEPALIVE_SECONDS", 0.02)
    async with subscribed(topic, kind) as stream:
        for _ in range(3):
            assert (await stream.next())[0] == "keepalive"
        await publish(topic, "still there")
        assert (await stream.values(1))[0] == ["still there"]


@pytest.mark.parametrize("kind", [SSE, NDJSON])
async def test_draining_ends_streams(topic: HttpBroker, kind: str) -> None:
    async with subscribed(topic, kind) as stream:
        assert (await stream.next())[0] == "keepalive"
        await publish(topic, 1)
        assert (await stream.values(1))[0] == [1]
        await topic.broker.drain()
        event, marker, document = await stream.next()
        assert (event, document["end"]) == ("end", "draining")
        with pytest.raises(EOFError):
            await stream.next()
    page = (await topic.client.get(MESSAGES, params={"marker": marker})).json()
    assert page["messages"] == []


@pytest.mark.parametrize("kind", [SSE, NDJSON])
async def test_deleting_the_topic_ends_streams(topic: HttpBroker, kind: str) -> None:
    async with subscribed(topic, kind) as stream:
        assert (await stream.next())[0] == "keepalive"
        await topic.client.delete("/v1/topics/t")
        event, _, document = await stream.next()
        assert (event, document["end"]) == ("end", "deleted")
        with pytest.raises(EOFError):
            await stream.next()


async def test_readers_that_leave_are_forgotten(topic: HttpBroker) -> None:
    for _ in range(5):
        async with subscribed(topic, SSE) as stream:
            await stream.next()
    async with asyncio.timeout(SECONDS):
        while b"braidmq_streams 0.0" not in b"".join(topic.broker.metrics.pieces()):
            await publish(topic, "to somebody who left")


async def test_reader_that_falls_behind_skips_ahead_where_the_topic_says_so() -> None:
    """Under `drop_oldest` a live reader that stops reading goes on with what is at hand, in order."""
    mib = 1024 * 1024
    async with http_broker(MemoryStore(), front_store_bytes=4 * mib) as broker:
        await broker.client.put("/v1/topics/t", json={"overflow": "drop_oldest"})
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, limit=1024)
        with contextlib.closing(writer):
            writer.write(f"GET {SUBSCRIBE} HTTP/1.1\r\nHost: localhost\r\nAccept: {NDJSON}\r\n\r\n".encode())
            await reader.readuntil(b"keepalive")
            filler = "x" * 40_000
            for n in range(400):
                await publish(broker, f"{n}:{filler}")
            await publish(broker, "end:")
            read = b""
            async with asyncio.timeout(SECONDS):
                while b'"value":"end:"' not in read:
                    read += await reader.read(mib)
        numbers = [int(part.split(b":")[0]) for part in read.split(b'"value":"')[1:] if part[:1].isdigit()]
        assert numbers == sorted(set(numbers))
        assert len(numbers) < 400
        assert numbers[-1] == 399


async def test_refusals_are_answers_not_streams(topic: HttpBroker) -> None:
    answer: httpx.Response = await topic.client.get(SUBSCRIBE, headers={"last-event-id": "forged"})
    check_problem(answer, 400, "invalid-marker")
    answer = await topic.client.get(SUBSCRIBE, headers={"last-event-id": b"\xe9"})
    check_problem(answer, 400, "invalid-marker")
