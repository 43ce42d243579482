"""Upkeep rests in proportion to what it took."""

import asyncio
from concurrent.futures import Executor, Future

import pytest

from filer.clock import ManualClock, settle
from filer.upkeep.pacing import run_paced


class Toil(Executor):
    """Takes that long by the clock."""

    def __init__(self, clock: ManualClock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self._tasks: list[asyncio.Task[None]] = []

    def submit(self, fn, /, *args, **kwargs):
        done: Future[object] = Future()
        self._tasks.append(asyncio.create_task(self._finish(done, fn, args)))
        return done

    async def _finish(self, done, fn, args):
        await self._clock.sleep(self._seconds)
        done.set_result(fn(*args))


@pytest.mark.parametrize(("works", "takes"), [(0.0, 0.0), (0.1, 0.5), (0.2, 1.0), (0.5, 1.5), (3600.0, 3601.0)])
async def test_it_rests_four_times_as_long_as_it_worked_but_never_long(works: float, takes: float):
    clock = ManualClock(start_us=0)
    task = asyncio.create_task(run_paced(clock, Toil(clock, works), divmod, 7, 2))
    await settle()
    await clock.advance(works)
    while not task.done():
        await clock.advance(0.01)
    assert clock.monotonic_seconds() == pytest.approx(takes, abs=0.05)
    assert await task == (3, 1)
