"""When an owner's next file goes: spaced where puts cost money, and at once where somebody is kept waiting by that."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from filer.clock import ManualClock, settle
from filer.memory_store import MemoryStore
from filer.requests import Position
from filer.segment_index import SegmentIndex
from filer.segment_log import SegmentRef
from filer.segment_writer import TRICKLE_FACTOR, SegmentWriter
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

    def open(self, *, awaited: bool = False) -> SegmentWriter:
        writer = owner(
            self.store,
            self.clock,
            REF,
            self.index,
            flush_bytes=FLUSH_BYTES,
            flush_interval_seconds=INTERVAL_SECONDS,
            awaited=awaited,
        )
        self.writers.append(writer)
        return writer

    async def append(self, writer: SegmentWriter, size_bytes: int = 1) -> "asyncio.Future[list[Position]]":
        stored = writer.append(single(b"x"), size_bytes)
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


async def test_those_who_were_held_back_do_not_wait_for_the_first_of_them(world: World) -> None:
    """They come within a moment, but not all before the first file is begun; what comes later shares files again."""
    writer = world.open(awaited=True)
    stored = [await world.append(writer) for _ in range(3)]
    assert [each.done() for each in stored] == [True, True, False]
    await world.clock.advance(SPACE_SECONDS)
    assert world.files == [1, 1, 1]
