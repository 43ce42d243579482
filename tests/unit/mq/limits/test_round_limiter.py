"""Work that many ask for at once is spread over the rounds of the event loop."""

import asyncio
from collections import Counter

from filer.clock import settle
from mq.limits.round_limiter import RoundLimiter


async def test_each_round_of_the_loop_admits_so_many() -> None:
    limiter, rounds, at = RoundLimiter(2), 0, Counter[int]()

    async def work() -> None:
        await limiter.wait()
        at[rounds] += 1

    tasks = [asyncio.create_task(work()) for _ in range(9)]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        rounds += 1
    assert max(at.values()) <= 2 and at.total() == 9
    assert rounds < 20, "no round is left out"


async def test_first_come_first_served_also_before_those_who_come_back() -> None:
    limiter, order = RoundLimiter(1), []

    async def work(name: str) -> None:
        for number in range(2):
            await limiter.wait()
            order.append(f"{name}{number}")
            await asyncio.sleep(0)  # so that all have asked once before the first asks again

    await asyncio.gather(*(work(name) for name in "abc"))
    assert order == ["a0", "b0", "c0", "a1", "b1", "c1"]


async def test_who_has_nobody_before_him_does_not_wait() -> None:
    limiter = RoundLimiter(1)
    for _ in range(3):
        taking = limiter.wait()
        try:
            taking.send(None)
        except StopIteration:
            pass
        else:
            raise AssertionError("it waited")
        await settle()


async def test_those_who_gave_up_hold_up_nobody() -> None:
    limiter = RoundLimiter(1)
    await limiter.wait()
    tasks = [asyncio.create_task(limiter.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[1].cancel()
    await asyncio.wait_for(tasks[2], 5)
    await asyncio.gather(*tasks, return_exceptions=True)
    await settle()
    await asyncio.wait_for(limiter.wait(), 5)
