"""Upkeep rests in proportion to what it took."""

import asyncio
from concurrent.futures import Executor, Future

import pytest

from filer.clock import ManualClock, settle
from filer.paced import run_paced


class Toil(Executor):
    """Runs at once, and takes that long by the clock."""

    def __init__(self, clock: ManualClock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    def submit(self, fn, /, *args, **kwargs):
        done: Future[object] = Future()
        asyncio.get_running_loop().create_task(self._finish(done, fn, args))
        return done

    async def _finish(self, done, fn, args):
        await self._clock.advance(self._seconds)
        done.set_result(fn(*args))


@pytest.mark.parametrize("seconds", [0.1, 0.3])
async def test_it_rests_three_times_as_long_as_it_worked(seconds: float):
    clock = ManualClock()
    began = clock.monotonic_seconds()
    task = asyncio.create_task(run_paced(clock, Toil(clock, seconds), divmod, 7, 2))
    while clock.monotonic_seconds() - began < seconds:
        await asyncio.sleep(0)
    await settle()
    await clock.advance(seconds * 2.9)
    assert not task.done()
    await clock.advance(seconds * 0.2)
    assert await task == (3, 1)


async def test_the_rest_is_bounded():
    clock = ManualClock(start_us=0)
    task = asyncio.create_task(run_paced(clock, Toil(clock, 3600), divmod, 7, 2))
    while clock.monotonic_seconds() < 3600:
        await asyncio.sleep(0)
    await settle()
    await clock.advance(1)
    assert await task == (3, 1)


async def test_work_that_took_no_time_needs_no_rest():
    assert await run_paced(clock := ManualClock(), Toil(clock, 0), divmod, 7, 2) == (3, 1)
