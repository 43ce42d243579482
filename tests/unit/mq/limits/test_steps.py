"""Long work of Python goes on a step at a time, and others go first in between."""

import asyncio
from itertools import pairwise

import pytest

from filer.clock import settle
from mq.limits.steps import Steps, at_once, begun_at_once, in_turns
from mq.limits.turns import Turns


def count(name: str, steps: int, order: list[str]) -> Steps[int]:
    for number in range(steps):
        order.append(f"{name}{number}")
        yield
    return steps


async def test_several_take_turns_and_the_loop_serves_others_in_between() -> None:
    order: list[str] = []
    turns = Turns(lambda: 0.0).pages

    async def other() -> None:
        for _ in range(20):
            order.append("-")
            await asyncio.sleep(0)

    first, second, _ = await asyncio.gather(
        in_turns(count("a", 3, order), turns), in_turns(count("b", 3, order), turns), other()
    )
    assert (first, second) == (3, 3)
    assert all("-" in pair for pair in pairwise(order)), "no two steps in a round of the loop"
    assert order.index("b0") < order.index("a2"), "who came later does not wait for the end"


async def test_what_is_short_waits_for_no_file_and_what_is_long_for_its_next_step() -> None:
    order: list[str] = []
    turns = Turns(lambda: 0.0, storing=lambda: True).others

    short = begun_at_once(count("a", 0, order), turns)
    with pytest.raises(StopIteration):
        short.send(None)

    long = asyncio.create_task(begun_at_once(count("b", 2, order), turns))
    await settle()
    assert order == ["b0"], "the second step stands back for the file that is made"
    long.cancel()


async def test_what_fails_in_a_step_is_raised() -> None:
    def failing() -> Steps[None]:
        yield
        raise ValueError("in the second step")

    with pytest.raises(ValueError, match="in the second step"):
        await in_turns(failing(), Turns(lambda: 0.0).pages)


def test_where_nobody_waits_all_steps_are_taken_at_once() -> None:
    assert at_once(count("a", 3, [])) == 3
