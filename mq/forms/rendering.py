"""Renders the messages of an answer without holding up the event loop."""

import asyncio
from typing import TypeVar

from mq.limits.read_budget import ReadLease
from mq.limits.steps import Steps, at_once, in_turns

MIB = 1024 * 1024
# The budget gives room in steps of 1 MiB: a page of small messages holds at most two.
LONG_ROWS, LONG_BYTES = 1_000, 2 * MIB
T = TypeVar("T")


async def rendered(steps: Steps[T], rows: int, lease: ReadLease) -> T:
    """Render the messages that the lease was taken for, without holding up the event loop.

    Long answers wait for each other: while one is rendered, it is in memory several times.
    """
    if rows <= LONG_ROWS and lease.taken_bytes <= LONG_BYTES:
        return await in_turns(steps, lease.turns)
    async with lease.large_page:
        return await in_turns(steps, lease.turns)


async def copied(steps: Steps[T], rows: int, lease: ReadLease) -> T:
    """As `rendered`, for work outside the interpreter: in a thread if it is long."""
    if rows <= LONG_ROWS and lease.taken_bytes <= LONG_BYTES:
        return at_once(steps)
    async with lease.large_page:
        return await asyncio.get_running_loop().run_in_executor(None, at_once, steps)
