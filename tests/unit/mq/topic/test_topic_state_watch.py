"""Waiting for a newer state of a topic: woken by its arrival, and by reads of the record that waiters share."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from filer.clock import ManualClock, settle
from filer.errors import OutcomeUnknown
from mq.topic.topic_state_watch import READ_APART_SECONDS, TopicStateWatch

LONG_SECONDS = 60.0
WAITERS = 50


class World:
    """Reads of the record that take as long as the test says."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.reads = 0
        self.answered = asyncio.Event()
        self.answered.set()
        self.error: Exception | None = None
        self.watch = TopicStateWatch(self.clock, self._read)

    async def _read(self) -> None:
        self.reads += 1
        await self.answered.wait()
        if self.error is not None:
            raise self.error

    def wait(self, seconds: float = 0.0) -> "asyncio.Task[None]":
        return asyncio.create_task(self.watch.wait_for_newer(seconds))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.watch.close()


async def test_a_broadcast_wakes_everybody_without_a_read(world: World) -> None:
    waiting = [world.wait(LONG_SECONDS) for _ in range(WAITERS)]
    await settle()
    world.watch.broadcast()
    await asyncio.gather(*waiting)
    assert world.reads == 0


async def test_those_who_waited_in_vain_share_a_read(world: World) -> None:
    world.answered.clear()
    waiting = [world.wait() for _ in range(WAITERS)]
    await settle()
    assert world.reads == 1 and not any(each.done() for each in waiting)
    world.answered.set()
    await asyncio.gather(*waiting)
    assert world.reads == 1


async def test_the_next_read_comes_some_time_after_the_last(world: World) -> None:
    await world.wait()
    again = world.wait()
    await world.clock.advance(READ_APART_SECONDS - 0.001)
    assert world.reads == 1 and not again.done()
    await world.clock.advance(0.002)
    await again
    assert world.reads == 2


async def test_who_comes_during_a_read_waits_for_the_next(world: World) -> None:
    """What it was begun too early to see would be missed."""
    world.answered.clear()
    first = world.wait()
    await settle()
    second = world.wait()
    await settle()
    world.answered.set()
    await first
    await world.clock.advance(READ_APART_SECONDS - 0.001)
    assert world.reads == 1 and not second.done()
    await world.clock.advance(0.002)
    await second
    assert world.reads == 2


@pytest.mark.parametrize("before_the_read", [True, False])
async def test_a_broadcast_comes_before_a_read_is_over(world: World, before_the_read: bool) -> None:
    await world.wait()
    world.answered.clear()
    waiting = world.wait()
    await world.clock.advance(0.0 if before_the_read else READ_APART_SECONDS + 0.001)
    assert not waiting.done()
    world.watch.broadcast()
    await waiting


async def test_a_waiter_that_gives_up_leaves_the_others_their_read(world: World) -> None:
    world.answered.clear()
    first, second = world.wait(), world.wait()
    await settle()
    first.cancel()
    await settle()
    assert first.cancelled() and not second.done()
    world.answered.set()
    await second
    assert world.reads == 1


async def test_a_read_that_fails_counts_as_nothing_new(world: World) -> None:
    world.error = OutcomeUnknown("the store is away")
    await world.wait()
    assert world.reads == 1


async def test_once_closed_nobody_reads_or_is_kept_waiting(world: World) -> None:
    world.answered.clear()
    waiting, later = world.wait(), world.wait(LONG_SECONDS)
    await settle()
    await world.watch.close()
    await asyncio.gather(waiting, later)
    await world.watch.wait_for_newer(0.0)
    assert world.reads == 1
