"""Long work of Python goes on a step at a time, and the event loop serves other requests in between.

A thread would not help: it holds the interpreter while it works, and each time the loop comes back from the system it
would have to wait for the thread.
"""

import asyncio
from collections.abc import Generator
from concurrent.futures import Executor
from typing import TypeVar

from mq.limits.turns import Line

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that yields where others may go first, every 0.2 to 0.7 ms, and returns its result."""
STEP_BYTES = 256 * 1024
"""Text of so many bytes, or `STEP_ROWS` messages, are about a step."""
STEP_ROWS = 128
"""Some 0.7 ms. Smaller steps cost readers more than they spare others."""


async def in_turns(steps: Steps[T], turns: Line) -> T:
    """Return the result of the work. Runs the first step at once if the queue is empty."""
    while True:
        await turns.wait()
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def begun_at_once(steps: Steps[T], turns: Line, pool: Executor | None = None) -> T:
    """As `in_turns`, but the first step waits for no turn, nor for a file that is being encoded.

    For work that is short as a rule, and takes no longer than the request has taken to get here. In line it would wait
    for the files of others, each time. With a `pool`, the first step runs there, for work that does not need the
    interpreter.
    """
    loop = asyncio.get_running_loop()
    ended = _ended_by_a_step(steps) if pool is None else await loop.run_in_executor(pool, _ended_by_a_step, steps)
    return await in_turns(steps, turns) if ended is None else ended[0]


def _ended_by_a_step(steps: Steps[T]) -> tuple[T] | None:
    """Take one step. Return the result if it was the last. (`StopIteration` cannot leave a future.)"""
    try:
        next(steps)
    except StopIteration as end:
        return (end.value,)
    return None


def at_once(steps: Steps[T]) -> T:
    """Return the result of the work, if nothing else waits: in a thread of its own, or in a command."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
