"""What an owner answers when its followers hold a message, what it stores then, and what is left when it stops."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from filer.clock import ManualClock, settle
from filer.errors import OutcomeUnknown, SegmentMoved
from filer.failing_store import FailingStore
from filer.faults import FaultKind, ScriptedFaults
from filer.memory_store import MemoryStore
from filer.next_file import ACCEPTED_OVERHEAD_BYTES, Accepted
from filer.producer_windows import ProducerWindows
from filer.requests import Position, RequestId
from filer.segment_index import SegmentIndex
from filer.segment_log import SegmentRef, recover_index, seal_at_end
from filer.segment_writer import Replication, SegmentWriter, WriterState
from filer.take_over import flush_and_seal
from tests.support.segment_owners import GRACE_SECONDS, offset_of, owner, single, stored_values

REF = SegmentRef("events", 0)
REQUEST = RequestId("p", 1)
HELD_BYTES = 10 + ACCEPTED_OVERHEAD_BYTES


class FakeReplicas:
    """Followers that hold as much as the test says."""

    def __init__(self) -> None:
        self.sent: list[Accepted] = []
        self.stored_ends: list[int] = []
        self.closed = 0
        self.in_step = True
        self.hold: Callable[[int], None]
        self.refuse: Callable[[], None]

    def attach(self, on_held: Callable[[int], None], on_refused: Callable[[], None]) -> None:
        self.hold, self.refuse = on_held, on_refused

    def send(self, accepted: Accepted) -> None:
        self.sent.append(accepted)

    def stored(self, end: int) -> None:
        self.stored_ends.append(end)

    def close(self) -> None:
        self.closed += 1


class World:
    """One segment with followers, on a store in memory that fails as told."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(clock=self.clock)
        self.faults = ScriptedFaults()
        self.store = FailingStore(self.memory, self.faults, clock=self.clock)
        self.replicas = FakeReplicas()
        self.may_answer = True
        self.given: list[int] = []
        self.unstored_bytes = 0
        self.writer = self.make()

    def make(self) -> SegmentWriter:
        replication = Replication(self.replicas, lambda: self.may_answer, self._give, self._grow)
        return owner(self.store, self.clock, REF, SegmentIndex(), replication=replication)

    def _give(self, segment: int, held: Sequence[Accepted]) -> None:
        self.given += [offset for each in held for offset in range(each.base, each.end)]

    def _grow(self, size_bytes: int) -> None:
        self.unstored_bytes += size_bytes
        assert self.unstored_bytes >= 0

    def append(
        self, value: bytes, *, replicated: bool = True, request: RequestId | None = None
    ) -> "asyncio.Future[list[Position]]":
        return self.writer.append(single(value), 10, request, replicated=replicated)

    async def store_first(self) -> None:
        """The first file goes at once; what comes after it waits for the interval."""
        first = self.append(b"first")
        await settle()
        assert offset_of(first.result()) == 0

    async def seal_for_the_owner(self) -> SegmentIndex:
        return await flush_and_seal(
            self.memory,
            self.clock,
            REF,
            self.writer.unflushed,
            start_offset=0,
            writer="a.1",
            grace_seconds=GRACE_SECONDS,
        )


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.writer.close()
    assert made.unstored_bytes == 0


async def test_answered_once_all_followers_hold_it_and_not_before(world: World) -> None:
    await world.store_first()
    second, third = world.append(b"second"), world.append(b"third")
    await settle()
    assert not second.done() and not third.done()
    world.replicas.hold(2)
    await settle()
    assert offset_of(second.result()) == 1 and not third.done()
    assert world.given == [1] and world.unstored_bytes == HELD_BYTES
    assert await stored_values(world.memory, REF) == [b"first"]
    await world.clock.advance(1.1)
    assert offset_of(third.result()) == 2 and world.unstored_bytes == 0
    assert await stored_values(world.memory, REF) == [b"first", b"second", b"third"]
    assert world.replicas.stored_ends == [1, 3]
    assert [each.base for each in world.replicas.sent] == [0, 1, 2]


async def test_what_is_stored_first_is_given_to_nobody_again(world: World) -> None:
    await world.store_first()
    world.replicas.hold(1)
    assert world.given == [] and world.unstored_bytes == 0


async def test_a_message_held_during_its_put_counts_until_it_is_stored(world: World) -> None:
    world.faults.add("create", FaultKind.HANG)
    first = world.append(b"first")
    await settle()
    world.replicas.hold(1)
    assert offset_of(await first) == 0 and world.unstored_bytes == HELD_BYTES
    world.store.release()
    await settle()
    assert world.unstored_bytes == 0 and world.replicas.stored_ends == [1]


async def test_who_wants_it_stored_waits_for_that(world: World) -> None:
    world.faults.add("create", FaultKind.HANG)
    stored = world.append(b"x", replicated=False)
    await settle()
    world.replicas.hold(1)
    await settle()
    assert not stored.done() and world.given == [0]
    world.store.release()
    await settle()
    assert offset_of(stored.result()) == 0


async def test_who_wants_it_stored_makes_the_next_file_go_at_once(world: World) -> None:
    await world.store_first()
    world.append(b"lazy")
    await world.clock.advance(0.1)
    assert len(await stored_values(world.memory, REF)) == 1
    world.append(b"now", replicated=False)
    await world.clock.advance(0.02)
    assert await stored_values(world.memory, REF) == [b"first", b"lazy", b"now"]


async def test_out_of_touch_nothing_is_answered_before_it_is_stored(world: World) -> None:
    await world.store_first()
    second = world.append(b"second")
    world.may_answer = False
    world.replicas.hold(2)
    assert not second.done() and world.unstored_bytes == 0
    await world.clock.advance(0.02)
    assert offset_of(second.result()) == 1
    assert len(await stored_values(world.memory, REF)) == 2


async def test_what_was_held_meanwhile_is_answered_and_read_once_that_may_be(world: World) -> None:
    world.faults.add("create", FaultKind.HANG)
    world.may_answer = False
    first, second = world.append(b"first"), world.append(b"second")
    await settle()
    world.replicas.hold(1)
    assert not first.done() and world.given == []
    world.may_answer = True
    world.writer.answer_held()
    assert offset_of(first.result()) == 0 and world.given == [0] and not second.done()
    world.store.release()
    await settle()
    assert world.unstored_bytes == 0 and offset_of(second.result()) == 1


async def test_out_of_touch_all_that_was_answered_goes_to_the_store_at_once(world: World) -> None:
    await world.store_first()
    second = world.append(b"second")
    world.replicas.hold(2)
    assert offset_of(await second) == 1
    await world.clock.advance(0.2)
    assert len(await stored_values(world.memory, REF)) == 1
    world.may_answer = False
    await world.clock.advance(0.02)
    assert await stored_values(world.memory, REF) == [b"first", b"second"]


async def test_while_a_follower_takes_nothing_the_store_is_not_kept_waiting(world: World) -> None:
    """Who asked for replicated is answered by the store then."""
    await world.store_first()
    second = world.append(b"second")
    await world.clock.advance(0.2)
    assert not second.done()
    world.replicas.in_step = False
    await world.clock.advance(0.02)
    assert offset_of(second.result()) == 1


async def test_a_repeat_that_wants_it_stored_is_not_answered_early(world: World) -> None:
    await world.store_first()
    first = world.append(b"x", request=REQUEST)
    before = world.append(b"x", request=REQUEST, replicated=False)
    world.replicas.hold(2)
    after = world.append(b"x", request=REQUEST, replicated=False)
    early = world.append(b"x", request=REQUEST)
    assert offset_of(first.result()) == offset_of(early.result()) == 1
    assert not before.done() and not after.done()
    await world.clock.advance(0.02)
    assert offset_of(before.result()) == offset_of(after.result()) == 1
    assert await stored_values(world.memory, REF) == [b"first", b"x"]


async def test_a_repeat_is_answered_early_though_the_first_wants_it_stored_or_is_gone(world: World) -> None:
    world.faults.add("create", FaultKind.HANG)
    first = world.append(b"x", request=REQUEST, replicated=False)
    gone = world.append(b"y", request=RequestId("p", 2))
    await settle()
    repeats = [world.append(b"x", request=REQUEST), world.append(b"y", request=RequestId("p", 2))]
    gone.cancel()
    world.replicas.hold(2)
    await settle()
    assert not first.done()
    assert [offset_of(repeat.result()) for repeat in repeats] == [0, 1]
    assert world.unstored_bytes == 2 * HELD_BYTES
    world.store.release()
    await world.clock.advance(2)
    assert offset_of(first.result()) == 0


async def test_out_of_touch_a_repeat_of_what_was_held_waits_for_the_store(world: World) -> None:
    await world.store_first()
    first = world.append(b"x", request=REQUEST)
    world.replicas.hold(2)
    assert offset_of(first.result()) == 1
    world.may_answer = False
    world.faults.add("create", FaultKind.HANG)
    repeat = world.append(b"x", request=REQUEST)
    await world.clock.advance(1.1)
    assert not repeat.done()
    world.store.release()
    await settle()
    assert offset_of(repeat.result()) == 1
    assert await stored_values(world.memory, REF) == [b"first", b"x"]


async def test_what_is_not_stored_is_told_by_whole_requests(world: World) -> None:
    await world.store_first()
    for value in (b"1", b"2", b"3"):
        world.append(value)
    assert [each.base for each in world.writer.unstored(1, 4)] == [1, 2, 3]
    assert [each.base for each in world.writer.unstored(2, 3)] == [2]
    assert [each.base for each in world.writer.unstored(0, 1)] == []


async def test_refused_it_stops_and_gives_what_it_holds(world: World) -> None:
    await world.store_first()
    early = world.append(b"early")
    world.replicas.hold(2)
    known, unknown = world.append(b"known", request=REQUEST), world.append(b"unknown")
    world.replicas.refuse()
    assert offset_of(early.result()) == 1
    with pytest.raises(SegmentMoved):
        known.result()
    with pytest.raises(OutcomeUnknown):
        unknown.result()
    assert world.writer.state is WriterState.STOPPED and world.replicas.closed == 1
    with pytest.raises(SegmentMoved):
        await world.writer.seal()
    assert (await world.seal_for_the_owner()).end == 4
    assert await stored_values(world.memory, REF) == [b"first", b"early", b"known", b"unknown"]


async def test_a_drain_waits_for_nothing_of_a_segment_that_was_refused(world: World) -> None:
    """All have been told, and its put may be under way for as long as the store is away."""
    world.faults.add("create", FaultKind.HANG)
    world.append(b"flying")
    await settle()
    world.append(b"waiting")
    flushing = asyncio.create_task(world.writer.flush())
    await settle()
    assert not flushing.done()
    world.replicas.refuse()
    async with asyncio.timeout(5):
        await flushing
        await world.writer.flush()
    world.store.release()
    await settle()


@pytest.mark.parametrize("fault", [FaultKind.HANG, FaultKind.HANG_ANSWER])
@pytest.mark.parametrize("seal_first", [True, False])
async def test_refused_while_a_put_is_under_way(world: World, fault: FaultKind, seal_first: bool) -> None:
    """Whether it lands before, after, or instead of what is stored in its stead: every message once."""
    world.faults.add("create", fault)
    early = world.append(b"early")
    await settle()
    world.append(b"late")
    world.replicas.hold(2)
    world.replicas.refuse()
    assert offset_of(early.result()) == 0
    if not seal_first:
        world.store.release()
        await settle()
    assert (await world.seal_for_the_owner()).end == 2
    world.store.release()
    await settle()
    assert world.writer.state is WriterState.STOPPED
    assert await stored_values(world.memory, REF) == [b"early", b"late"]


async def test_refused_between_a_put_and_the_proof_that_it_counts() -> None:
    """Whoever takes over stores what the owner holds, so what was told stays told: nothing of it is stored here."""
    world, looking, may_go_on = World(), asyncio.Event(), asyncio.Event()
    await world.writer.close()

    async def look() -> bool:
        looking.set()
        await may_go_on.wait()
        return True

    replication = Replication(world.replicas, lambda: True, world._give, world._grow)
    world.writer = owner(world.store, world.clock, REF, SegmentIndex(), replication=replication, look=look)
    await world.writer.inheritance.wait()
    message = world.append(b"x", request=REQUEST)
    await looking.wait()
    world.replicas.refuse()
    may_go_on.set()
    await settle()
    with pytest.raises(SegmentMoved):
        message.result()
    assert world.writer.state is WriterState.STOPPED and world.writer.index.end == 0
    assert world.replicas.stored_ends == [] and world.unstored_bytes == 0
    assert (await world.seal_for_the_owner()).end == 1
    await world.writer.close()


async def test_closed_while_a_put_is_under_way_it_still_holds_what_it_answered(world: World) -> None:
    world.faults.add("create", FaultKind.HANG)
    early = world.append(b"early")
    await settle()
    world.replicas.hold(1)
    assert offset_of(await early) == 0
    await world.writer.close()
    assert [each.base for each in world.writer.unflushed] == [0]
    assert world.unstored_bytes == 0


async def test_refused_while_it_waits_for_the_windows_it_does_not_seal_without_them(world: World) -> None:
    """A seal that lacks what predecessors knew would have their requests stored a second time."""
    asked = asyncio.Event()

    async def never() -> ProducerWindows:
        asked.set()
        return await asyncio.Future()

    replicas = FakeReplicas()
    replication = Replication(replicas, lambda: True, lambda segment, held: None, lambda size_bytes: None)
    writer = owner(world.store, world.clock, REF, SegmentIndex(), replication=replication, inherit=never)
    sealing = asyncio.create_task(writer.seal())
    await asked.wait()
    await settle()
    replicas.refuse()
    await settle()
    with pytest.raises(SegmentMoved):
        await sealing
    assert not (await recover_index(world.memory, REF)).sealed
    await writer.close()


async def test_refused_with_nothing_under_way_its_task_ends(world: World) -> None:
    await world.store_first()
    world.replicas.refuse()
    await settle()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "writer events/0"]


async def test_followers_are_let_go_when_somebody_else_has_sealed(world: World) -> None:
    await world.store_first()
    await seal_at_end(world.memory, world.clock, REF, start_offset=0, writer="b.1", grace_seconds=GRACE_SECONDS)
    assert await world.writer.seal() == 1
    assert world.replicas.closed == 1


async def test_a_lost_seal_after_a_refusal_does_not_make_it_sealed(world: World) -> None:
    await world.store_first()
    world.writer.inheritance.stop()
    world.faults.add("create", FaultKind.HANG)
    sealing = asyncio.create_task(world.writer.seal())
    await settle()
    world.replicas.refuse()
    await world.seal_for_the_owner()
    world.store.release()
    await settle()
    assert world.writer.state is WriterState.STOPPED
    with pytest.raises(SegmentMoved):
        await sealing


async def test_what_it_holds_goes_once_the_segment_is_sealed(world: World) -> None:
    world.faults.add("create", FaultKind.HANG)
    world.append(b"x")
    await settle()
    world.replicas.refuse()
    assert len(world.writer.unflushed) == 1
    world.writer.note_sealed()
    assert not world.writer.unflushed
    world.store.release()
    await settle()


async def test_an_idle_owner_whose_segment_others_have_sealed_lets_go_of_everything(world: World) -> None:
    await world.store_first()
    world.writer.note_sealed()
    await settle()
    assert world.writer.state is WriterState.STOPPED and world.replicas.closed == 1
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "writer events/0"]


async def test_a_busy_one_answers_what_its_put_comes_to(world: World) -> None:
    """It may have landed before the seal: sent again it would be stored twice."""
    world.faults.add("create", FaultKind.HANG_ANSWER)
    stored = world.append(b"x", replicated=False)
    await settle()
    assert (await world.seal_for_the_owner()).end == 1
    world.writer.note_sealed()
    assert world.writer.state is WriterState.OPEN
    world.store.release()
    assert offset_of(await stored) == 0
    world.writer.note_sealed()
    assert world.writer.state is WriterState.STOPPED


async def test_the_seal_carries_on_behind_what_was_answered_early(world: World) -> None:
    await world.store_first()
    early = world.append(b"early")
    world.replicas.hold(2)
    assert offset_of(await early) == 1
    assert await world.writer.seal() == 2
    assert world.replicas.closed == 1
    index = await recover_index(world.memory, REF)
    assert index.sealed and index.end == 2
