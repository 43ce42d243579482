"""What an observer of owned segments is told, and that none of its faults holds anything up."""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

import pytest

from filer.clock import ManualClock, settle
from filer.segment.writer.segment_writer import SegmentWriter
from mq.topic.segment_observer import LAST_WORD_SECONDS, ObservedSegments


class FakeWriter:
    def __init__(self) -> None:
        self.end: Callable[[], None] = lambda: None

    def when_ended(self, ended: Callable[[], None]) -> None:
        self.end = ended


class Observer:
    """Notes what it is told. A last word ends once `spoken` is set, unless it fails or is deaf to its cancellation."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.spoken = asyncio.Event()
        self.fails = self.is_deaf = False

    def on_writer_opened(self, segment: int) -> None:
        self._tell("opened", segment)

    def on_writer_closed(self, segment: int) -> None:
        self._tell("closed", segment)

    async def before_seal(self, segment: int) -> None:
        self._tell("last word", segment)
        try:
            await self.spoken.wait()
        except asyncio.CancelledError:
            self.told.append(("cancelled", segment))
            if not self.is_deaf:
                raise
            await self.spoken.wait()

    def _tell(self, what: str, segment: int) -> None:
        self.told.append((what, segment))
        if self.fails:
            raise ValueError("a bug")


class World:
    def __init__(self) -> None:
        self.clock, self.observer = ManualClock(), Observer()
        self.observed = ObservedSegments("t", self.observer, self.clock)

    def asks(self) -> "asyncio.Task[None]":
        return asyncio.create_task(self.observed.last_word(7))


@pytest.fixture
async def world() -> World:
    return World()


@pytest.mark.parametrize("fails", [False, True])
async def test_it_is_told_of_the_begin_and_the_end(world: World, fails: bool, caplog: pytest.LogCaptureFixture) -> None:
    world.observer.fails = fails
    writer = FakeWriter()
    world.observed.opened(7, cast(SegmentWriter, writer))
    assert world.observer.told == [("opened", 7)]
    writer.end()
    assert world.observer.told == [("opened", 7), ("closed", 7)]
    assert len(caplog.records) == (2 if fails else 0)
    assert all(each.levelno == logging.ERROR for each in caplog.records)


async def test_several_ask_for_one_last_word(world: World) -> None:
    """Also if the first one to ask has given up meanwhile."""
    first, second = world.asks(), world.asks()
    await settle()
    first.cancel()
    await settle()
    assert not second.done()
    world.observer.spoken.set()
    await asyncio.gather(second, world.asks())
    assert world.observer.told == [("last word", 7)]


@pytest.mark.parametrize("is_deaf", [False, True])
async def test_a_last_word_is_cut_short(world: World, is_deaf: bool, caplog: pytest.LogCaptureFixture) -> None:
    world.observer.is_deaf = is_deaf
    asked = world.asks()
    await settle()
    await world.clock.advance(LAST_WORD_SECONDS - 0.01)
    assert not asked.done()
    await world.clock.advance(0.02)
    assert asked.done() and asked.exception() is None
    assert world.observer.told == [("last word", 7), ("cancelled", 7)]
    assert "last_word_failed topic=t segment=7" in caplog.text and "took more than 2 s" in caplog.text
    world.observer.spoken.set()
    await settle()


async def test_a_last_word_that_fails_is_over(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.observer.fails = True
    await world.asks()
    assert "last_word_failed topic=t segment=7" in caplog.text and "a bug" in caplog.text


async def test_a_last_word_ends_with_the_broker(world: World) -> None:
    asked = world.asks()
    await settle()
    await world.observed.close()
    await asked
    assert world.observer.told == [("last word", 7), ("cancelled", 7)]


async def test_a_segment_that_is_gone_leaves_nothing(world: World) -> None:
    world.observer.spoken.set()
    await world.asks()
    world.observed.forget(7)
    await world.asks()
    assert world.observer.told == [("last word", 7)] * 2
