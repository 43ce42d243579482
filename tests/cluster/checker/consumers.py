"""Consumers at any broker: streams that reconnect by marker, pages one after the other, and the Python client."""

import asyncio
import base64
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx
import orjson

from braidmq import AsyncClient, BraidMQError
from filer.topic.positions import from_marker
from tests.cluster.checker.gaps import gap_in
from tests.cluster.checker.history import GARBLED, REACHED, Found, Reader, Start, Visit

PAGE_ROWS = 1000
# For who reads it all: each page may read files again.
WHOLE_PAGE_ROWS = 10_000
PAGE_WAIT_SECONDS = 0.5
REMEMBERED_MARKERS = 50
REWIND_CHANCE = 0.2
RETRY_PAUSE_SECONDS = 0.1
DETAIL_CHARS = 300
READ_TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True)
class Consumer:
    """One reader of a topic. With `rewinds` it goes back to an older marker now and then.

    A stream moves to another broker when its connection ends, breaks, is silent for long, or is
    `reconnect_seconds` old; a browser may ask another broker for each page. `pause_seconds` lie between two visits.
    """

    name: str
    topic: str
    form: Literal["stream", "browse", "client"]
    start: Start = "earliest"
    rewinds: bool = False
    reconnect_seconds: float | None = None
    pause_seconds: float = 0.0


class Follower:
    """Reads for a consumer and records what it gets. `silence_seconds` is how long it waits for more."""

    def __init__(self, consumer: Consumer, now: Callable[[], float], seed: int, *, silence_seconds: float) -> None:
        self._consumer, self._now, self._silence_seconds = consumer, now, silence_seconds
        self._chance = random.Random(f"{seed} {consumer.name}")
        self._marker: str | None = None
        self._behind = 0
        self._markers: deque[tuple[int, str]] = deque(maxlen=REMEMBERED_MARKERS)
        self._count = 0
        self._reached: dict[int, int] = {}
        self._hurries = False
        self.record = Reader(consumer.name, consumer.topic, consumer.form, consumer.start)

    def hurry(self) -> None:
        """Go for the end from now on: who goes back again and again may never get there from far behind."""
        self._hurries = True

    def has_reached(self, ends: Mapping[int, int]) -> bool:
        """Whether it got everything before these end offsets, as far as its start allows."""
        if self.record.joined_seconds is None:
            return False
        begun = self.record.positions
        # Segments that are newer than all it began with have higher ids; older ones were never its to read.
        newest = max(begun, default=-1) if begun is not None else -1
        mine = {s: end for s, end in ends.items() if begun is None or s in begun or s > newest}
        return all(self._reached.get(segment, 0) >= end for segment, end in mine.items())

    async def follow(self, client: httpx.AsyncClient, urls: Sequence[str]) -> None:
        """Visit one broker after the other until cancelled. `urls` may change in the meantime."""
        visit = {"stream": self._stream, "browse": self._page, "client": self._subscribe}[self._consumer.form]
        while True:
            before = self._count
            if urls:
                await self._visit(visit, client, self._chance.choice(urls))
            retry_seconds = RETRY_PAUSE_SECONDS if self._count == before else 0.0
            await asyncio.sleep(max(retry_seconds, 0.0 if self._hurries else self._consumer.pause_seconds))
            may_rewind = self._consumer.rewinds and not self._hurries
            if may_rewind and self._markers and self._chance.random() < REWIND_CHANCE:
                self._behind, self._marker = self._chance.choice(self._markers)

    async def _visit(
        self, read: Callable[[httpx.AsyncClient, Visit], Awaitable[None]], client: httpx.AsyncClient, url: str
    ) -> None:
        visit = Visit(url, self._behind, self._now())
        self._add(visit)
        try:
            async with asyncio.timeout(self._consumer.reconnect_seconds):
                await read(client, visit)
        except (httpx.TransportError, TimeoutError, BraidMQError) as error:
            visit.end = repr(error)[:DETAIL_CHARS]
        except (ValueError, KeyError, TypeError, AttributeError):
            visit.end = GARBLED
        finally:
            visit.ended_seconds = self._now()

    def _add(self, visit: Visit) -> None:
        """Of consecutive visits without any result, keep only the newest."""
        visits = self.record.visits
        silent = visits and not visits[-1].found and not visits[-1].told and visits[-1].end not in (REACHED, GARBLED)
        if silent and visits[-1].behind == visit.behind:
            visits.pop()
        visits.append(visit)

    def _params(self) -> dict[str, Any]:
        return {"from": self._consumer.start} if self._marker is None else {"marker": self._marker}

    async def _stream(self, client: httpx.AsyncClient, visit: Visit) -> None:
        address = f"{visit.url}/v1/topics/{self._consumer.topic}/subscribe"
        headers = {"accept": "application/x-ndjson"}
        async with client.stream(
            "GET", address, params=self._params(), headers=headers, timeout=self._silence_seconds
        ) as response:
            if response.status_code != 200:
                self._refused(visit, await response.aread())
                return
            visit.end = "cut"
            async for line in response.aiter_lines():
                document = orjson.loads(line)
                messages = [document["message"]] if "message" in document else []
                self._take(visit, self._found(messages), document["marker"])
                if "end" in document:
                    self._refused(visit, orjson.dumps(document.get("problem")))
                    visit.end = document["end"]

    async def _page(self, client: httpx.AsyncClient, visit: Visit) -> None:
        address = f"{visit.url}/v1/topics/{self._consumer.topic}/messages"
        bounds = {"limit": self._chance.choice((1, 10, PAGE_ROWS)), "wait": self._chance.choice((0, PAGE_WAIT_SECONDS))}
        response = await client.get(address, params=self._params() | bounds, timeout=self._silence_seconds)
        if response.status_code != 200:
            self._refused(visit, response.content)
            return
        page = response.json()
        self._take(visit, self._found(page["messages"]), page["marker"])
        if not page["messages"]:
            visit.end = REACHED

    async def _subscribe(self, client: httpx.AsyncClient, visit: Visit) -> None:
        """Read with the Python client, which finds the other brokers by itself and has its own connections."""
        visit.end = "cut"
        start = {"from_": self._consumer.start} if self._marker is None else {"marker": self._marker}
        async with AsyncClient(visit.url) as subscriber:
            async for message in subscriber.subscribe(self._consumer.topic, **start):
                found = Found(message.segment, message.offset, message.key, message.value, self._now())
                self._take(visit, [found], message.marker or "")

    def _refused(self, visit: Visit, problem: bytes) -> None:
        """Record a problem document, and the gap that it tells of, if any. The reader stays where it is."""
        visit.end = problem.decode(errors="replace")[:DETAIL_CHARS]
        if (gap := gap_in(problem)) is not None:
            visit.told.append(gap)

    def _found(self, messages: Sequence[Mapping[str, Any]]) -> list[Found]:
        """Parse everything before recording any of it, so that a bad message leaves nothing half recorded."""
        now_seconds = self._now()
        return [found_in(message, now_seconds) for message in messages]

    def _take(self, visit: Visit, found: Sequence[Found], marker: str) -> None:
        """Record messages and the marker after them."""
        if self.record.joined_seconds is None:
            self._join(found, marker)
        visit.found.extend(found)
        for message in found:
            self._reached[message.segment] = max(message.offset + 1, self._reached.get(message.segment, 0))
        self._count += len(found)
        if found:
            self._behind = self._count
            self._markers.append((self._behind, marker))
        self._marker = marker

    def _join(self, found: Sequence[Found], marker: str) -> None:
        if self._consumer.start == "latest":
            begun = from_marker(self._consumer.topic, marker)
            for message in reversed(found):
                begun[message.segment] = message.offset
            self.record.positions = begun
            self._reached |= begun
        self.record.joined_seconds = self._now()


async def read_pages(
    client: httpx.AsyncClient, url: str, topic: str, *, timeout_seconds: float = READ_TIMEOUT_SECONDS
) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
    """The messages of a topic from its start to its end, page by page by marker; raises `httpx.HTTPError`."""
    params: dict[str, Any] = {"from": "earliest", "limit": WHOLE_PAGE_ROWS}
    while True:
        response = await client.get(f"{url}/v1/topics/{topic}/messages", params=params, timeout=timeout_seconds)
        page = response.raise_for_status().json()
        if not page["messages"]:
            return
        yield page["messages"]
        params = {"marker": page["marker"], "limit": WHOLE_PAGE_ROWS}


async def read_topic(url: str, topic: str) -> list[Found]:
    """Every message of a topic in reading order. Raises as `read_pages`."""
    async with httpx.AsyncClient(timeout=READ_TIMEOUT_SECONDS, trust_env=False) as client:
        return [found_in(message) async for page in read_pages(client, url, topic) for message in page]


def found_in(message: Mapping[str, Any], at_seconds: float = 0.0) -> Found:
    """A message from the JSON of an answer."""
    return Found(message["segment"], message["offset"], _bytes(message, "key"), _bytes(message, "value"), at_seconds)


def _bytes(message: Mapping[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in message:
        return base64.b64decode(message[f"{name}_base64"])
    text = message.get(name)
    return None if text is None else str(text).encode()
