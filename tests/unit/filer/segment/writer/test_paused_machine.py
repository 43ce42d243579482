"""An owner whose machine stands still: no clock there tells how late its put is, only the store's answer does."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from filer.clock import Clock, ManualClock, settle
from filer.errors import OutcomeUnknown
from filer.keys import FileName
from filer.segment import segment_log
from filer.segment.writer import ownership_proof
from filer.stores.decorators.faults import FaultKind
from filer.stores.store_time import Moment, StoreTime
from tests.support.inline_executor import InlineExecutor
from tests.support.segment.segment_owners import GRACE_SECONDS, owner, single
from tests.support.segment.segment_world import SegmentWorld
from tests.support.segment.upkeeps import run_until_idle, upkeep_of


class StoppedClock(ManualClock):
    """The clocks of a machine that a hypervisor has paused: neither moves."""


@pytest.fixture
async def world() -> AsyncIterator[SegmentWorld]:
    made = SegmentWorld()
    yield made
    await made.close()


async def outcome_of_a_put_after_the_pause(world: SegmentWorld) -> BaseException | None:
    """The owner's put waits on the paused machine. Others take over, roll up and delete; then it creates the name."""
    paused = owner(world.store, StoppedClock(), world.ref, await world.recovered())
    world.writers.append(paused)
    await paused.append(single(b"before"), 1)
    world.faults.add("create", FaultKind.HANG)
    stalled = paused.append(single(b"stalled"), 1)
    await settle()
    successor = await world.open_next_writer()
    for number in range(20):
        await successor.append(single(b"%d" % number), 1)
    await world.clock.advance(31)
    maintainer = upkeep_of(world.memory, world.clock, world.ref, await world.recovered(), InlineExecutor())
    await run_until_idle(maintainer)
    await world.clock.advance(GRACE_SECONDS + 5)
    await run_until_idle(maintainer)
    assert FileName(1) not in await segment_log.list_names(world.memory, world.ref), "the name is free again"
    world.store.release()
    await settle()
    assert FileName(1) in await segment_log.list_names(world.memory, world.ref), "the stalled put has taken it"
    assert await world.values() == [b"before", *(b"%d" % number for number in range(20))]
    return stalled.exception()


async def test_a_put_that_comes_after_its_name_was_deleted_is_not_acknowledged(world: SegmentWorld) -> None:
    assert isinstance(await outcome_of_a_put_after_the_pause(world), OutcomeUnknown)


async def test_by_the_clocks_of_the_machine_alone_it_would_have_been(
    world: SegmentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_the_local_clock(time: StoreTime, clock: Clock, then: Moment) -> float:
        return clock.monotonic_seconds() - then.monotonic_seconds

    monkeypatch.setattr(ownership_proof, "age_seconds", by_the_local_clock)
    assert await outcome_of_a_put_after_the_pause(world) is None, "acknowledged, and nobody will ever read it"


async def test_a_seal_that_comes_after_its_name_was_deleted_does_not_count(world: SegmentWorld) -> None:
    """The same for a broker that seals in the owner's stead."""
    writer = world.open_writer()
    await writer.append(single(b"before"), 1)
    world.faults.add("create", FaultKind.HANG)
    sealing = segment_log.seal_at_end(
        world.store, StoppedClock(), world.ref, start_offset=0, writer="z.1", grace_seconds=GRACE_SECONDS
    )
    task = asyncio.create_task(sealing)
    await settle()
    for number in range(20):
        await writer.append(single(b"%d" % number), 1)
    await world.clock.advance(31)
    maintainer = upkeep_of(world.memory, world.clock, world.ref, await world.recovered(), InlineExecutor())
    await run_until_idle(maintainer)
    await world.clock.advance(GRACE_SECONDS + 5)
    await run_until_idle(maintainer)
    world.store.release()
    await settle()
    assert (await task).end == 21, "it has looked again and sealed at the true end"


async def test_a_look_that_takes_too_long_is_taken_again(world: SegmentWorld) -> None:
    """What it saw first may be gone before it sees the rest."""
    writer = world.open_writer()
    await writer.append(single(b"0"), 1)
    await world.clock.advance(GRACE_SECONDS)
    world.faults.add("list", FaultKind.HANG)
    late = writer.append(single(b"1"), 1)
    await settle()
    await world.clock.advance(GRACE_SECONDS)
    before = world.asked["list"]
    world.store.release()
    await settle()
    assert (await late)[0].offset == 1
    assert world.asked["list"] > before
