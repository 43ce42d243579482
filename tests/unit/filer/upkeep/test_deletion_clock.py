"""Whether files may be deleted now: by the store's time, unless the clock here contradicts it."""

import logging

import pytest

from filer.clock import ManualClock
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import FaultKind, ScriptedFaults
from filer.stores.memory_store import MemoryStore
from filer.upkeep.deletion_clock import DeletionClock, Look, ahead_us, jumped_us

GRACE_SECONDS = 100.0


class SetClock(ManualClock):
    """A clock that goes with the test's time, until somebody sets it or it stands still."""

    def __init__(self, true: ManualClock) -> None:
        super().__init__()
        self._true = true
        self.wall_off_us = self.stood_still_us = 0

    def now_us(self) -> int:
        return self._true.now_us() + self.wall_off_us - self.stood_still_us

    def monotonic_seconds(self) -> float:
        return (self._true.now_us() - self.stood_still_us) / 1e6


class World:
    """A store with a clock of its own, or (`is_local`) with that of the machine."""

    def __init__(self, *, is_local: bool = False) -> None:
        self.true = ManualClock()
        self.here = SetClock(self.true)
        self.faults = ScriptedFaults()
        memory = MemoryStore(clock=self.here if is_local else self.true)
        self.store = FailingStore(memory, self.faults, clock=self.true)
        self.deletions = DeletionClock(self.store, self.here, grace_seconds=GRACE_SECONDS)

    async def may_delete(self, *, after_seconds: float = 0.0) -> bool:
        await self.true.advance(after_seconds)
        await self.deletions.look()
        return self.deletions.now_us is not None


@pytest.mark.parametrize("step_seconds", [-7200, -11, 11, 7200])
async def test_a_clock_that_is_off_stops_deletion_and_is_told_once(
    step_seconds: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    assert await world.may_delete() and world.deletions.problem is None
    world.here.wall_off_us = step_seconds * 1_000_000
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert not await world.may_delete(after_seconds=5)
        assert world.deletions.is_paused and world.deletions.ahead_seconds == pytest.approx(step_seconds)
        assert world.deletions.problem is not None
        assert ("behind" if step_seconds < 0 else "ahead of") in world.deletions.problem
        world.here.wall_off_us = 0
        assert await world.may_delete(after_seconds=5), "the store's time never jumped"
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert f"ahead_seconds={step_seconds} " in caplog.text, "the number and the words have one sign"
    assert world.deletions.problem is None


@pytest.mark.parametrize("off_seconds", [-9, 9])
async def test_a_tenth_of_grace_is_allowed(off_seconds: int) -> None:
    world = World()
    world.here.wall_off_us = off_seconds * 1_000_000
    assert await world.may_delete()


@pytest.mark.parametrize("step_seconds", [-7200, 7200])
async def test_a_directory_whose_machine_was_set_waits_for_a_grace_period(step_seconds: int) -> None:
    world = World(is_local=True)
    assert await world.may_delete()
    world.here.wall_off_us = step_seconds * 1_000_000
    assert not await world.may_delete(after_seconds=1)
    assert not await world.may_delete(after_seconds=GRACE_SECONDS - 2)
    assert await world.may_delete(after_seconds=3)
    assert world.deletions.problem is None, "the two clocks are one: there is nothing to mend"
    assert world.deletions.now_us is not None
    # What was marked before the step is not taken for two hours older, however long it is kept.
    assert world.deletions.now_us == pytest.approx(min(world.true.now_us(), world.here.now_us()), abs=10)
    assert world.deletions.about_us() == pytest.approx(world.deletions.now_us, abs=10)
    world.here.wall_off_us = 0
    await world.may_delete(after_seconds=1)
    assert await world.may_delete(after_seconds=GRACE_SECONDS)
    if step_seconds > 0:
        assert world.deletions.now_us == pytest.approx(world.true.now_us(), abs=10)


async def test_a_machine_that_was_paused_deletes_once_its_clock_is_right_and_a_grace_period_later() -> None:
    world = World()
    assert await world.may_delete()
    world.here.stood_still_us = 20_000 * 1_000_000
    await world.true.advance(20_000)
    assert not await world.may_delete()
    assert world.deletions.ahead_seconds == pytest.approx(-20_000)
    world.here.wall_off_us = world.here.stood_still_us
    assert not await world.may_delete(after_seconds=1)
    assert await world.may_delete(after_seconds=GRACE_SECONDS)


async def test_a_store_that_does_not_answer_stops_deletion_without_a_word_about_clocks() -> None:
    world = World()
    assert await world.may_delete()
    world.faults.add("tell_time", FaultKind.UNAVAILABLE)
    assert not await world.may_delete(after_seconds=1)
    assert world.deletions.is_paused and world.deletions.problem is None
    assert await world.may_delete(after_seconds=1)


async def test_a_slow_answer_proves_nothing_about_the_clock() -> None:
    """The time was told at some moment between the question and the answer."""
    look = Look(wall_us=(100, 900), monotonic_us=(0, 800), told_us=500, resolution_us=1)
    assert ahead_us(look) == 0
    later = Look(wall_us=(1000, 1010), monotonic_us=(900, 910), told_us=1005, resolution_us=1)
    assert jumped_us(look, later) == 0
    assert ahead_us(Look((100, 110), (0, 10), told_us=200, resolution_us=1)) == 90
    assert ahead_us(Look((100, 110), (0, 10), told_us=20, resolution_us=50)) == -30


async def test_about_the_time_without_asking() -> None:
    world = World()
    assert world.deletions.about_us() == world.here.now_us()
    await world.deletions.look()
    world.here.wall_off_us = 10**12
    await world.true.advance(7)
    assert world.deletions.about_us() == world.true.now_us()
