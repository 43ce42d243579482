"""Memory whose size is known before it is taken."""

import asyncio

import pytest

from mq.limits.budget import Budget
from mq.limits.turns import ASKER


class Work:
    """Holds some of a budget until it is told to end."""

    def __init__(self, budget: Budget, size_bytes: int, asker: object = None) -> None:
        self.has_begun, self._may_end = False, asyncio.Event()
        self._budget, self._size_bytes, self._asker = budget, size_bytes, asker
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        ASKER.set(self._asker)
        async with self._budget.held(self._size_bytes):
            self.has_begun = True
            await self._may_end.wait()

    async def end(self) -> None:
        self._may_end.set()
        await self.task
        await asyncio.sleep(0)


async def begun(*works: Work) -> list[bool]:
    for _ in range(3):
        await asyncio.sleep(0)
    return [each.has_begun for each in works]


async def test_who_finds_no_room_waits_and_nobody_overtakes() -> None:
    budget = Budget(100)
    first, large, small = Work(budget, 60), Work(budget, 70), Work(budget, 10)
    assert await begun(first, large, small) == [True, False, False]
    await first.end()
    assert await begun(large, small) == [True, True]
    await large.end()
    await small.end()
    assert budget.held_bytes == 0


async def test_what_is_larger_than_all_is_held_alone() -> None:
    budget = Budget(100)
    small, huge = Work(budget, 1), Work(budget, 1_000)
    assert await begun(small, huge) == [True, False]
    await small.end()
    assert await begun(huge) == [True]
    await huge.end()
    assert budget.held_bytes == 0


async def test_one_client_does_not_keep_the_others_waiting() -> None:
    budget = Budget(1_000_000)
    holding = Work(budget, 1_000_000, "many")
    await begun()
    many = [Work(budget, 1_000_000, "many") for _ in range(50)]
    await begun()
    other = Work(budget, 1_000, "other")
    await begun()
    ended = 0
    await holding.end()
    while not (await begun(other))[0]:
        await next(each for each in many if each.has_begun and not each.task.done()).end()
        ended += 1
    assert ended <= 2
    for each in many:
        each.task.cancel()
    await other.end()


@pytest.mark.parametrize("has_got_it", [False, True])
async def test_who_is_cancelled_gives_his_room_back(*, has_got_it: bool) -> None:
    budget = Budget(100)
    first, second, third = Work(budget, 100), Work(budget, 100), Work(budget, 100)
    await begun()
    if has_got_it:
        first._may_end.set()
        while not first.task.done():
            await asyncio.sleep(0)
    second.task.cancel()
    if not has_got_it:
        await first.end()
    assert (await begun(third)) == [True]
    await third.end()
    assert budget.held_bytes == 0
