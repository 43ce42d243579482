"""A segment's first file: what proves that its put did not make an old name anew, and what that costs."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from filer.clock import settle
from filer.errors import BraidError, OutcomeUnknown
from filer.segment.segment_log import SegmentRef
from filer.stores.decorators.faults import FaultKind
from filer.stores.store_time import moment
from tests.support.segment.segment_owners import GRACE_SECONDS, single
from tests.support.segment.segment_world import SegmentWorld

REF = SegmentRef("events", 0)


@pytest.fixture
async def world() -> AsyncIterator[SegmentWorld]:
    """A segment that has just been opened, and that topic.json names as open."""
    made = SegmentWorld(REF)
    made.open = True
    made.open_writer()
    yield made
    await made.close()


@pytest.fixture
async def created() -> AsyncIterator[SegmentWorld]:
    """The same, where its owner has just created the topic."""
    made = SegmentWorld(REF)
    made.open = True
    made.open_writer(proven=moment(made.memory.time, made.clock))
    yield made
    await made.close()


async def test_it_is_acknowledged_by_a_read_of_the_record_beside_its_put(world: SegmentWorld) -> None:
    """Nothing of the segment itself is read: publishers of a split wait for this file."""
    await world.writer.append(single(b"0"), 1)
    assert world.asked == {"create": 1, "is open": 1}
    await world.writer.append(single(b"1"), 1)
    assert world.asked == {"create": 2, "is open": 1}


@pytest.mark.parametrize("answer", [False, OutcomeUnknown("the store is away")], ids=["not open", "unknown"])
async def test_if_the_record_proves_nothing_the_segment_is_read(world: SegmentWorld, answer: bool | BraidError) -> None:
    world.open = answer
    await world.writer.append(single(b"0"), 1)
    assert world.asked["list"] > 0 and world.asked["exists"] == 1
    assert await world.values() == [b"0"]


async def test_a_put_that_is_answered_too_late_is_not_proven_by_what_the_record_said_before_it(
    world: SegmentWorld,
) -> None:
    """The process stops between the read and the put's answer for longer than deleted names are kept."""
    world.faults.add("create", FaultKind.HANG_ANSWER)
    waits = world.writer.append(single(b"0"), 1)
    await settle()
    assert world.asked["is open"] == 1 and not waits.done()
    await world.clock.advance(GRACE_SECONDS / 2 + 1)
    world.store.release()
    await waits
    assert world.asked["list"] > 0 and world.asked["exists"] == 1


async def test_whoever_created_the_topic_reads_nothing_soon_after(created: SegmentWorld) -> None:
    await created.writer.append(single(b"0"), 1)
    assert created.asked == {"create": 1}


async def test_long_after_the_topic_was_created_the_record_is_read(created: SegmentWorld) -> None:
    await created.clock.advance(GRACE_SECONDS / 2 + 1)
    created.memory.time.record(created.clock.now_us())
    await created.writer.append(single(b"0"), 1)
    assert created.asked == {"create": 1, "is open": 1}


async def test_a_put_that_is_answered_long_after_the_topic_was_created_proves_nothing(created: SegmentWorld) -> None:
    """Whatever has stopped between the two, the name may have been rolled up and deleted."""
    created.faults.add("create", FaultKind.HANG_ANSWER)
    waits = created.writer.append(single(b"0"), 1)
    await settle()
    assert not waits.done()
    await created.clock.advance(GRACE_SECONDS / 2 + 1)
    created.store.release()
    await waits
    assert created.asked["list"] > 0 and created.asked["exists"] == 1


async def test_the_store_tells_how_late_an_answer_is_where_all_clocks_stood_still(created: SegmentWorld) -> None:
    created.faults.add("create", FaultKind.HANG_ANSWER)
    waits = created.writer.append(single(b"0"), 1)
    await settle()
    created.memory.time.record(created.memory.time.latest_us + int((GRACE_SECONDS / 2 + 1) * 1e6))
    created.store.release()
    await waits
    assert created.asked["list"] > 0 and created.asked["exists"] == 1


async def test_the_read_of_the_record_ends_with_the_put(world: SegmentWorld) -> None:
    world.record_is_readable.clear()
    world.faults.add("create", FaultKind.HANG_ANSWER)
    waits = world.writer.append(single(b"0"), 1)
    await settle()
    before = asyncio.all_tasks()
    await world.writer.close()
    await settle()
    assert isinstance(waits.exception(), OutcomeUnknown)
    assert {task.get_name() for task in before - asyncio.all_tasks()} >= {"check that events/0 is open"}
