"""When an owner may answer for what only its followers hold: after a look since it last came in touch."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest

from filer.clock import settle
from filer.errors import OutcomeUnknown
from leader.coordinator import Coordinator
from mq.standing import Standing


class World:
    """A broker in touch or not, and looks that end when the test says."""

    def __init__(self) -> None:
        self.coordinator = SimpleNamespace(in_touch=lambda: self.in_touch, touches=1)
        self.in_touch = True
        self.looks: list[asyncio.Future[None]] = []
        self.proven = 0
        self.standing = Standing(cast(Coordinator, self.coordinator), self._look, on_proven=self._prove)

    async def _look(self) -> None:
        self.looks.append(asyncio.get_running_loop().create_future())
        await self.looks[-1]

    def _prove(self) -> None:
        self.proven += 1

    async def asked(self) -> bool:
        """Whether it may answer; a look that begins thereby has begun."""
        answer = self.standing.proven()
        await settle()
        return answer

    async def end_look(self, error: Exception | None = None) -> None:
        if error is None:
            self.looks[-1].set_result(None)
        else:
            self.looks[-1].set_exception(error)
        await settle()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.standing.close()


async def test_one_look_is_enough_for_as_long_as_it_is_in_touch(world: World) -> None:
    assert not await world.asked() and not await world.asked()
    assert len(world.looks) == 1 and not world.proven
    await world.end_look()
    assert world.proven == 1 and await world.asked()
    world.in_touch = False
    assert not await world.asked()
    assert len(world.looks) == 1


async def test_in_touch_anew_it_looks_anew(world: World) -> None:
    await world.asked()
    await world.end_look()
    world.coordinator.touches += 1
    assert not await world.asked()
    await world.end_look()
    assert await world.asked() and len(world.looks) == 2


async def test_a_look_that_spans_a_time_out_of_touch_proves_nothing(world: World) -> None:
    await world.asked()
    world.coordinator.touches += 1
    await world.end_look()
    assert not await world.asked()
    await world.end_look()
    assert await world.asked()


async def test_a_look_that_fails_is_tried_again(world: World) -> None:
    await world.asked()
    await world.end_look(OutcomeUnknown())
    assert not world.proven and not await world.asked()
    await world.end_look()
    assert await world.asked()
