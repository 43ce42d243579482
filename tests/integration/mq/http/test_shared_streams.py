"""Subscriptions at the same place share what is read and rendered for them."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from filer.clock import Clock
from filer.errors import DataMissing
from filer.event_log import Event
from filer.stores.memory_store import MemoryStore
from filer.topic.positions import from_marker
from filer.topic.topic_state import TopicState
from mq.base.errors import Unauthenticated
from mq.forms.render import Part
from mq.forms.stream_forms import NdjsonForm
from mq.http.streaming import stream_pages
from mq.http.streaming.live_streams import LONGEST_REST_SECONDS, LiveStreams
from mq.http.streaming.stream_page import StreamPage
from mq.http.streaming.stream_pages import Place, StreamPages
from mq.security.standing import Over
from tests.support.broker.http_broker import HttpBroker, http_broker

MIB = 1024 * 1024
SECONDS = 20
MESSAGES = "/v1/topics/t/messages"
MANY = 40


class Subscriber:
    """A subscription as NDJSON, over a connection of its own. It reads only when it is asked to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._rest = b""
        self.values: list[Any] = []
        self.marker, self.end = "", ""
        self.read_bytes = 0

    async def read(self, count: int) -> list[Any]:
        """The values of all messages so far, once there are so many."""
        async with asyncio.timeout(SECONDS):
            while len(self.values) < count:
                assert await self._read_chunk(), "the stream has ended"
        return self.values

    async def rest(self) -> str:
        """Why the stream ends."""
        async with asyncio.timeout(SECONDS):
            while await self._read_chunk():
                pass
        return self.end

    async def _read_chunk(self) -> int:
        size = int(await self._reader.readline(), 16)
        self.read_bytes += size
        self._rest += (await self._reader.readexactly(size + 2))[:-2]
        *lines, self._rest = self._rest.split(b"\n")
        for line in map(json.loads, lines):
            self.marker, self.end = line["marker"], line.get("end", "")
            if "message" in line:
                self.values.append(line["message"]["value"])
        return size


@contextlib.asynccontextmanager
async def subscribed(broker: HttpBroker, begin: str = "latest") -> AsyncIterator[Subscriber]:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, limit=MIB)
    try:
        head = f"GET /v1/topics/t/subscribe?from={begin} HTTP/1.1\r\nhost: localhost\r\naccept: application/x-ndjson"
        writer.write(f"{head}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        yield Subscriber(reader, writer)
    finally:
        writer.transport.abort()


@contextlib.asynccontextmanager
async def all_subscribed(broker: HttpBroker, count: int, begin: str = "latest") -> AsyncIterator[list[Subscriber]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(subscribed(broker, begin)) for _ in range(count)]


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[Place]:
    """The places of which pages were read."""
    read: list[Place] = []
    inner = StreamPages._read

    async def counted(self: StreamPages, place: Place, page_bytes: int) -> StreamPage:
        page = await inner(self, place, page_bytes)
        if page.parts:
            read.append(place)
        return page

    monkeypatch.setattr(StreamPages, "_read", counted)
    return read


@pytest.fixture
async def topic(broker: HttpBroker) -> HttpBroker:
    (await broker.client.put("/v1/topics/t", json={"segments": 2})).raise_for_status()
    return broker


async def publish(broker: HttpBroker, *values: Any) -> None:
    body = {"messages": [{"key": "k", "value": value} for value in values]}
    (await broker.client.post(MESSAGES, json=body)).raise_for_status()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.001)


async def test_what_is_new_is_rendered_once_for_all(topic: HttpBroker, pages: list[Place]) -> None:
    async with all_subscribed(topic, MANY) as subscribers:
        for number in range(20):
            await publish(topic, number)
            assert {(await each.read(number + 1))[-1] for each in subscribers} == {number}
        assert len({each.marker for each in subscribers}) == 1
    assert len(pages) == 20


async def test_those_who_come_later_join_the_others(
    topic: HttpBroker, pages: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As long as it takes all of them to come, which a busy machine decides.
    monkeypatch.setattr(stream_pages, "KEPT_SECONDS", SECONDS)
    await publish(topic, *range(10))
    async with all_subscribed(topic, MANY, "earliest") as first:
        for each in first:
            assert await each.read(10) == list(range(10))
        async with all_subscribed(topic, MANY) as second:
            await publish(topic, "new")
            for each in first:
                assert (await each.read(11))[-1] == "new"
            for each in second:
                assert await each.read(1) == ["new"]
    assert len(pages) <= 2


async def test_each_gets_everything_in_order_whatever_comes_between(topic: HttpBroker) -> None:
    """Some begin late, some go away, and the topic is split while messages come."""
    async with all_subscribed(topic, 10, "earliest") as first:
        for number in range(100):
            await publish(topic, number)
            if number == 30:
                await topic.broker.executor.give_successors("t", [0, 1], "roll")
            if number == 60:
                first.pop().writer.transport.abort()
        async with all_subscribed(topic, 5, "earliest") as second:
            for each in [*first, *second]:
                assert await each.read(100) == list(range(100))


async def test_one_who_does_not_read_keeps_nobody_waiting_and_misses_nothing(topic: HttpBroker) -> None:
    async with subscribed(topic) as stalled, all_subscribed(topic, 5) as others:
        stalled.writer.transport.pause_reading()  # type: ignore[attr-defined]
        count, large = 100, "x" * 100_000
        for number in range(count):
            await publish(topic, f"{number:08} {large}")
            for each in others:
                await each.read(number + 1)
        stalled.writer.transport.resume_reading()  # type: ignore[attr-defined]
        found = await stalled.read(count)
        assert [int(value[:8]) for value in found] == list(range(count))
        assert topic.broker.read_budget.held_bytes <= 8 * MIB
    await until(lambda: topic.broker.read_budget.held_bytes == 0)


async def test_a_large_message_is_there_once_for_all_who_stall() -> None:
    async with http_broker(MemoryStore(), read_bytes=64 * MIB, max_json_bytes=16 * MIB) as broker:
        (await broker.client.put("/v1/topics/t")).raise_for_status()
        (await broker.client.post(MESSAGES, content=b"x" * (8 * MIB))).raise_for_status()
        async with all_subscribed(broker, MANY, "earliest") as subscribers:
            for each in subscribers:
                each.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await until(lambda: broker.broker.streams.count == MANY)
            # One that reads needs no room that the others hold.
            async with subscribed(broker, "earliest") as reader:
                assert len((await reader.read(1))[0]) == 8 * MIB
            assert 8 * MIB < broker.broker.read_budget.held_bytes < 9 * MIB
        await until(lambda: broker.broker.read_budget.held_bytes == 0)


async def test_what_was_looked_for_too_early_is_looked_for_again(
    topic: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream takes note of news, and then waits for a read that began before those: its own would find them."""
    runtime = await topic.broker.topics.topic("t")
    shared = StreamPages(topic.broker)
    form, inner, go_on = NdjsonForm(), StreamPages._read, asyncio.Event()
    place = Place.of(runtime, form, {0: 0, 1: 0})

    async def late(self: StreamPages, place: Place, page_bytes: int) -> StreamPage:
        page = await inner(self, place, page_bytes)
        await go_on.wait()
        return page

    monkeypatch.setattr(StreamPages, "_read", late)
    early = asyncio.create_task(shared.after(place, MIB))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await publish(topic, "new")
    joined = asyncio.create_task(shared.after(place, MIB))
    await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(SECONDS):
        assert not (await early).parts
        page = await joined
    assert b'"new"' in bytes(page.parts[0])
    page.drop()
    assert shared._making == {}


async def test_pages_are_kept_for_a_moment_and_within_a_bound(
    topic: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_pages, "KEPT_SECONDS", 0.05)
    runtime = await topic.broker.topics.topic("t")
    shared, form = StreamPages(topic.broker), NdjsonForm()
    shared._most_kept_bytes = 250_000
    budget = topic.broker.read_budget
    for number in range(5):
        await publish(topic, f"{number}" + "x" * 100_000)
    positions = {0: 0, 1: 0}
    for _ in range(5):
        page = await shared.after(Place.of(runtime, form, positions), 1)
        with page:
            positions = page.reached
            assert budget.held_bytes >= page.size_bytes
    assert 200_000 < budget.held_bytes < 250_000
    await until(lambda: budget.held_bytes == 0)


async def test_who_asked_first_may_go_away(topic: HttpBroker) -> None:
    await publish(topic, "there")
    runtime = await topic.broker.topics.topic("t")
    shared, place = StreamPages(topic.broker), Place.of(runtime, NdjsonForm(), {0: 0, 1: 0})
    first, second = (asyncio.create_task(shared.after(place, MIB)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(SECONDS):
        page = await second
    with page:
        assert page.parts
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_change_of_the_record_makes_another_place(topic: HttpBroker) -> None:
    runtime = await topic.broker.topics.topic("t")
    before = Place.of(runtime, NdjsonForm(), {0: 0})
    state: TopicState = runtime.state
    (await topic.client.put("/v1/topics/t", json={"segments": 2, "retention": {"seconds": 1000}})).raise_for_status()
    assert runtime.state.version > state.version
    assert Place.of(runtime, before.form, {0: 0}) != before


class AllTaken:
    """A client that takes everything at once."""

    sent_bytes = 0
    takes_more = True

    def write(self, pieces: Sequence[Part], size_bytes: int) -> None:
        self.sent_bytes += size_bytes

    async def drained(self) -> None:
        pass


class Rests:
    """The clock of a broker. A group that sleeps rests until it is let go on; `asked` says how long it wanted to."""

    def __init__(self, inner: Clock) -> None:
        self._inner = inner
        self.later_seconds = 0.0
        self.asked: list[float] = []
        self.over = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def monotonic_seconds(self) -> float:
        return self._inner.monotonic_seconds() + self.later_seconds

    async def sleep(self, seconds: float) -> None:
        task = asyncio.current_task()
        if task is None or task.get_name() != "live streams":
            await self._inner.sleep(seconds)
            return
        self.asked.append(seconds)
        await self.over.wait()


class Slow(AllTaken):
    """A client to whom a write takes some time."""

    def __init__(self, clock: Rests, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self.written: list[bytes] = []

    def write(self, pieces: Sequence[Part], size_bytes: int) -> None:
        super().write(pieces, size_bytes)
        self.written.append(b"".join(pieces))
        self._clock.later_seconds += self._seconds


@pytest.mark.parametrize("seconds", [pytest.param(0.01, id="as long as it took"), pytest.param(7.0, id="not too long")])
async def test_streams_rest_between_pages_and_what_comes_meanwhile_comes_together(
    topic: HttpBroker, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    clock = Rests(topic.broker.clock)
    monkeypatch.setattr(topic.broker, "clock", clock)
    runtime = await topic.broker.topics.topic("t")
    streams, client = LiveStreams(topic.broker, StreamPages(topic.broker)), Slow(clock, seconds)
    following = asyncio.create_task(streams.follow(Place.of(runtime, NdjsonForm(), {0: 0, 1: 0}), client))
    await publish(topic, "first")
    await until(lambda: bool(clock.asked))
    for value in ("second", "third"):
        await publish(topic, value)
    assert len(client.written) == 1 and min(seconds, LONGEST_REST_SECONDS) <= clock.asked[0] <= LONGEST_REST_SECONDS
    clock.over.set()
    await until(lambda: len(client.written) == 2)
    assert all(b'"%s"' % value in client.written[1] for value in (b"second", b"third"))
    async with asyncio.timeout(SECONDS):
        await topic.broker.drain()
        await following


@pytest.mark.parametrize("reason", ["draining", "deleted"])
async def test_each_is_told_of_the_end_and_where_it_is(topic: HttpBroker, reason: str) -> None:
    async with all_subscribed(topic, MANY) as subscribers:
        await publish(topic, "before")
        for each in subscribers:
            await each.read(1)
        if reason == "draining":
            async with asyncio.timeout(SECONDS):
                await topic.broker.drain()
        else:
            (await topic.client.delete("/v1/topics/t")).raise_for_status()
        assert {await each.rest() for each in subscribers} == {reason}
        assert {sum(from_marker("t", each.marker).values()) for each in subscribers} == {1}


async def test_each_is_told_what_is_missing_behind_all_before(
    topic: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = StreamPages._read

    async def read(self: StreamPages, place: Place, page_bytes: int) -> StreamPage:
        page = await inner(self, place, page_bytes)
        lost = DataMissing("it is gone", key="topics/t/segments/segment=0/lost", segment=0, offset=2, next_offset=3)
        if sum(offset for _, offset in place.positions) == 2:
            page.drop()
            raise lost
        if page.parts:
            page.unreadable = lost
        return page

    async with all_subscribed(topic, MANY) as subscribers:
        await publish(topic, "first")
        for each in subscribers:
            await each.read(1)
        monkeypatch.setattr(StreamPages, "_read", read)
        await publish(topic, "before")
        assert {await each.rest() for each in subscribers} == {"unreadable"}
        for each in subscribers:
            assert each.values == ["first", "before"]
            assert sum(from_marker("t", each.marker).values()) == 2
    await until(lambda: topic.broker.read_budget.held_bytes == 0)


async def test_a_change_in_the_middle_of_a_read_leads_all_on(
    topic: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they stood at is removed by retention later: they must not be told that they are too late."""
    runtime = await topic.broker.topics.topic("t")
    inner = StreamPages.after

    async def split_first(self: StreamPages, place: Place, page_bytes: int) -> StreamPage:
        monkeypatch.setattr(StreamPages, "after", inner)
        await topic.broker.executor.give_successors("t", [0, 1], "roll")
        return await inner(self, place, page_bytes)

    monkeypatch.setattr(StreamPages, "after", split_first)
    streams = LiveStreams(topic.broker, StreamPages(topic.broker))
    place = Place.of(runtime, NdjsonForm(), {0: 0, 1: 0})
    following = asyncio.create_task(streams.follow(place, AllTaken()))
    await until(lambda: [dict(place.positions) for place in streams._groups] == [{2: 0, 3: 0}])
    async with asyncio.timeout(SECONDS):
        await topic.broker.drain()
        positions, page = await following
    assert (positions, page) == ({2: 0, 3: 0}, None)


async def test_one_whose_permission_ends_is_told_to_stand_behind_all_that_it_was_given(
    topic: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends just as a page is there for its group. Whoever goes on by its end must get nothing twice, and all."""
    runtime, client = await topic.broker.topics.topic("t"), Slow(Rests(topic.broker.clock), 0.0)
    over: Over = asyncio.get_running_loop().create_future()
    inner = StreamPages.after

    async def ending(self: StreamPages, place: Place, page_bytes: int) -> StreamPage:
        page = await inner(self, place, page_bytes)
        if page.parts:
            over.set_result(Unauthenticated("its token has expired"))
            await asyncio.sleep(0)
        return page

    monkeypatch.setattr(StreamPages, "after", ending)
    streams = LiveStreams(topic.broker, StreamPages(topic.broker))
    following = asyncio.create_task(streams.follow(Place.of(runtime, NdjsonForm(), {0: 0, 1: 0}), client, over))
    await until(lambda: bool(streams._groups))
    await publish(topic, "new")
    async with asyncio.timeout(SECONDS):
        positions, _ = await following
    await until(lambda: not streams._groups)
    assert sum(positions.values()) == len(client.written)


async def test_the_access_log_counts_what_was_written_to_all(caplog: pytest.LogCaptureFixture) -> None:
    async with http_broker(MemoryStore(), access_log="on") as broker:
        with caplog.at_level(logging.INFO):
            (await broker.client.put("/v1/topics/t")).raise_for_status()
            async with all_subscribed(broker, 3) as subscribers:
                for number in range(10):
                    await publish(broker, number)
                    for each in subscribers:
                        await each.read(number + 1)
                async with asyncio.timeout(SECONDS):
                    await broker.broker.drain()
                for each in subscribers:
                    await each.rest()
            await until(lambda: len(streams_of(caplog)) == 3)
            assert sorted(streams_of(caplog)) == sorted((each.read_bytes, True) for each in subscribers)


def streams_of(caplog: pytest.LogCaptureFixture) -> list[tuple[int, bool]]:
    found = [dict(each.msg.fields) for each in caplog.records if isinstance(each.msg, Event)]
    return [(each["sent_bytes"], each["is_whole"]) for each in found if each.get("path", "").endswith("/subscribe")]
