"""A segment's first file: what proves that its put did not make an old name anew, and what that costs."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from filer.clock import ManualClock, settle
from filer.errors import BraidError, OutcomeUnknown
from filer.failing_store import FailingStore
from filer.faults import FaultKind, ScriptedFaults
from filer.memory_store import MemoryStore
from filer.segment_index import SegmentIndex
from filer.segment_log import SegmentRef
from filer.segment_writer import SegmentWriter
from tests.support.segment_owners import GRACE_SECONDS, owner, single, stored_values

REF = SegmentRef("events", 0)


class World:
    """A segment that has just been opened, on a store whose calls are counted, and what topic.json says of it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(clock=self.clock)
        self.faults = ScriptedFaults()
        self.asked: Counter[str] = Counter()
        self.store = FailingStore(self.memory, self.faults, clock=self.clock, on_point=self._count)
        self.open: bool | BraidError = True
        # Until this is set nobody tells whether it is open.
        self.told = asyncio.Event()
        self.told.set()
        self.writer: SegmentWriter = owner(
            self.store, self.clock, REF, SegmentIndex(), look=self._look, is_open=self._is_open
        )

    def _count(self, point: str, key: str) -> None:
        if point.startswith("before"):
            self.asked[point.removeprefix("before ")] += 1

    async def _look(self) -> bool:
        self.asked["look"] += 1
        return True

    async def _is_open(self) -> bool:
        self.asked["is open"] += 1
        await self.told.wait()
        if isinstance(self.open, BraidError):
            raise self.open
        return self.open


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.writer.close()


async def test_it_is_acknowledged_by_a_read_of_the_record_beside_its_put(world: World) -> None:
    """Nothing of the segment itself is read: publishers of a split wait for this file."""
    await world.writer.append(single(b"0"), 1)
    assert world.asked == {"create": 1, "is open": 1}
    await world.writer.append(single(b"1"), 1)
    assert world.asked == {"create": 2, "is open": 1}


@pytest.mark.parametrize("answer", [False, OutcomeUnknown("the store is away")], ids=["not open", "unknown"])
async def test_where_the_record_proves_nothing_the_segment_is_looked_at(
    world: World, answer: bool | BraidError
) -> None:
    world.open = answer
    await world.writer.append(single(b"0"), 1)
    assert world.asked["list"] > 0 and world.asked["look"] == 1
    assert await stored_values(world.memory, REF) == [b"0"]


async def test_a_put_that_is_answered_too_late_is_not_proven_by_what_the_record_said_before_it(world: World) -> None:
    """The process stops between the read and the put's answer for longer than deleted names are kept."""
    world.faults.add("create", FaultKind.HANG_ANSWER)
    waits = world.writer.append(single(b"0"), 1)
    await settle()
    assert world.asked["is open"] == 1 and not waits.done()
    await world.clock.advance(GRACE_SECONDS / 2 + 1)
    world.store.release()
    await waits
    assert world.asked["list"] > 0 and world.asked["look"] == 1


async def test_the_read_of_the_record_ends_with_the_put(world: World) -> None:
    world.told.clear()
    world.faults.add("create", FaultKind.HANG_ANSWER)
    waits = world.writer.append(single(b"0"), 1)
    await settle()
    before = asyncio.all_tasks()
    await world.writer.close()
    await settle()
    assert isinstance(waits.exception(), OutcomeUnknown)
    assert {task.get_name() for task in before - asyncio.all_tasks()} >= {"look whether events/0 is open"}
