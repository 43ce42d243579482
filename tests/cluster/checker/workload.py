"""A workload on topics over real HTTP, and its history.

    load = Workload(
        [broker.url],
        producers=[Producer("raw-0", "events", "raw"), Producer("arrow-0", "events", "arrow", identified=True)],
        consumers=[Consumer("stream", "events", "stream"), Consumer("pages", "events", "browse", rewinds=True)],
    )
    async with load.running():
        with load.fault("kill"):
            ...                                # kill brokers, cut lines; `load.urls` may change meanwhile
        await load.read_to_the_end()
    assert judge(load.history) == []

Every producer numbers its messages per key, and sends a request only when it knows what became of the last one, so
per key the acknowledged numbers must come back in order. Without an id a producer sends no message twice: a request
whose outcome is not known counts as one that may be there once, or not at all. With an id it sends the same request
again, at one broker after the other, until it knows.
"""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime

import httpx

from tests.cluster.checker.consumers import Consumer, Follower, found_in, read_pages
from tests.cluster.checker.history import REACHED, Attempt, Fault, History, Reader, Request, Visit
from tests.cluster.checker.killed_consumers import KilledConsumer, ProcessConsumer
from tests.cluster.checker.producers import Producer, publish
from tests.cluster.checker.segment_reader import SegmentReader
from tests.support.cluster.access import Access

PAUSE_SECONDS = 0.02
RETRY_SECONDS = 0.1
TIMEOUT_SECONDS = 15.0
FINISH_SECONDS = 60.0
CAPACITY = 100_000
KEPT_ATTEMPTS = 50


class HistoryFull(AssertionError):
    """The workload has sent as many messages as a history holds: judge it, and start another one."""


class NoProgress(AssertionError):
    """Too few messages were acknowledged in time."""


class NotReadable(AssertionError):
    """No broker let a topic be read from its start to its end."""


class Workload:
    """Producers and consumers side by side, each at the broker that served it last.

    `urls` may be changed by whoever gave them. Of the consumers those that are `processes` may be killed at any time,
    as `consumer_processes`. A history holds `capacity` messages at most: with it full, producers
    stop. `finish_seconds` is the time that producers have for a last request of unknown outcome, and consumers for
    reading to the end.
    """

    def __init__(
        self,
        urls: list[str],
        *,
        producers: Iterable[Producer] = (),
        consumers: Iterable[Consumer] = (),
        processes: Iterable[ProcessConsumer] = (),
        seed: int = 0,
        timeout_seconds: float = TIMEOUT_SECONDS,
        finish_seconds: float = FINISH_SECONDS,
        capacity: int = CAPACITY,
        transport: httpx.AsyncBaseTransport | None = None,
        access: Access | None = None,
    ) -> None:
        self.urls = urls
        self.history = History(began=datetime.now(UTC).isoformat(), seed=seed)
        self._producers, self._origin = list(producers), time.monotonic()
        self._timeout_seconds, self._finish_seconds, self._capacity = timeout_seconds, finish_seconds, capacity
        self._transport, self._chance = transport, random.Random(seed)
        self._access = access or Access()
        self.consumer_processes = [KilledConsumer(each, self.now) for each in processes]
        self._followers: list[Follower | KilledConsumer] = list(self.consumer_processes)
        self.history.readers.extend(each.record for each in self.consumer_processes)
        self._read_by: httpx.AsyncClient | None = None
        self.add(*consumers)
        self._stop = asyncio.Event()
        self._publishing: list[asyncio.Task[None]] = []
        self._reading: list[asyncio.Task[None]] = []
        self._sent = 0
        self._acknowledged: Counter[str] = Counter()
        self._newest: dict[str, Request] = {}

    def now(self) -> float:
        """Seconds since the load was made, on a clock that only goes forward."""
        return time.monotonic() - self._origin

    def add(self, *consumers: Consumer) -> None:
        """Add consumers. While the workload runs, they begin to read at once."""
        for consumer in consumers:
            follower = Follower(consumer, self.now, self.history.seed, silence_seconds=self._timeout_seconds)
            self._followers.append(follower)
            self.history.readers.append(follower.record)
            if self._read_by is not None:
                self._reading.append(asyncio.create_task(follower.follow(self._read_by, self.urls)))

    async def read_meanwhile(self, consumer: Consumer, seconds: float) -> None:
        """A consumer that reads for so long while the workload runs, and is not owed the rest."""
        follower = Follower(consumer, self.now, self.history.seed, silence_seconds=self._timeout_seconds)
        await self.read_there_meanwhile(follower, seconds)

    async def read_there_meanwhile(self, reader: Follower | SegmentReader, seconds: float) -> None:
        """As `read_meanwhile`, with a reader that is made already."""
        assert self._read_by is not None, "the workload does not run"
        self.history.readers.append(reader.record)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await reader.follow(self._read_by, self.urls)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Workload"]:
        """Publish and read within the block. At its end every request in flight is finished."""
        self._stop.clear()
        async with self._client() as client:
            for index, producer in enumerate(self._producers):
                self._publishing.append(asyncio.create_task(self._produce(client, producer, index)))
            for follower in self._followers:
                self._reading.append(asyncio.create_task(follower.follow(client, self.urls)))
            self._read_by = client
            try:
                yield self
            finally:
                self._read_by = None
                await self._stop_publishing()
                await self._stop_reading()

    @contextlib.contextmanager
    def fault(self, name: str, detail: str = "") -> Iterator[Fault]:
        """Record that the block is a fault."""
        fault = Fault(name, self.now(), detail=detail)
        self.history.faults.append(fault)
        try:
            yield fault
        finally:
            fault.ended_seconds = self.now()

    async def acknowledged(self, more: int, *, timeout_seconds: float = 30.0) -> None:
        """Wait until `count` more messages are acknowledged. Raises as `each_acknowledged`."""
        wanted = self._acknowledged.total() + more
        await self._until(lambda: self._acknowledged.total() >= wanted, timeout_seconds)

    async def each_acknowledged(self, more: int, *, timeout_seconds: float = 30.0) -> None:
        """Wait until every producer has had that many more messages acknowledged.

        Raises `NoProgress`, `HistoryFull` where no more are sent, and what a consumer's task has raised.
        """
        wanted = {producer.name: self._acknowledged[producer.name] + more for producer in self._producers}
        await self._until(lambda: all(self._acknowledged[n] >= count for n, count in wanted.items()), timeout_seconds)

    async def _until(self, condition: Callable[[], bool], timeout_seconds: float) -> None:
        deadline_seconds = self.now() + timeout_seconds
        while not condition():
            for task in self._reading:
                if task.done():
                    task.result()
            if self._sent >= self._capacity:
                raise HistoryFull(f"{self._sent} messages were sent, a history holds {self._capacity}")
            if self.now() > deadline_seconds:
                raise NoProgress(f"in {timeout_seconds:g} s: {self._progress()}")
            await asyncio.sleep(PAUSE_SECONDS)

    def _progress(self) -> str:
        """How far each producer has got, and its last answer."""
        progress = []
        for name, request in self._newest.items():
            told = request.attempts[-1] if request.attempts else "nothing yet"
            progress.append(f"{name} has {self._acknowledged[name]} acknowledged, then {told}")
        return "; ".join(progress)

    async def read_to_the_end(self) -> None:
        """Stop publishing, let the consumers read what there is, then read every topic through every broker.

        A consumer that does not get there in time is for the verdict to complain of. Raises `NotReadable`.
        """
        await self._stop_publishing()
        topics = {producer.topic for producer in self._producers}
        topics |= {follower.record.topic for follower in self._followers}
        async with self._client() as client:
            ends = {topic: _ends(await self._read_whole(client, self.urls[0], topic)) for topic in topics}
            await self._let_consumers_reach(ends)
            # After the consumers: a message that was on its way for long may still land, and may be seen then.
            for topic in sorted(topics):
                for url in self.urls:
                    self.history.readers.append(await self._read_whole(client, url, topic))

    # -- publishing ----------------------------------------------------------------------------------------

    def _client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None)
        return self._access.client(timeout=self._timeout_seconds, limits=limits, transport=self._transport)

    async def _produce(self, client: httpx.AsyncClient, producer: Producer, index: int) -> None:
        while not self._stop.is_set() and self._sent < self._capacity:
            begun_seconds = self.now()
            messages = producer.take()
            self._sent += len(messages)
            request = Request(producer.name, producer.topic, messages, sequence=producer.next_sequence())
            self._newest[producer.name] = request
            index = await self._deliver(client, producer, request, index)
            self.history.requests.append(request)
            if request.outcome == "acknowledged":
                self._acknowledged[producer.name] += len(messages)
            else:
                await asyncio.sleep(RETRY_SECONDS)
            pause_seconds = max(producer.pause_seconds, producer.every_seconds - (self.now() - begun_seconds))
            if pause_seconds > 0:
                await asyncio.sleep(pause_seconds)

    async def _deliver(self, client: httpx.AsyncClient, producer: Producer, request: Request, index: int) -> int:
        """Send a request, repeating it if that cannot store it twice. Returns the index of its broker."""
        deadline_seconds: float | None = None
        while True:
            attempt = await self._attempt(client, producer, request, index)
            if attempt.outcome == "acknowledged":
                if producer.repeats(request.sequence):
                    await self._attempt(client, producer, request, index + 1)
                return index
            index += 1
            if request.sequence is None or attempt.final:
                return index
            if self._stop.is_set():
                deadline_seconds = deadline_seconds or self.now() + self._finish_seconds
                if self.now() > deadline_seconds:
                    return index
            await asyncio.sleep(RETRY_SECONDS * self._chance.uniform(0.5, 1.5))

    async def _attempt(self, client: httpx.AsyncClient, producer: Producer, request: Request, index: int) -> Attempt:
        url = self.urls[index % len(self.urls)]
        attempt = await publish(client, url, producer.request(url, request.messages, request.sequence), self.now)
        *earlier, last = request.attempts or [attempt]
        # So many attempts say no more than a few, as long as each outcome is among them.
        if len(request.attempts) >= KEPT_ATTEMPTS and any(last.outcome == other.outcome for other in earlier):
            request.attempts.pop()
        request.attempts.append(attempt)
        return attempt

    # -- reading -------------------------------------------------------------------------------------------

    async def _let_consumers_reach(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        for follower in self._followers:
            follower.hurry()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._finish_seconds):
                while not all(follower.has_reached(ends[follower.record.topic]) for follower in self._followers):
                    await asyncio.sleep(PAUSE_SECONDS)
        await self._stop_reading()
        for follower in self._followers:
            follower.record.finished = True

    async def _stop_publishing(self) -> None:
        """Let every request in flight end. Raises the error of a producer's task."""
        self._stop.set()
        ended, self._publishing = self._publishing, []
        await asyncio.gather(*ended)

    async def _stop_reading(self) -> None:
        """Raises what a consumer's task raised before it was told to end."""
        ended, self._reading = self._reading, []
        for task in ended:
            task.cancel()
        for outcome in await asyncio.gather(*ended, return_exceptions=True):
            if not isinstance(outcome, asyncio.CancelledError):
                raise outcome

    async def _read_whole(self, client: httpx.AsyncClient, url: str, topic: str) -> Reader:
        """Read all of a topic from one broker. An interrupted read starts over; each page is given a lot of time."""
        reader = Reader(f"final at {url}", topic, "final", joined_seconds=self.now())
        deadline_seconds = self.now() + self._finish_seconds
        while not reader.finished:
            visit = Visit(url, 0, self.now())
            try:
                async for page in read_pages(client, url, topic, timeout_seconds=self._finish_seconds):
                    visit.found.extend(found_in(message, self.now()) for message in page)
                visit.end, reader.finished = REACHED, True
            except httpx.HTTPError as error:
                if self.now() > deadline_seconds:
                    raise NotReadable(f"{topic} at {url}: {error!r}") from error
                await asyncio.sleep(RETRY_SECONDS)
            visit.ended_seconds = self.now()
            reader.visits = [visit]
        return reader


def _ends(reader: Reader) -> dict[int, int]:
    """The end offset of each segment in which the reader found messages."""
    return {message.segment: message.offset + 1 for message in reader.found}
