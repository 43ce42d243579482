"""Transitions under a store that loses answers and leaders that are killed: topic.json is sound in every version."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from filer.errors import OutcomeUnknown
from filer.format.requests import Position, RequestId
from filer.segment.inheritance import read_inherited
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, seal_at_end
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import FaultKind, ScriptedFaults
from filer.topic.catalogue import Catalogue
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState
from leader.transition_runner import TransitionRunner
from leader.transitions import (
    SealedEnd,
    begin_deletion,
    begin_merge,
    begin_replacement,
    begin_split,
    new_topic,
    recreated,
)
from tests.support.broker.killed_leaders import MESSAGES, TOPIC, Killed, World, killing_at
from tests.support.instant_clock import InstantClock
from tests.support.segment.segment_owners import owner, single

Begin = Callable[[TopicState], TopicState | None]
OPENED = {"roll": (2, 3), "split": (2, 3, 4, 5, 6), "merge": (2,), "delete": ()}


class Leader:
    """A leader whose process may die at any of its store's calls; it seals in the stead of owners that are gone."""

    def __init__(
        self,
        world: World,
        *,
        name: str = "leader",
        faults: ScriptedFaults | None = None,
        on_point: Callable[[str, str], None] = lambda point, key: None,
    ) -> None:
        self.clock = InstantClock()
        self.store = FailingStore(world.store, faults or ScriptedFaults(), clock=self.clock, on_point=on_point)
        self.catalogue = Catalogue(self.store, self.clock)
        self.runner = TransitionRunner(self.catalogue, self, self.clock)
        self._name = name

    def brokers_for(self, index: int) -> tuple[str, ...]:
        return (self._name,)

    def begin_roll(self, state: TopicState) -> TopicState | None:
        return begin_replacement(state, [0, 1], self.brokers_for, "roll", now_us=1)

    def begin_roll_again(self, state: TopicState) -> TopicState | None:
        return begin_replacement(state, [2, 3], self.brokers_for, "roll", now_us=1)

    def begin_split(self, state: TopicState) -> TopicState | None:
        return begin_split(state, {0: (100, 200), 1: (40_000,)}, self.brokers_for, now_us=1)

    def begin_merge(self, state: TopicState) -> TopicState | None:
        return begin_merge(state, [(0, 1)], self.brokers_for, now_us=1)

    def begin_deletion(self, state: TopicState) -> TopicState | None:
        return begin_deletion(state, now_us=1)

    async def seal(self, topic: str, segment: Segment, state: TopicState) -> SealedEnd:
        """As `Sealer.seal`."""
        index = await seal_at_end(
            self.store,
            self.clock,
            SegmentRef(topic, segment.id),
            start_offset=0,
            writer=self._name,
            grace_seconds=60,
            inherit=partial(read_inherited, self.store, self.catalogue, topic, segment),
        )
        return SealedEnd(index.end, index.seal_offset, index.stored_bytes)


def begin_of(leader: Leader, kind: str) -> Begin:
    begins = {
        "roll": leader.begin_roll,
        "split": leader.begin_split,
        "merge": leader.begin_merge,
        "delete": leader.begin_deletion,
    }
    return begins[kind]


@pytest.mark.parametrize("kind", OPENED)
async def test_a_leader_killed_at_every_point(kind: str) -> None:
    for nth in range(1, 200):
        world = await World().begin()
        first = Leader(world, on_point=killing_at(nth))
        try:
            await first.runner.run(TOPIC, begin_of(first, kind))
        except Killed:
            second = Leader(world, name="second")
            state = await second.runner.run(TOPIC, begin_of(second, kind))
            await world.check_done(state, opened=OPENED[kind])
        else:
            assert nth > 20, "the transition passes more points than that"
            await world.check_done(await world.state(), opened=OPENED[kind])
            assert len(world.store.versions) == 3
            return
    raise AssertionError("the transition never came to its end")


@pytest.mark.parametrize("fault", [FaultKind.LOSE_ANSWER, FaultKind.FAIL_BEFORE, FaultKind.CONFLICT])
@pytest.mark.parametrize("operation", ["get", "create", "replace"])
async def test_a_fault_at_every_call(operation: str, fault: FaultKind) -> None:
    """Reads that fail end the try, as the store's decorator that repeats them is not there; the next try is clean."""
    met = True
    nth = 0
    while met:
        world, faults = await World().begin(), ScriptedFaults()
        faults.add(operation, *[None] * nth, fault)
        leader = Leader(world, faults=faults)
        try:
            await leader.runner.run(TOPIC, leader.begin_roll)
        except OutcomeUnknown:
            assert operation == "get"
        met, nth = not faults.left, nth + 1
        await world.check_done(await leader.runner.run(TOPIC, leader.begin_roll))
    assert nth > 2


async def test_what_is_known_of_producers_outlives_killed_leaders() -> None:
    """Two rolls, killed at every point: nothing is written to the segments between, so only seals hand it on."""
    request, other = RequestId("p", 1), RequestId("p", 2)
    for nth in range(1, 200):
        world = await World().begin()
        writer = owner(world.store, InstantClock(), SegmentRef(TOPIC, 1), SegmentIndex())
        await writer.inheritance.wait()
        for each in (request, other):
            await writer.append(single(b"x"), 1, each)
        await writer.close()
        try:
            await roll_twice(Leader(world, on_point=killing_at(nth)))
            killed = False
        except Killed:
            killed = True
            await roll_twice(Leader(world, name="second"))
        state = await world.state()
        assert [s.id for s in state.open_segments] == [4, 5]
        for heir in state.open_segments:
            windows = await read_inherited(world.store, Catalogue(world.store, InstantClock()), TOPIC, heir)
            known = [[part.position for part in windows.look_up(each)] for each in (request, other)]
            assert known == ([[Position(1, 0, 1)], [Position(1, 1, 1)]] if heir.id == 5 else [[None], [None]])
        if not killed:
            assert nth > 40, "two transitions pass more points than that"
            return
    raise AssertionError("the transitions never came to their end")


async def roll_twice(leader: Leader) -> None:
    await leader.runner.run(TOPIC, leader.begin_roll)
    await leader.runner.run(TOPIC, leader.begin_roll_again)


async def test_two_leaders_at_once() -> None:
    world = await World().begin()
    leaders = [Leader(world, name=f"leader-{n}") for n in range(3)]
    states = await asyncio.gather(*(leader.runner.run(TOPIC, leader.begin_roll) for leader in leaders))
    assert states == [await world.state()] * 3
    await world.check_done(states[0])


async def test_roll_against_delete() -> None:
    """Whichever comes first, the other one goes on from there, and in the end the topic is gone."""
    world = await World().begin()
    rolls, deletes = Leader(world, name="rolls"), Leader(world, name="deletes")
    await asyncio.gather(rolls.runner.run(TOPIC, rolls.begin_roll), deletes.runner.run(TOPIC, deletes.begin_deletion))
    state = await deletes.runner.run(TOPIC, deletes.begin_deletion)
    assert state is not None and state.deleted
    world.store.check()


async def test_a_name_used_again_goes_on_counting() -> None:
    world = await World().begin()
    leader = Leader(world)
    await leader.runner.run(TOPIC, leader.begin_deletion)
    await leader.catalogue.change(
        TOPIC, lambda s: recreated(s, TopicConfig(), 2, leader.brokers_for, now_us=2) if s.deleted else None
    )
    assert [s.id for s in (await world.state()).open_segments] == [2, 3]
    world.store.check()


# -- compare-and-swap of topic.json -----------------------------------------------------------------------


def counted(state: TopicState) -> TopicState:
    """A change that is not idempotent: doing it twice would show."""
    return state.model_copy(update={"next_segment": state.next_segment + 1})


async def test_concurrent_changes_all_count() -> None:
    world = await World().begin()
    await asyncio.gather(*(Leader(world).catalogue.change(TOPIC, counted) for _ in range(8)))
    assert (await world.state()).next_segment == len(MESSAGES) + 8
    world.store.check()


@pytest.mark.parametrize("fault", [FaultKind.LOSE_ANSWER, FaultKind.FAIL_BEFORE])
async def test_a_create_whose_answer_was_lost(fault: FaultKind) -> None:
    """True only where it is certain; whoever is told False finds the topic there."""
    world, faults = World(), ScriptedFaults()
    faults.add("create", fault)
    leader = Leader(world, faults=faults)
    state = new_topic(TOPIC, TopicConfig(), 1, leader.brokers_for, now_us=0)
    if fault is FaultKind.LOSE_ANSWER:
        assert not await leader.catalogue.create(state)
        assert await world.state() == state
    else:
        with pytest.raises(OutcomeUnknown):
            await leader.catalogue.create(state)
        assert await leader.catalogue.create(state)


async def test_a_store_that_never_answers_is_said_so() -> None:
    world, faults = await World().begin(), ScriptedFaults()
    faults.add("replace", *[FaultKind.UNAVAILABLE] * 12)
    leader = Leader(world, faults=faults)
    with pytest.raises(OutcomeUnknown):
        await leader.catalogue.change(TOPIC, counted)
    assert len(world.store.versions) == 1
