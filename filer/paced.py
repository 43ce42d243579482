"""Work in the background that leaves the processors to those who wait for an answer."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar, TypeVarTuple

from filer.clock import Clock

R = TypeVar("R")
Args = TypeVarTuple("Args")

SHARE = 0.2
"""How much of one processor upkeep takes at most in a broker; a process that does nothing else may take it all."""
LONGEST_REST_SECONDS = 1.0


async def run_paced(
    clock: Clock, executor: Executor, function: Callable[[*Args], R], *args: *Args, share: float = SHARE
) -> R:
    """Call the function on the executor, then rest so long that it took that share of a processor at most.

    Measured by the clock, waiting for a processor included: the busier the machine, the longer the rest. A machine
    that slept meanwhile was not busy, hence a longest rest.
    """
    began_seconds = clock.monotonic_seconds()
    result = await asyncio.get_running_loop().run_in_executor(executor, function, *args)
    took_seconds = clock.monotonic_seconds() - began_seconds
    await clock.sleep(min(took_seconds * (1 / share - 1), LONGEST_REST_SECONDS))
    return result
