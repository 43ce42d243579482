"""For how long the event loop was kept from all else."""

import asyncio

import pytest

from filer.clock import ManualClock, settle
from mq.process.loop_watch import LOOK_SECONDS, LoopWatch


async def test_only_what_blocks_counts() -> None:
    clock = ManualClock()
    watch = LoopWatch(clock)
    running = asyncio.create_task(watch.run())
    await settle()
    for late_seconds in (0.0, 0.05, 3.0, 0.0, 0.5):
        # The clock is there at once: nothing ran meanwhile.
        await clock.leap(LOOK_SECONDS + late_seconds)
    assert watch.blocked_seconds == pytest.approx(3.5)
    running.cancel()
