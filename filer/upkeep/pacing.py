"""Background work that leaves the processors to callers that wait for an answer."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar, TypeVarTuple

from filer.clock import Clock

R = TypeVar("R")
Args = TypeVarTuple("Args")

SHARE = 0.2
"""The largest share of one processor that upkeep takes in a broker.

A process that does nothing else may take all of it.
"""
LONGEST_REST_SECONDS = 1.0


async def run_paced(
    clock: Clock, executor: Executor, function: Callable[[*Args], R], *args: *Args, share: float = SHARE
) -> R:
    """Call the function on the executor, then rest until it has taken at most that share of a processor.

    The clock measures the call, including the wait for a processor: the busier the machine, the longer the rest. The
    rest has a limit, since a machine that was suspended meanwhile was not busy.
    """
    began_seconds = clock.monotonic_seconds()
    result = await asyncio.get_running_loop().run_in_executor(executor, function, *args)
    took_seconds = clock.monotonic_seconds() - began_seconds
    await clock.sleep(min(took_seconds * (1 / share - 1), LONGEST_REST_SECONDS))
    return result
