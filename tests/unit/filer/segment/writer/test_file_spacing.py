"""When an owner's next file goes: spaced where puts cost money, and at once where somebody is kept waiting by that."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from filer.clock import settle
from filer.format.requests import Position, RequestId
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef
from filer.segment.writer.flush_timer import INHERITING_SECONDS
from filer.segment.writer.segment_writer import SegmentWriter
from filer.segment.writer.writer_settings import WriterSettings
from tests.support.segment.segment_owners import single
from tests.support.segment.segment_world import SegmentWorld

REF = SegmentRef("events", 0)
INTERVAL_SECONDS = 10.0
SPACE_SECONDS = INTERVAL_SECONDS * WriterSettings().trickle_factor
FLUSH_BYTES = 1000


class SpacedFiles(SegmentWorld):
    """A segment whose small files are `SPACE_SECONDS` apart."""

    def __init__(self) -> None:
        super().__init__(REF)
        self.index = SegmentIndex()
        # Until this is set the predecessors' windows are not there.
        self.predecessors_known = asyncio.Event()
        self.predecessors_known.set()

    def open_spaced(self, *, awaited: bool = False) -> SegmentWriter:
        return self.open_writer(
            self.index,
            flush_bytes=FLUSH_BYTES,
            flush_interval_seconds=INTERVAL_SECONDS,
            awaited=awaited,
            inherit=self._inherit,
        )

    async def _inherit(self) -> ProducerWindows:
        await self.predecessors_known.wait()
        return ProducerWindows()

    async def append_to(
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
async def world() -> AsyncIterator[SpacedFiles]:
    made = SpacedFiles()
    yield made
    await made.close()


async def test_a_stream_shares_files(world: SpacedFiles) -> None:
    writer = world.open_spaced()
    stored = [await world.append_to(writer) for _ in range(4)]
    assert [each.done() for each in stored] == [True, False, False, False]
    await world.clock.advance(SPACE_SECONDS - 0.001)
    assert world.files == [1]
    await world.clock.advance(0.002)
    assert world.files == [1, 3]


async def test_the_file_that_would_be_full_does_not_wait(world: SpacedFiles) -> None:
    writer = world.open_spaced()
    await world.append_to(writer)
    waits = await world.append_to(writer, FLUSH_BYTES - 1)
    assert not waits.done()
    await world.append_to(writer)
    assert waits.done()


async def test_a_seal_does_not_wait(world: SpacedFiles) -> None:
    """Time stands still throughout."""
    writer = world.open_spaced()
    await world.append_to(writer)
    waits = await world.append_to(writer)
    assert not waits.done()
    assert await writer.seal() == 2
    assert waits.done()
    assert world.files == [1, 1] and world.index.sealed


async def test_a_drain_does_not_wait(world: SpacedFiles) -> None:
    writer = world.open_spaced()
    await world.append_to(writer)
    waits = await world.append_to(writer)
    await writer.flush()
    assert waits.done()


async def test_who_waits_until_all_is_stored_hurries_nothing(world: SpacedFiles) -> None:
    """A coordinator of groups does so when it begins: its files are to be shared then and afterwards."""
    writer = world.open_spaced()
    await world.append_to(writer)
    for files in ([1, 1], [1, 1, 1]):
        await world.append_to(writer)
        all_stored = asyncio.create_task(writer.all_stored())
        await world.clock.advance(SPACE_SECONDS - 0.002)
        assert not all_stored.done()
        await world.clock.advance(0.003)
        assert all_stored.done()
        assert world.files == files


async def test_a_drain_waits_for_nothing_that_comes_later(world: SpacedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other brokers may go on sending as long as the segment is not handed over."""
    writer = world.open_spaced()
    await world.append_to(writer)
    waits = await world.append_to(writer)
    create = world.memory.create

    async def create_while_more_comes(key: str, data: Any, **about: Any) -> None:
        await world.append_to(writer)
        await create(key, data, **about)

    monkeypatch.setattr(world.memory, "create", create_while_more_comes)
    async with asyncio.timeout(5):
        await writer.flush()
    assert waits.done() and writer.pending_bytes


async def test_those_who_were_held_back_do_not_wait_for_the_first_of_them(world: SpacedFiles) -> None:
    """They come within a moment, but not all before the first file is begun; what comes later shares files again."""
    writer = world.open_spaced(awaited=True)
    stored = [await world.append_to(writer) for _ in range(3)]
    assert [each.done() for each in stored] == [True, True, False]
    await world.clock.advance(SPACE_SECONDS)
    assert world.files == [1, 1, 1]


async def test_the_first_file_waits_a_moment_for_those_with_an_id(world: SpacedFiles) -> None:
    """They are taken once the predecessors' windows are there, and a second put would cost them as much again."""
    world.predecessors_known.clear()
    writer = world.open_spaced(awaited=True)
    first = await world.append_to(writer)
    await world.clock.advance(INHERITING_SECONDS / 2)
    assert not first.done()
    world.predecessors_known.set()
    await writer.inheritance.wait()
    second = await world.append_to(writer, request=RequestId("p", 1))
    assert first.done() and second.done() and world.files == [2]


async def test_the_first_file_waits_no_longer_than_that(world: SpacedFiles) -> None:
    world.predecessors_known.clear()
    writer = world.open_spaced(awaited=True)
    first = await world.append_to(writer)
    await world.clock.advance(INHERITING_SECONDS)
    assert first.done()


async def test_none_but_the_first_file_waits_for_them(world: SpacedFiles) -> None:
    world.predecessors_known.clear()
    writer = world.open_spaced(awaited=True)
    await world.append_to(writer)
    await world.clock.advance(INHERITING_SECONDS)
    second = await world.append_to(writer)
    assert second.done() and world.files == [1, 1]


async def test_a_writer_that_is_flushed_waits_for_no_windows(world: SpacedFiles) -> None:
    world.predecessors_known.clear()
    writer = world.open_spaced(awaited=True)
    await writer.flush()
    first = await world.append_to(writer)
    assert first.done()


async def test_those_who_were_not_held_back_wait_for_no_windows(world: SpacedFiles) -> None:
    world.predecessors_known.clear()
    first = await world.append_to(world.open_spaced())
    assert first.done()
