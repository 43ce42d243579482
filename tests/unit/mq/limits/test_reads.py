"""Reads are cut off when their broker drains, and by nothing else."""

import asyncio

import pytest

from filer.clock import settle
from mq.base.errors import Draining
from mq.limits.reads import Reads


async def forever(reads: Reads, grace_seconds: float) -> None:
    async with reads.cut_off(grace_seconds):
        await asyncio.Event().wait()


async def test_what_is_under_way_is_cut_off_when_its_grace_is_over() -> None:
    reads = Reads()
    at_once, later = (asyncio.create_task(forever(reads, grace)) for grace in (0.0, 60.0))
    await settle()
    assert not at_once.done() and not later.done()
    reads.end()
    reads.end()
    with pytest.raises(Draining, match="read through another"):
        await asyncio.wait_for(at_once, 5)
    assert not later.done()
    later.cancel()
    with pytest.raises(asyncio.CancelledError):
        await later


async def test_what_begins_later_has_its_grace_too() -> None:
    reads = Reads()
    reads.end()
    async with reads.cut_off():
        await settle()
    with pytest.raises(Draining):
        await asyncio.wait_for(forever(reads, 0.0), 5)


async def test_a_time_out_of_what_is_read_is_no_cut() -> None:
    reads = Reads()
    with pytest.raises(TimeoutError, match="its own"):
        async with reads.cut_off():
            raise TimeoutError("its own")
    reads.end()
