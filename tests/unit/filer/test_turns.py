"""Writers take turns, but nobody waits long for one."""

import asyncio

from filer.turns import Turns


async def test_one_at_a_time_while_turns_are_short():
    turns, under_way, most = Turns(1), 0, 0

    async def work():
        nonlocal under_way, most
        async with turns.turn():
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1

    await asyncio.gather(*(work() for _ in range(20)))
    assert most == 1


async def test_who_has_waited_goes_on_without_a_turn():
    turns, blocked, passed = Turns(1), asyncio.Event(), asyncio.Event()

    async def hold():
        async with turns.turn():
            blocked.set()
            await passed.wait()

    holding = asyncio.create_task(hold())
    await blocked.wait()
    async with asyncio.timeout(10), turns.turn():
        passed.set()
    await holding
    async with asyncio.timeout(10), turns.turn():
        pass
