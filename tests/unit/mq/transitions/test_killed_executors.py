"""A broker that splits or merges is killed at any call of its store: another one finishes the transition."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import SimpleNamespace

import pytest

from filer.format.requests import Position, RequestId
from filer.segment.inheritance import read_inherited
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef
from filer.slots import SLOTS
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import ScriptedFaults
from filer.topic.catalogue import Catalogue
from filer.topic.topic_state import TopicState
from leader.membership.coordinator import BrokerInfo
from leader.policy.cut_points import Cut
from mq.transitions.split_merge_requests import MergeRequest, SplitRequest, carry_out
from tests.support.broker.executors import FakeRegistry, executor_of
from tests.support.broker.killed_leaders import TOPIC, Killed, World, killing_at
from tests.support.instant_clock import InstantClock
from tests.support.segment.segment_owners import owner, single

REQUESTS = (RequestId("p", 1), RequestId("p", 2))
HALF, AT = SLOTS // 2, (40_000, 50_000)


class Splitter:
    """A broker that splits and merges; every segment's owner is gone."""

    def __init__(self, world: World, name: str, on_point: Callable[[str, str], None] = lambda point, key: None) -> None:
        self.clock, self.known = InstantClock(), world.state
        store = FailingStore(world.store, ScriptedFaults(), clock=self.clock, on_point=on_point)
        catalogue = Catalogue(store, self.clock)
        self._runtime = SimpleNamespace(
            topic=TOPIC,
            state=None,
            writers={},
            ref=partial(SegmentRef, TOPIC),
            inherited=partial(read_inherited, store, catalogue, TOPIC),
            adopt_index=lambda segment, index: None,
        )
        self._topics = FakeRegistry(self._apply)
        self.executor, self.placement = executor_of(
            name,
            store=store,
            clock=self.clock,
            coordinator=SimpleNamespace(
                brokers=lambda: [BrokerInfo(name, "", "", "1")], leads=lambda: True, session_timeout_seconds=0.0
            ),
            topics=self._topics,
        )

    def _apply(self, state: TopicState) -> None:
        self._runtime.state = state
        self._topics[TOPIC] = self._runtime


async def split_asked_for(broker: Splitter) -> None:
    _, successors = await carry_out(
        broker.executor, broker.placement, broker.clock, await broker.known(), SplitRequest(1, at=AT)
    )
    assert [s.id for s in successors] == [2, 3, 4]


async def merge_asked_for(broker: Splitter) -> None:
    _, successors = await carry_out(
        broker.executor, broker.placement, broker.clock, await broker.known(), MergeRequest(1, 0)
    )
    assert [s.id for s in successors] == [2]


async def split_decided(broker: Splitter) -> None:
    await broker.executor.split_or_merge(TOPIC, {1: Cut(AT)}, [])


async def merge_decided(broker: Splitter) -> None:
    await broker.executor.split_or_merge(TOPIC, {}, [(0, 1)])


async def begun() -> World:
    """Of the requests in segment 1 its successors must know."""
    world = await World().begin()
    writer = owner(world.store, InstantClock(), SegmentRef(TOPIC, 1), SegmentIndex())
    await writer.inheritance.wait()
    for each in REQUESTS:
        await writer.append(single(b"x"), 1, each)
    await writer.close()
    world.messages[1] = len(REQUESTS)
    return world


async def check_split(world: World) -> None:
    state = await world.state()
    await world.check_done(state, sealed=[1], opened=[0, 2, 3, 4])
    assert [s.range for s in state.open_segments[1:]] == [(HALF, AT[0]), AT, (AT[1], SLOTS)]
    await check_known(world, [2, 3, 4], [[Position(1, 0, 1)], [Position(1, 1, 1)]])


async def check_merge(world: World) -> None:
    state = await world.state()
    await world.check_done(state, opened=[2])
    assert state.open_segments[0].predecessors == (0, 1)
    await check_known(world, [2], [[None, Position(1, 0, 1)], [None, Position(1, 1, 1)]])


async def check_known(world: World, heirs: Sequence[int], known: list[list[Position | None]]) -> None:
    for segment in (await world.state()).open_segments:
        if segment.id in heirs:
            windows = await read_inherited(world.store, Catalogue(world.store, InstantClock()), TOPIC, segment)
            assert [[part.position for part in windows.look_up(each)] for each in REQUESTS] == known


Do = Callable[[Splitter], Awaitable[None]]
Check = Callable[[World], Awaitable[None]]
CHANGES: list[tuple[Do, Check]] = [
    (split_asked_for, check_split),
    (merge_asked_for, check_merge),
    (split_decided, check_split),
    (merge_decided, check_merge),
]


@pytest.mark.parametrize(("do", "check"), CHANGES, ids=[do.__name__ for do, _ in CHANGES])
async def test_killed_at_every_point(do: Do, check: Check) -> None:
    """Another broker that is asked the same, or decides the same by old news, finishes it and makes no more of it."""
    for nth in range(1, 200):
        world = await begun()
        try:
            await do(Splitter(world, "first", killing_at(nth)))
            killed = False
        except Killed:
            killed = True
            await do(Splitter(world, "second"))
        await check(world)
        assert len(world.store.versions) == 3, "it was made once"
        if not killed:
            assert nth > 16, "it passes more points than that"
            return
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize(("do", "check"), [(split_decided, check_split), (merge_asked_for, check_merge)])
async def test_killed_and_found_by_who_wants_nothing(do: Do, check: Check) -> None:
    """Whoever takes the topic up finishes what has begun; before that nothing has changed."""
    versions = set()
    for nth in range(1, 200):
        world = await begun()
        try:
            await do(Splitter(world, "first", killing_at(nth)))
        except Killed:
            state = await Splitter(world, "second").executor.finish_transition(TOPIC)
            assert state is not None
            versions.add(state.version)
            if state.version == 1:
                assert [s.id for s in state.open_segments] == [0, 1]
            else:
                await check(world)
        else:
            break
    assert versions == {1, 3}


async def test_several_at_once_make_one() -> None:
    for do, check in CHANGES:
        world = await begun()
        await asyncio.gather(*(do(Splitter(world, f"b{number}")) for number in range(3)))
        await check(world)
        assert len(world.store.versions) == 3
