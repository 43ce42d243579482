"""Work for a client that goes away."""

import asyncio
import gc
import weakref

import pytest
from starlette.types import Message

from filer.errors import InvalidInput
from mq.bodies.intake import ClientGone
from mq.http.until_gone import until_gone
from mq.limits.turns import Turns


async def gone() -> Message:
    return {"type": "http.disconnect"}


@pytest.mark.parametrize("count", [2, 200])
async def test_many_who_go_away_at_once_end_one_after_the_other(count: int) -> None:
    """What is left to do for each takes time, for which everybody else would wait."""
    line = Turns(lambda: 0.0).streams
    ended_in_round: list[int] = []
    round_number = 0

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended_in_round.append(round_number)

    serving = [asyncio.create_task(until_gone(gone, work(), line)) for _ in range(count)]
    while not all(each.done() for each in serving):
        round_number += 1
        await asyncio.sleep(0)
    assert all(isinstance(each.exception(), ClientGone) for each in serving)
    assert len(set(ended_in_round)) == len(ended_in_round) == count


async def test_who_is_done_meanwhile_has_his_result() -> None:
    line, done = Turns(lambda: 0.0).streams, asyncio.Event()
    await line.wait()  # somebody else's turn, and rounds in which the work ends

    async def work() -> str:
        await done.wait()
        return "done"

    serving = asyncio.create_task(until_gone(gone, work(), line))
    done.set()
    assert await serving == "done"


class Held:
    """Something that a request holds."""


async def test_what_failed_holds_nothing_once_it_is_answered() -> None:
    """No garbage has to be collected for it: that happens seldom, and requests may hold megabytes."""
    held = Held()
    seen = weakref.ref(held)

    async def work(held: Held) -> None:
        raise InvalidInput(str(held))

    async def stays() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    gc.disable()
    try:
        with pytest.raises(InvalidInput):
            await until_gone(stays, work(held))
        del held
        assert seen() is None
    finally:
        gc.enable()
