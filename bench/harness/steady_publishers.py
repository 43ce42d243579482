"""Publishers that send steadily while segments change, straight to the owners and through other brokers."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import aiohttp

from bench.harness.server_process import BenchFailed
from braidmq import AsyncClient, AsyncProducer
from filer.slots import slot_of

Variant = Literal["client", "owner", "forwarded"]
PAUSE_SECONDS = 0.01
FORWARDED_EVERY_SECONDS = 0.16
OWNERS_EVERY_SECONDS = 0.02
ANSWER_SECONDS = 60.0
_MOST_UNANSWERED = 2_000
_VALUE = b"steady"


@dataclass(frozen=True, slots=True)
class Published:
    """One acknowledged message: when it was (first) sent and acknowledged, and its segment."""

    variant: Variant
    slot: int
    sent: float
    acknowledged: float
    segment: int

    @property
    def seconds(self) -> float:
        """How long the publisher waited."""
        return self.acknowledged - self.sent


class SteadyPublishers:
    """Publishers in three variants, running within `async with`.

    *Client*: for each key a producer of the Python client, one message after the other. *Forwarded*: for each key plain
    HTTP to the broker that `entries` names for it. *Owner*: plain HTTP to each broker of `owned`, for its keys in
    turn. The latter two send at fixed times, however long the answers take, so that some message is always sent just
    before and just after a change.
    """

    def __init__(self, topic: str, keys: Sequence[str], urls: Sequence[str]) -> None:
        self.published: list[Published] = []
        self.refused = 0
        self.owned: Sequence[tuple[str, Sequence[str]]] = []
        self.entries: Mapping[str, str] = dict.fromkeys(keys, urls[0])
        self._topic, self._keys, self._urls = topic, keys, list(urls)
        self._unanswered: set[asyncio.Task[None]] = set()
        self._publishers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "SteadyPublishers":
        self._client = AsyncClient(self._urls)
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)
        self._publishers.append(asyncio.create_task(self._publish_to_owners()))
        for number, key in enumerate(self._keys):
            apart_seconds = FORWARDED_EVERY_SECONDS * number / len(self._keys)
            self._publishers.append(asyncio.create_task(self._publish_by_client(key)))
            self._publishers.append(asyncio.create_task(self._publish_forwarded(key, apart_seconds)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (*self._publishers, *self._unanswered):
            task.cancel()
        await asyncio.gather(*self._publishers, *self._unanswered, return_exceptions=True)
        await self._http.close()
        await self._client.aclose()

    async def answered(self) -> None:
        """Wait until everything sent so far is acknowledged. Raises the error of a publisher that has failed."""
        await asyncio.gather(*list(self._unanswered))
        for publisher in self._publishers:
            if publisher.done():
                publisher.result()

    async def _publish_by_client(self, key: str) -> None:
        async with self._client.producer(self._topic) as producer:
            while True:
                await self._begin(key, "client", lambda: _produced(producer, key))
                await asyncio.sleep(PAUSE_SECONDS)

    async def _publish_forwarded(self, key: str, apart_seconds: float) -> None:
        await asyncio.sleep(apart_seconds)
        async for _ in _at_fixed_times(FORWARDED_EVERY_SECONDS):
            self._post_soon(key, "forwarded", self.entries[key])

    async def _publish_to_owners(self) -> None:
        async for number in _at_fixed_times(OWNERS_EVERY_SECONDS):
            for url, keys in self.owned:
                self._post_soon(keys[number % len(keys)], "owner", url)

    def _post_soon(self, key: str, variant: Variant, broker_url: str) -> None:
        if len(self._unanswered) > _MOST_UNANSWERED:
            raise BenchFailed(f"{_MOST_UNANSWERED} publishes have no answer: the machine cannot keep up")
        self._begin(key, variant, lambda: self._post(key, broker_url))

    def _begin(self, key: str, variant: Variant, send: Callable[[], Awaitable[int | None]]) -> asyncio.Task[None]:
        once = asyncio.create_task(self._publish(key, variant, send))
        self._unanswered.add(once)
        once.add_done_callback(self._unanswered.discard)
        return once

    async def _publish(self, key: str, variant: Variant, send: Callable[[], Awaitable[int | None]]) -> None:
        sent = time.perf_counter()
        while (segment := await send()) is None:
            self.refused += 1
            await asyncio.sleep(PAUSE_SECONDS)
        self.published.append(Published(variant, slot_of(key.encode()), sent, time.perf_counter(), segment))

    async def _post(self, key: str, broker_url: str) -> int | None:
        """The segment that accepted the message, or None if it was refused."""
        url = f"{broker_url}/v1/topics/{self._topic}/messages"
        async with self._http.post(url, params={"key": key}, data=_VALUE) as answer:
            document = await answer.json(content_type=None)
            return int(document["positions"][0]["segment"]) if answer.status == 200 else None


async def _at_fixed_times(apart_seconds: float) -> AsyncIterator[int]:
    """Yield consecutive numbers at fixed intervals, however long the caller takes."""
    due = time.perf_counter()
    for number in itertools.count():
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        due += apart_seconds
        yield number


async def _produced(producer: AsyncProducer, key: str) -> int:
    """The segment that accepted the message."""
    acknowledgement = await (await producer.send(_VALUE, key=key))
    return acknowledgement.positions[0].segment
