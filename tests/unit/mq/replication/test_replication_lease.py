"""An owner may acknowledge what only its followers hold once it has read the record since it came in touch."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest

from filer.clock import settle
from filer.errors import OutcomeUnknown
from leader.membership.coordinator import Coordinator
from mq.replication.replication_lease import ReplicationLease


class World:
    """A broker in touch or not, and reads of the record that end when the test says."""

    def __init__(self) -> None:
        self.coordinator = SimpleNamespace(in_touch=lambda: self.in_touch, touch_count=1)
        self.in_touch = True
        self.reads: list[asyncio.Future[None]] = []
        self.became_valid = 0
        self.lease = ReplicationLease(cast(Coordinator, self.coordinator), self._read, on_valid=self._valid)

    async def _read(self) -> None:
        self.reads.append(asyncio.get_running_loop().create_future())
        await self.reads[-1]

    def _valid(self) -> None:
        self.became_valid += 1

    async def asked(self) -> bool:
        """Whether the lease is valid. A read that begins thereby has begun."""
        answer = self.lease.is_valid()
        await settle()
        return answer

    async def end_read(self, error: Exception | None = None) -> None:
        if error is None:
            self.reads[-1].set_result(None)
        else:
            self.reads[-1].set_exception(error)
        await settle()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.lease.close()


async def test_one_read_is_enough_for_as_long_as_it_is_in_touch(world: World) -> None:
    assert not await world.asked() and not await world.asked()
    assert len(world.reads) == 1 and not world.became_valid
    await world.end_read()
    assert world.became_valid == 1 and await world.asked()
    world.in_touch = False
    assert not await world.asked()
    assert len(world.reads) == 1


async def test_in_touch_again_it_reads_again(world: World) -> None:
    await world.asked()
    await world.end_read()
    world.coordinator.touch_count += 1
    assert not await world.asked()
    await world.end_read()
    assert await world.asked() and len(world.reads) == 2


async def test_a_read_that_spans_a_time_out_of_touch_does_not_count(world: World) -> None:
    await world.asked()
    world.coordinator.touch_count += 1
    await world.end_read()
    assert not await world.asked()
    await world.end_read()
    assert await world.asked()


async def test_a_read_that_fails_is_tried_again(world: World) -> None:
    await world.asked()
    await world.end_read(OutcomeUnknown())
    assert not world.became_valid and not await world.asked()
    await world.end_read()
    assert await world.asked()
