"""A follower that loses touch: what it stores, when, and that it neither stops trying nor does more than it must."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest

from filer.clock import ManualClock, settle
from filer.errors import OutcomeUnknown
from filer.segment.next_file import Accepted
from filer.segment.segment_index import SegmentIndex
from leader.membership.coordinator import Coordinator
from leader.transitions import SealedEnd
from mq.limits.front_store import FrontStore
from mq.replication.replica_buffers import ReplicaBuffers
from mq.topic.topic_runtime import TopicRuntime
from mq.transitions import early_flush as subject
from mq.transitions.early_flush import EarlyFlush
from tests.support.segment.segment_owners import single

SESSION_SECONDS = 10.0
OWNERS_SECONDS = SESSION_SECONDS * subject.OWNERS_SHARE


class World:
    """A follower of segments of topic t, each of which the store has up to `stored`."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.front_store = FrontStore(1 << 20)
        self.copies = ReplicaBuffers(self.front_store)
        self.in_touch = True
        self.stored: dict[int, int] = {}
        self.sealed: list[int] = []
        self.taken_over: list[int] = []
        self.failures: list[Exception] = []
        coordinator = SimpleNamespace(in_touch=lambda: self.in_touch, session_timeout_seconds=SESSION_SECONDS)
        runtime = SimpleNamespace(refresh=self._refresh, reads=SimpleNamespace(index=self._index))
        self.flush = EarlyFlush(
            clock=self.clock,
            coordinator=cast(Coordinator, coordinator),
            replica_buffers=self.copies,
            topics={"t": cast(TopicRuntime, runtime)},
            take_over=self._take_over,
        )

    def hold(self, segment: int, *, messages: int = 3) -> None:
        self.copies.take("t", segment, [Accepted(single(b"x"), n, 1, 1, 1) for n in range(messages)], 0)
        self.stored.setdefault(segment, 0)

    async def lose_touch(self) -> None:
        self.in_touch = False
        self.flush.wake()
        await settle()

    async def _refresh(self) -> None:
        self.copies.keep_only("t", set(self.stored) - set(self.sealed))

    async def _index(self, segment: int, *, fresh: bool) -> SegmentIndex:
        assert fresh
        return cast(SegmentIndex, SimpleNamespace(end=self.stored[segment]))

    async def _take_over(self, runtime: TopicRuntime, segment: int) -> SealedEnd:
        held = self.copies.refuse("t", segment)
        if self.failures:
            raise self.failures.pop(0)
        self.taken_over.append(segment)
        self.stored[segment] = held[-1].end
        return SealedEnd(held[-1].end)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    running = asyncio.create_task(made.flush.run())
    await settle()
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_in_touch_it_leaves_all_to_the_owner_and_the_leader(world: World) -> None:
    world.hold(0)
    world.flush.wake()
    await world.clock.advance(SESSION_SECONDS * 10)
    assert world.taken_over == [] and world.copies.held() == [("t", 0)]


async def test_out_of_touch_the_owner_has_a_while_then_all_is_stored(world: World) -> None:
    world.hold(0)
    world.hold(1)
    await world.lose_touch()
    await world.clock.advance(OWNERS_SECONDS - 0.1)
    assert world.taken_over == []
    await world.clock.advance(0.2)
    assert world.taken_over == [0, 1]
    assert world.copies.held() == [] and world.front_store.pending_bytes == 0
    await world.clock.advance(SESSION_SECONDS * 10)
    assert world.taken_over == [0, 1]


async def test_what_the_owner_has_stored_is_dropped_and_its_segment_left_alone(world: World) -> None:
    world.hold(0)
    world.hold(1)
    world.hold(2)
    world.stored.update({0: 3, 1: 2})
    world.sealed.append(2)
    await world.lose_touch()
    await world.clock.advance(OWNERS_SECONDS + 0.1)
    assert world.taken_over == [1], "of the others nothing is missing"
    assert world.copies.held() == [] and world.front_store.pending_bytes == 0
    assert world.copies.take("t", 0, [], 3) == 3


async def test_back_in_touch_before_that_it_leaves_it_to_the_others(world: World) -> None:
    world.hold(0)
    await world.lose_touch()
    await world.clock.advance(OWNERS_SECONDS / 2)
    world.in_touch = True
    await world.clock.advance(SESSION_SECONDS * 10)
    assert world.taken_over == [] and world.copies.held() == [("t", 0)]
    await world.lose_touch()
    await world.clock.advance(OWNERS_SECONDS + 0.1)
    assert world.taken_over == [0]


@pytest.mark.parametrize("failure", [OutcomeUnknown(), RuntimeError("a defect")])
async def test_stopped_after_the_refusal_it_is_tried_again_and_the_others_are_stored(
    world: World, failure: Exception
) -> None:
    world.hold(0)
    world.hold(1)
    world.failures = [failure]
    await world.lose_touch()
    await world.clock.advance(OWNERS_SECONDS + 0.1)
    assert world.taken_over == [1] and world.copies.held() == [("t", 0)]
    await world.clock.advance(OWNERS_SECONDS)
    assert world.taken_over == [1, 0] and world.copies.held() == []


async def test_before_it_leaves_it_stores_what_the_store_lacks(world: World) -> None:
    world.hold(0)
    world.hold(1)
    world.hold(2)
    world.stored[0] = 3
    world.failures = [OutcomeUnknown()]
    await world.flush.store_all()
    assert world.taken_over == [2] and world.copies.held() == [("t", 1)]
    await world.flush.store_all()
    assert world.taken_over == [2, 1] and world.copies.held() == []
