"""Work that many ask for at once: done as seldom as can be, and never begun before it was asked for."""

import asyncio

import pytest

from filer.clock import ManualClock, settle
from mq.base.single_flight import SingleFlight


class Work:
    """Counts how often it began; goes on when `gate` is open."""

    def __init__(self, rest_seconds: float = 0.0) -> None:
        self.clock = ManualClock()
        self.begun = 0
        self.gate = asyncio.Event()
        self.errors: list[Exception] = []
        self.do = SingleFlight(self._work, self.clock, name="work", rest_seconds=rest_seconds)

    async def _work(self) -> None:
        self.begun += 1
        error = self.errors.pop() if self.errors else None
        await self.gate.wait()
        if error is not None:
            raise error


@pytest.fixture
async def work() -> Work:
    return Work()


async def test_many_at_once_share_one(work: Work) -> None:
    work.gate.set()
    await asyncio.gather(*(work.do() for _ in range(100)))
    assert work.begun == 1
    await work.do()
    assert work.begun == 2


async def test_who_asks_while_it_is_under_way_gets_one_that_begins_later(work: Work) -> None:
    first = asyncio.create_task(work.do())
    await settle()
    later = [asyncio.create_task(work.do()) for _ in range(100)]
    await settle()
    assert work.begun == 1, "one at a time"
    work.gate.set()
    await asyncio.gather(first, *later)
    assert work.begun == 2


async def test_it_rests_between_two_and_those_who_ask_meanwhile_share_the_next() -> None:
    work = Work(rest_seconds=5.0)
    work.gate.set()
    work.errors.append(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await work.do()
    await work.clock.advance(1.0)
    later = []
    for _ in range(3):
        later.append(asyncio.create_task(work.do()))
        await work.clock.advance(1.0)
    assert work.begun == 1, "a failure needs its rest too"
    await work.clock.advance(1.0)
    await asyncio.gather(*later)
    assert work.begun == 2
    await work.clock.advance(5.0)
    await work.do()
    assert work.begun == 3


async def test_who_gives_up_keeps_it_from_nobody(work: Work) -> None:
    impatient, patient = (asyncio.create_task(work.do()) for _ in range(2))
    await settle()
    impatient.cancel()
    await settle()
    assert not patient.done()
    work.gate.set()
    await patient
    assert work.begun == 1


async def test_a_failure_is_told_to_those_who_shared_it_and_to_nobody_else(work: Work) -> None:
    work.errors.append(ValueError("no"))
    failing = [asyncio.create_task(work.do()) for _ in range(2)]
    await settle()
    later = asyncio.create_task(work.do())
    await settle()
    work.gate.set()
    for task in failing:
        with pytest.raises(ValueError, match="no"):
            await task
    await later
    assert work.begun == 2


async def test_closing_ends_what_is_under_way_and_what_waits(work: Work) -> None:
    asking = [asyncio.create_task(work.do())]
    await settle()
    asking.append(asyncio.create_task(work.do()))
    await settle()
    await work.do.close()
    assert [type(each) for each in await asyncio.gather(*asking, return_exceptions=True)] == [
        asyncio.CancelledError,
        asyncio.CancelledError,
    ]
    assert work.begun == 1
