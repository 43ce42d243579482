"""The clock of tests: time passes step by step, or at once."""

import asyncio

from filer.clock import ManualClock, settle


async def look_each_second(clock: ManualClock, looks: list[float]) -> None:
    while True:
        await clock.sleep(1.0)
        looks.append(clock.monotonic_seconds())


async def wakes_of(clock: ManualClock, *, leaps: bool) -> list[float]:
    """When a task that looks around each second does so in an hour, in seconds from its begin."""
    began_seconds, looks = clock.monotonic_seconds(), list[float]()
    looking = asyncio.create_task(look_each_second(clock, looks))
    await settle()
    await (clock.leap(3600.0) if leaps else clock.advance(3600.0))
    looking.cancel()
    return [round(each - began_seconds) for each in looks]


async def test_steps_wake_a_sleeper_each_time() -> None:
    assert await wakes_of(ManualClock(), leaps=False) == list(range(1, 3601))


async def test_a_leap_wakes_it_once_at_the_new_time() -> None:
    assert await wakes_of(ManualClock(), leaps=True) == [3600]


async def test_a_leap_leaves_alone_who_is_not_due() -> None:
    clock = ManualClock()
    sleeping = asyncio.create_task(clock.sleep(10.0))
    await settle()
    await clock.leap(9.0)
    assert not sleeping.done()
    await clock.leap(1.0)
    assert sleeping.done()


async def test_a_leap_passes_over_a_sleeper_that_was_cancelled() -> None:
    clock = ManualClock()
    sleeping = asyncio.create_task(clock.sleep(1.0))
    await settle()
    sleeping.cancel()
    await clock.leap(2.0)
    assert sleeping.cancelled()
