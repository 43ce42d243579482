"""Waiting for a topic's shape to change: by news, and by looking together."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from filer.clock import ManualClock, settle
from filer.errors import OutcomeUnknown
from mq.shape_news import LOOK_APART_SECONDS, ShapeNews

LONG_SECONDS = 60.0
WAITERS = 50


class World:
    """Looks that take as long as the test says."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.looks = 0
        self.answered = asyncio.Event()
        self.answered.set()
        self.error: Exception | None = None
        self.news = ShapeNews(self.clock, self._look)

    async def _look(self) -> None:
        self.looks += 1
        await self.answered.wait()
        if self.error is not None:
            raise self.error

    def wait(self, seconds: float = 0.0) -> "asyncio.Task[None]":
        return asyncio.create_task(self.news.wait(seconds))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.news.close()


async def test_news_wake_everybody_without_a_look(world: World) -> None:
    waiting = [world.wait(LONG_SECONDS) for _ in range(WAITERS)]
    await settle()
    world.news.tell()
    await asyncio.gather(*waiting)
    assert world.looks == 0


async def test_those_who_waited_in_vain_look_together(world: World) -> None:
    world.answered.clear()
    waiting = [world.wait() for _ in range(WAITERS)]
    await settle()
    assert world.looks == 1 and not any(each.done() for each in waiting)
    world.answered.set()
    await asyncio.gather(*waiting)
    assert world.looks == 1


async def test_the_next_look_comes_some_time_after_the_last(world: World) -> None:
    await world.wait()
    again = world.wait()
    await world.clock.advance(LOOK_APART_SECONDS - 0.001)
    assert world.looks == 1 and not again.done()
    await world.clock.advance(0.002)
    await again
    assert world.looks == 2


async def test_who_comes_during_a_look_waits_for_the_next(world: World) -> None:
    """What it was begun too early to see would be missed."""
    world.answered.clear()
    first = world.wait()
    await settle()
    second = world.wait()
    await settle()
    world.answered.set()
    await first
    await world.clock.advance(LOOK_APART_SECONDS - 0.001)
    assert world.looks == 1 and not second.done()
    await world.clock.advance(0.002)
    await second
    assert world.looks == 2


@pytest.mark.parametrize("before_the_look", [True, False])
async def test_news_come_before_a_look_is_over(world: World, before_the_look: bool) -> None:
    await world.wait()
    world.answered.clear()
    waiting = world.wait()
    await world.clock.advance(0.0 if before_the_look else LOOK_APART_SECONDS + 0.001)
    assert not waiting.done()
    world.news.tell()
    await waiting


async def test_whoever_gives_up_leaves_the_others_their_look(world: World) -> None:
    world.answered.clear()
    first, second = world.wait(), world.wait()
    await settle()
    first.cancel()
    await settle()
    assert first.cancelled() and not second.done()
    world.answered.set()
    await second
    assert world.looks == 1


async def test_a_look_that_fails_is_no_more_than_no_news(world: World) -> None:
    world.error = OutcomeUnknown("the store is away")
    await world.wait()
    assert world.looks == 1


async def test_once_closed_nobody_looks_or_is_kept_waiting(world: World) -> None:
    world.answered.clear()
    waiting, later = world.wait(), world.wait(LONG_SECONDS)
    await settle()
    await world.news.close()
    await asyncio.gather(waiting, later)
    await world.news.wait(0.0)
    assert world.looks == 1
