"""When an owner's next file goes: spaced where puts cost money, and at once where somebody is kept waiting by that."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from filer.clock import ManualClock, settle
from filer.memory_store import MemoryStore
from filer.producer_windows import ProducerWindows
from filer.requests import Position, RequestId
from filer.segment_index import SegmentIndex
from filer.segment_log import SegmentRef
from filer.segment_writer import INHERITING_SECONDS, TRICKLE_FACTOR, SegmentWriter
from tests.support.segment_owners import owner, single

REF = SegmentRef("events", 0)
INTERVAL_SECONDS = 10.0
SPACE_SECONDS = INTERVAL_SECONDS * TRICKLE_FACTOR
FLUSH_BYTES = 1000


class World:
    """A segment whose small files are `SPACE_SECONDS` apart."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.index = SegmentIndex()
        self.writers: list[SegmentWriter] = []
        # Until this is set no predecessor's windows are there.
        self.predecessors_known = asyncio.Event()
        self.predecessors_known.set()

    def open(self, *, awaited: bool = False) -> SegmentWriter:
        writer = owner(
            self.store,
            self.clock,
            REF,
            self.index,
            flush_bytes=FLUSH_BYTES,
            flush_interval_seconds=INTERVAL_SECONDS,
            awaited=awaited,
            inherit=self._inherit,
        )
        self.writers.append(writer)
        return writer

    async def _inherit(self) -> ProducerWindows:
        await self.predecessors_known.wait()
        return ProducerWindows()

    async def append(
        self, writer: SegmentWriter, size_bytes: int = 1, request: RequestId | None = None
    ) -> "asyncio.Future[list[Position]]":
        stored = writer.append(single(b"x"), size_bytes, request)
        await settle()
        return stored

    @property
    def files(self) -> list[int]:
        """How many messages each file has."""
        return [facts.count for facts in self.index.files]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    for writer in made.writers:
        await writer.close()


async def test_a_stream_shares_files(world: World) -> None:
    writer = world.open()
    stored = [await world.append(writer) for _ in range(4)]
    assert [each.done() for each in stored] == [True, False, False, False]
    await world.clock.advance(SPACE_SECONDS - 0.001)
    assert world.files == [1]
    await world.clock.advance(0.002)
    assert world.files == [1, 3]


async def test_the_file_that_would_be_full_does_not_wait(world: World) -> None:
    writer = world.open()
    await world.append(writer)
    waits = await world.append(writer, FLUSH_BYTES - 1)
    assert not waits.done()
    await world.append(writer)
    assert waits.done()


async def test_a_seal_does_not_wait(world: World) -> None:
    """Time stands still throughout."""
    writer = world.open()
    await world.append(writer)
    waits = await world.append(writer)
    assert not waits.done()
    assert await writer.seal() == 2
    assert waits.done()
    assert world.files == [1, 1] and world.index.sealed


async def test_a_drain_does_not_wait(world: World) -> None:
    writer = world.open()
    await world.append(writer)
    waits = await world.append(writer)
    await writer.flush()
    assert waits.done()


async def test_a_drain_waits_for_nothing_that_comes_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other brokers may go on sending as long as the segment is not handed over."""
    writer = world.open()
    await world.append(writer)
    waits = await world.append(writer)
    create = world.store.create

    async def create_while_more_comes(key: str, data: Any, **about: Any) -> None:
        await world.append(writer)
        await create(key, data, **about)

    monkeypatch.setattr(world.store, "create", create_while_more_comes)
    async with asyncio.timeout(5):
        await writer.flush()
    assert waits.done() and writer.pending_bytes


async def test_those_who_were_held_back_do_not_wait_for_the_first_of_them(world: World) -> None:
    """They come within a moment, but not all before the first file is begun; what comes later shares files again."""
    writer = world.open(awaited=True)
    stored = [await world.append(writer) for _ in range(3)]
    assert [each.done() for each in stored] == [True, True, False]
    await world.clock.advance(SPACE_SECONDS)
    assert world.files == [1, 1, 1]


async def test_the_first_file_waits_a_moment_for_those_with_an_id(world: World) -> None:
    """They are taken once the predecessors' windows are there, and a second put would cost them as much again."""
    world.predecessors_known.clear()
    writer = world.open(awaited=True)
    first = await world.append(writer)
    await world.clock.advance(INHERITING_SECONDS / 2)
    assert not first.done()
    world.predecessors_known.set()
    await writer.inheritance.wait()
    second = await world.append(writer, request=RequestId("p", 1))
    assert first.done() and second.done() and world.files == [2]


async def test_the_first_file_waits_no_longer_than_that(world: World) -> None:
    world.predecessors_known.clear()
    writer = world.open(awaited=True)
    first = await world.append(writer)
    await world.clock.advance(INHERITING_SECONDS)
    assert first.done()


async def test_none_but_the_first_file_waits_for_them(world: World) -> None:
    world.predecessors_known.clear()
    writer = world.open(awaited=True)
    await world.append(writer)
    await world.clock.advance(INHERITING_SECONDS)
    second = await world.append(writer)
    assert second.done() and world.files == [1, 1]


async def test_a_writer_that_is_flushed_waits_for_no_windows(world: World) -> None:
    world.predecessors_known.clear()
    writer = world.open(awaited=True)
    await writer.flush()
    first = await world.append(writer)
    assert first.done()


async def test_those_who_were_not_held_back_wait_for_no_windows(world: World) -> None:
    world.predecessors_known.clear()
    first = await world.append(world.open())
    assert first.done()
