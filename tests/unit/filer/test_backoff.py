"""Pauses between tries grow up to a limit."""

import asyncio

import pytest

from filer.backoff import Backoff, backoff_seconds
from filer.clock import ManualClock, settle


async def lengths(clock: ManualClock, backoff: Backoff, count: int, *, jitter: bool = False) -> list[float]:
    """How long each of the next pauses takes, to a tenth of a second."""
    found: list[float] = []
    for _ in range(count):
        began_seconds = clock.monotonic_seconds()
        pause = asyncio.create_task(backoff.pause(jitter=jitter))
        await settle()
        while not pause.done():
            await clock.advance(0.1)
        found.append(round(clock.monotonic_seconds() - began_seconds, 1))
    return found


async def test_pauses_double_up_to_the_longest() -> None:
    clock = ManualClock()
    backoff = Backoff(clock, first_seconds=1, longest_seconds=5)
    assert await lengths(clock, backoff, 5) == [1, 2, 4, 5, 5]


async def test_a_success_begins_anew() -> None:
    clock = ManualClock()
    backoff = Backoff(clock, first_seconds=1, longest_seconds=5)
    await lengths(clock, backoff, 3)
    backoff.reset()
    assert await lengths(clock, backoff, 2) == [1, 2]


async def test_jitter_adds_at_most_as_much_again() -> None:
    clock = ManualClock(seed=100)
    (seconds,) = await lengths(clock, Backoff(clock, first_seconds=1), 1, jitter=True)
    assert 1 < seconds <= 2


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [
        pytest.param(1, 0.5, id="first"),
        pytest.param(2, 1.0, id="doubled"),
        pytest.param(4, 3.0, id="longest"),
        pytest.param(10**6, 3.0, id="after a very long time"),
    ],
)
def test_pause_by_the_number_of_failures(failures: int, seconds: float) -> None:
    assert backoff_seconds(failures, first_seconds=0.5, longest_seconds=3) == seconds
