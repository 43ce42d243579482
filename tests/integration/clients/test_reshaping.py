"""Repeated manual splits and merges while the Python client's producers and readers run."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable

import pytest

from braidmq import AsyncClient, AsyncProducer, Conflict, Message, SegmentNotFound
from braidmq.testing import InMemoryBroker
from filer.slots import SLOTS

KEYS = 12
# Several rounds are in flight at a time.
FLUSHED_MESSAGES = 2 * KEYS
GENERATIONS = 30
PATIENCE_SECONDS = 60


@pytest.fixture
async def client(broker: InMemoryBroker) -> AsyncIterator[AsyncClient]:
    async with broker.async_client() as client:
        yield client


class Load:
    """A producer that numbers each key's messages, until it is stopped."""

    def __init__(self, client: AsyncClient, topic: str) -> None:
        self._client, self._topic = client, topic
        self.sent: dict[str, int] = defaultdict(int)
        self.stored = 0
        self.stop = asyncio.Event()
        self.final: dict[str, int] | None = None
        """The final number of messages of each key. The last ones are sent after this is known."""

    @property
    def total(self) -> int:
        return sum(self.sent.values())

    async def run(self) -> None:
        async with self._client.producer(self._topic, linger_seconds=0.001) as producer:
            while not self.stop.is_set():
                await self._send_one_of_each(producer)
                await asyncio.sleep(0.002)
            self.final = {key: count + 1 for key, count in self.sent.items()}
            await self._send_one_of_each(producer)

    async def _send_one_of_each(self, producer: AsyncProducer) -> None:
        for key in (f"k{number}" for number in range(KEYS)):
            await producer.send(f"{key} {self.sent[key]}", key=key)
            self.sent[key] += 1
        if self.total - self.stored >= FLUSHED_MESSAGES:
            await producer.flush()
            self.stored = self.total

    async def goes_on(self, messages: int) -> None:
        """Wait until so many more have been stored."""
        wanted = self.stored + messages
        while self.stored < wanted:
            await asyncio.sleep(0.002)


class Reader:
    """Checks that each key's numbers are exactly one more than the last; starts at a given position."""

    def __init__(self) -> None:
        self.next: dict[str, int] = {}
        self.count = 0

    def take(self, message: Message) -> None:
        assert message.key is not None and message.value is not None
        key, number = message.value.decode().split()
        assert key == message.key.decode()
        assert int(number) == self.next.get(key, int(number)), f"{message.value!r} after {self.next[key] - 1}"
        self.next[key] = int(number) + 1
        self.count += 1

    def take_all(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.take(message)

    async def follow(self, client: AsyncClient, topic: str, load: Load, **start: str) -> None:
        """Wait until everything has been read."""
        async for message in client.subscribe(topic, **start):
            self.take(message)
            if self.next == load.final:
                return


async def change(client: AsyncClient, topic: str, generation: int) -> None:
    """A split or a merge of some open segments, another each time."""
    found = await client.topic(topic)
    opened = sorted((s for s in found.segments if s.state == "open"), key=lambda s: s.range)
    index = generation * 7 % len(opened)
    if len(opened) > 3 and generation % 2:
        left, right = opened[max(index - 1, 0)], opened[max(index - 1, 0) + 1]
        assert (await client.merge_segments(topic, right.segment, left.segment)).range == (
            left.range[0],
            right.range[1],
        )
    else:
        start, stop = opened[index].range
        at = None if generation % 3 else (start + (stop - start) // 3,)
        assert len(await client.split_segment(topic, opened[index].segment, at=at)) == 2


async def test_each_keys_numbers_go_on_over_many_generations(client: AsyncClient, topic: str) -> None:
    """For readers from the start, from the middle, of everything afterwards, and from a marker."""
    await client.create_topic(topic)
    load, first, joined = Load(client, topic), Reader(), Reader()
    markers: list[str] = []
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
        tasks.create_task(load.run())
        tasks.create_task(first.follow(client, topic, load, from_="earliest"))
        for generation in range(GENERATIONS):
            await load.goes_on(3 * KEYS)
            if generation == GENERATIONS // 2:
                tasks.create_task(joined.follow(client, topic, load, from_="latest"))
            page = client.browse(topic, limit=1 + 17 * generation)
            assert len([each async for each in page]) == 1 + 17 * generation
            assert page.marker is not None
            markers.append(page.marker)
            await change(client, topic, generation)
        await load.goes_on(3 * KEYS)
        load.stop.set()
    assert first.count == load.total
    after = Reader()
    after.take_all([each async for each in client.browse(topic)])
    assert (after.next, after.count) == (load.sent, load.total)
    for generation, marker in enumerate(markers):
        resumed = Reader()
        resumed.take_all([each async for each in client.browse(topic, limit=1 + 17 * generation)])
        resumed.take_all([each async for each in client.browse(topic, marker=marker)])
        assert (resumed.next, resumed.count) == (load.sent, load.total)
    assert sum(each.messages for each in [life async for life in client.history(topic)]) == load.total


async def test_empty_segments_are_passed_through(client: AsyncClient, topic: str) -> None:
    """Several generations without messages, while a subscriber waits."""
    await client.create_topic(topic)
    reader, load = Reader(), Load(client, topic)
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
        tasks.create_task(reader.follow(client, topic, load, from_="earliest"))
        first, second = await client.split_segment(topic, 0)
        await client.split_segment(topic, first.segment, parts=3)
        (opened, _) = await client.split_segment(topic, second.segment, at=[SLOTS - 1])
        merged = await client.merge_segments(topic, opened.segment, opened.segment - 1)
        assert merged.predecessors == (opened.segment - 1, opened.segment)
        tasks.create_task(load.run())
        await load.goes_on(5 * KEYS)
        load.stop.set()
    assert reader.count == load.total


async def test_refusals_are_raised(client: AsyncClient, topic: str) -> None:
    await client.create_topic(topic)
    opened = await client.split_segment(topic, 0)
    assert await client.split_segment(topic, 0) == opened
    with pytest.raises(Conflict, match="followed by 1, 2") as caught:
        await client.split_segment(topic, 0, at=[5])
    assert caught.value.problem is not None and caught.value.problem.extras["successors"] == [1, 2]
    with pytest.raises(SegmentNotFound, match="open: 1, 2"):
        await client.merge_segments(topic, 1, 7)


def test_the_blocking_client(broker: InMemoryBroker, topic: str) -> None:
    with broker.client() as client:
        client.create_topic(topic)
        opened = client.split_segment(topic, 0, parts=3)
        merged = client.merge_segments(topic, opened[1].segment, opened[0].segment)
        assert [life.segment for life in client.history(topic)] == [0, 1, 2, 3, merged.segment]
