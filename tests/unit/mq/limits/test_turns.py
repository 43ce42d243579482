"""Long work takes turns on the event loop, and stands back for publishes."""

import asyncio
import time
from itertools import count, pairwise

import pytest

from filer.clock import settle
from mq.limits.turns import ASKER, MOST_ROUNDS, ROUNDS, Line, Turns

LIMIT_SECONDS = 10


@pytest.fixture
async def turns() -> Turns:
    # Each turn takes as long as any other, however busy the machine is.
    ticks = count()
    return Turns(lambda: next(ticks) / 10_000)


class Work:
    """Tasks that take turns, and in which round of the loop each did."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.rounds: list[int] = []
        self._round = 0
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, line: Line, name: str, times: int, asker: str | None = None) -> asyncio.Task[None]:
        async def work() -> None:
            ASKER.set(asker or name)
            for _ in range(times):
                await line.wait()
                self.order.append(name)
                self.rounds.append(self._round)

        self._tasks.append(asyncio.create_task(work()))
        return self._tasks[-1]

    async def end(self) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not all(task.done() for task in self._tasks):
                await asyncio.sleep(0)
                self._round += 1
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def test_no_two_turns_in_a_round_of_the_loop_and_no_round_without(turns: Turns) -> None:
    work = Work()
    for number in range(9):
        work.begin(turns.pages if number % 2 else turns.others, f"{number}", 3)
    await work.end()
    assert len(work.rounds) == len(set(work.rounds)) == 27
    assert work.rounds[-1] - work.rounds[0] <= 2 * 27


async def test_who_has_nobody_before_him_does_not_wait(turns: Turns) -> None:
    for _ in range(3):
        taking = turns.pages.wait()
        with pytest.raises(StopIteration):
            taking.send(None)
        await settle()


async def test_kinds_of_work_share_the_time(turns: Turns) -> None:
    work = Work()
    for number in range(200):
        work.begin(turns.streams, "stream", 1, f"{number}")
    await asyncio.sleep(0)
    work.begin(turns.pages, "page", 3)
    await work.end()
    assert work.order[:12].count("page") == 3


async def test_connections_share_the_time_of_a_kind(turns: Turns) -> None:
    work = Work()
    for _ in range(50):
        work.begin(turns.pages, "again", 2, "one connection")
    await asyncio.sleep(0)
    work.begin(turns.pages, "other", 3)
    await work.end()
    assert work.order[:12].count("other") == 3


async def test_those_who_gave_up_hold_up_nobody(turns: Turns) -> None:
    work = Work()
    tasks = [work.begin(turns.others, f"{number}", 1) for number in range(3000)]
    await asyncio.sleep(0)
    for task in tasks[1:-1]:
        task.cancel()
    await work.end()
    assert work.order == ["0", "2999"]
    await settle()
    await asyncio.wait_for(turns.others.wait(), LIMIT_SECONDS)


async def test_a_publish_has_rounds_of_its_own_between_two_steps(turns: Turns) -> None:
    work = Work()
    with turns.publishing:
        for number in range(4):
            work.begin(turns.streams, f"{number}", 2)
        await work.end()
    assert min(b - a for a, b in pairwise(work.rounds)) >= ROUNDS


async def test_connections_are_accepted_before_the_next_step(turns: Turns) -> None:
    """One comes in each round: behind 200 others a client would wait for 200 steps."""
    work, loop, most, accepted = Work(), asyncio.get_running_loop(), 100, 0
    before: list[int] = []

    def accept() -> None:
        nonlocal accepted
        accepted += 1
        turns.connected()
        if accepted < most:
            loop.call_soon(accept)

    async def step() -> None:
        await turns.streams.wait()
        before.append(accepted)

    for number in range(2):
        work.begin(turns.pages, f"{number}", 1)
    await asyncio.sleep(0)
    accept()
    await asyncio.gather(*(step() for _ in range(10)))
    await work.end()
    assert accepted == most
    steps = sum(0 < count < most for count in before)
    assert most // MOST_ROUNDS - 1 <= steps <= most // MOST_ROUNDS + 1, "some go on nevertheless"


class Storing:
    """Whether this machine makes a file."""

    def __init__(self) -> None:
        self.now = True

    def __call__(self) -> bool:
        return self.now


@pytest.mark.parametrize("line", ["bodies", "pages", "streams", "others"])
async def test_steps_stand_back_until_a_file_is_made(line: str) -> None:
    storing, work = Storing(), Work()
    turns = Turns(lambda: 0.0, storing)
    work.begin(getattr(turns, line), "work", 1)
    await settle()
    assert not work.order
    storing.now = False
    turns.stored()
    await settle()
    assert work.order == ["work"]


async def test_bodies_that_are_always_ready_do_not_keep_others_standing_back() -> None:
    """A long file is made while bodies are decoded: readers waited until all of them were."""
    turns, ended = Turns(time.perf_counter, Storing()), False
    step_seconds, pages = 0.0005, 20

    async def decode() -> None:
        while not ended:
            await turns.bodies.wait()
            until = time.perf_counter() + step_seconds
            while time.perf_counter() < until:
                pass

    decoding = [asyncio.create_task(decode()) for _ in range(4)]
    await settle()
    async with asyncio.timeout(LIMIT_SECONDS):
        for _ in range(pages):
            await turns.pages.wait()
            await asyncio.sleep(0)
    ended = True
    await asyncio.gather(*decoding)


async def test_where_files_are_made_all_the_time_steps_get_half_of_it() -> None:
    turns = Turns(time.perf_counter, Storing())
    step_seconds, steps = 0.001, 100

    async def work() -> None:
        for _ in range(steps):
            await turns.streams.wait()
            until = time.perf_counter() + step_seconds
            while time.perf_counter() < until:
                pass

    began = time.perf_counter()
    await asyncio.wait_for(work(), LIMIT_SECONDS)
    took_seconds = time.perf_counter() - began
    assert took_seconds >= 1.5 * steps * step_seconds
