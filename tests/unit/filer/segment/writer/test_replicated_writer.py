"""What an owner answers when its followers hold a message, what it stores then, and what is left when it stops."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from filer.clock import settle
from filer.errors import OutcomeUnknown, SegmentMoved
from filer.format.requests import RequestId
from filer.segment.next_file import ACCEPTED_OVERHEAD_BYTES
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, seal_at_end
from filer.segment.writer.writer_state import WriterState
from filer.stores.decorators.faults import FaultKind
from tests.support.segment.segment_owners import GRACE_SECONDS, offset_of, owner
from tests.support.segment.segment_world import FakeFollowers, SegmentWorld

REF = SegmentRef("events", 0)
REQUEST = RequestId("p", 1)
HELD_BYTES = 10 + ACCEPTED_OVERHEAD_BYTES


@pytest.fixture
def followers() -> FakeFollowers:
    return FakeFollowers()


@pytest.fixture
async def world(followers: FakeFollowers) -> AsyncIterator[SegmentWorld]:
    made = SegmentWorld(REF, followers=followers)
    made.open_writer()
    yield made
    await made.close()


async def store_first(world: SegmentWorld) -> None:
    """The first file goes at once; what comes after it waits for the interval."""
    first = world.append(b"first")
    await settle()
    assert offset_of(first.result()) == 0


async def test_answered_once_all_followers_hold_it_and_not_before(
    world: SegmentWorld, followers: FakeFollowers
) -> None:
    await store_first(world)
    second, third = world.append(b"second"), world.append(b"third")
    await settle()
    assert not second.done() and not third.done()
    followers.hold(2)
    await settle()
    assert offset_of(second.result()) == 1 and not third.done()
    assert followers.given == [1] and followers.unstored_bytes == HELD_BYTES
    assert await world.values() == [b"first"]
    await world.clock.advance(1.1)
    assert offset_of(third.result()) == 2 and followers.unstored_bytes == 0
    assert await world.values() == [b"first", b"second", b"third"]
    assert followers.stored_ends == [1, 3]
    assert [each.base for each in followers.sent] == [0, 1, 2]


async def test_messages_stored_first_are_not_given_to_readers_again(
    world: SegmentWorld, followers: FakeFollowers
) -> None:
    await store_first(world)
    followers.hold(1)
    assert followers.given == [] and followers.unstored_bytes == 0


async def test_a_message_held_during_its_put_counts_until_it_is_stored(
    world: SegmentWorld, followers: FakeFollowers
) -> None:
    world.faults.add("create", FaultKind.HANG)
    first = world.append(b"first")
    await settle()
    followers.hold(1)
    assert offset_of(await first) == 0 and followers.unstored_bytes == HELD_BYTES
    world.store.release()
    await settle()
    assert followers.unstored_bytes == 0 and followers.stored_ends == [1]


async def test_a_stored_waiter_waits_for_the_store(world: SegmentWorld, followers: FakeFollowers) -> None:
    world.faults.add("create", FaultKind.HANG)
    stored = world.append(b"x", replicated=False)
    await settle()
    followers.hold(1)
    await settle()
    assert not stored.done() and followers.given == [0]
    world.store.release()
    await settle()
    assert offset_of(stored.result()) == 0


async def test_a_stored_waiter_makes_the_next_file_due_at_once(world: SegmentWorld) -> None:
    await store_first(world)
    world.append(b"lazy")
    await world.clock.advance(0.1)
    assert len(await world.values()) == 1
    world.append(b"now", replicated=False)
    await world.clock.advance(0.02)
    assert await world.values() == [b"first", b"lazy", b"now"]


async def test_without_a_lease_nothing_is_answered_before_it_is_stored(
    world: SegmentWorld, followers: FakeFollowers
) -> None:
    await store_first(world)
    second = world.append(b"second")
    followers.may_answer = False
    followers.hold(2)
    assert not second.done() and followers.unstored_bytes == 0
    await world.clock.advance(0.02)
    assert offset_of(second.result()) == 1
    assert len(await world.values()) == 2


async def test_held_messages_are_answered_and_read_once_the_lease_is_back(
    world: SegmentWorld, followers: FakeFollowers
) -> None:
    world.faults.add("create", FaultKind.HANG)
    followers.may_answer = False
    first, second = world.append(b"first"), world.append(b"second")
    await settle()
    followers.hold(1)
    assert not first.done() and followers.given == []
    followers.may_answer = True
    world.writer.answer_held()
    assert offset_of(first.result()) == 0 and followers.given == [0] and not second.done()
    world.store.release()
    await settle()
    assert followers.unstored_bytes == 0 and offset_of(second.result()) == 1


async def test_without_a_lease_everything_answered_is_stored_at_once(
    world: SegmentWorld, followers: FakeFollowers
) -> None:
    await store_first(world)
    second = world.append(b"second")
    followers.hold(2)
    assert offset_of(await second) == 1
    await world.clock.advance(0.2)
    assert len(await world.values()) == 1
    followers.may_answer = False
    await world.clock.advance(0.02)
    assert await world.values() == [b"first", b"second"]


async def test_while_a_follower_takes_nothing_files_are_stored_at_once(
    world: SegmentWorld, followers: FakeFollowers
) -> None:
    """Who asked for replicated is answered by the store then."""
    await store_first(world)
    second = world.append(b"second")
    await world.clock.advance(0.2)
    assert not second.done()
    followers.in_step = False
    await world.clock.advance(0.02)
    assert offset_of(second.result()) == 1


async def test_a_repeat_that_wants_it_stored_is_not_answered_early(
    world: SegmentWorld, followers: FakeFollowers
) -> None:
    await store_first(world)
    first = world.append(b"x", request=REQUEST)
    before = world.append(b"x", request=REQUEST, replicated=False)
    followers.hold(2)
    after = world.append(b"x", request=REQUEST, replicated=False)
    early = world.append(b"x", request=REQUEST)
    assert offset_of(first.result()) == offset_of(early.result()) == 1
    assert not before.done() and not after.done()
    await world.clock.advance(0.02)
    assert offset_of(before.result()) == offset_of(after.result()) == 1
    assert await world.values() == [b"first", b"x"]


async def test_a_repeat_is_answered_early_though_the_first_wants_it_stored_or_is_gone(
    world: SegmentWorld, followers: FakeFollowers
) -> None:
    world.faults.add("create", FaultKind.HANG)
    first = world.append(b"x", request=REQUEST, replicated=False)
    gone = world.append(b"y", request=RequestId("p", 2))
    await settle()
    repeats = [world.append(b"x", request=REQUEST), world.append(b"y", request=RequestId("p", 2))]
    gone.cancel()
    followers.hold(2)
    await settle()
    assert not first.done()
    assert [offset_of(repeat.result()) for repeat in repeats] == [0, 1]
    assert followers.unstored_bytes == 2 * HELD_BYTES
    world.store.release()
    await world.clock.advance(2)
    assert offset_of(first.result()) == 0


async def test_without_a_lease_a_repeat_of_a_held_request_waits_for_the_store(
    world: SegmentWorld, followers: FakeFollowers
) -> None:
    await store_first(world)
    first = world.append(b"x", request=REQUEST)
    followers.hold(2)
    assert offset_of(first.result()) == 1
    followers.may_answer = False
    world.faults.add("create", FaultKind.HANG)
    repeat = world.append(b"x", request=REQUEST)
    await world.clock.advance(1.1)
    assert not repeat.done()
    world.store.release()
    await settle()
    assert offset_of(repeat.result()) == 1
    assert await world.values() == [b"first", b"x"]


async def test_unstored_messages_come_as_whole_requests(world: SegmentWorld) -> None:
    await store_first(world)
    for value in (b"1", b"2", b"3"):
        world.append(value)
    assert [each.base for each in world.writer.unstored(1, 4)] == [1, 2, 3]
    assert [each.base for each in world.writer.unstored(2, 3)] == [2]
    assert [each.base for each in world.writer.unstored(0, 1)] == []


async def test_refused_it_stops_and_gives_what_it_holds(world: SegmentWorld, followers: FakeFollowers) -> None:
    await store_first(world)
    early = world.append(b"early")
    followers.hold(2)
    known, unknown = world.append(b"known", request=REQUEST), world.append(b"unknown")
    followers.refuse()
    assert offset_of(early.result()) == 1
    with pytest.raises(SegmentMoved):
        known.result()
    with pytest.raises(OutcomeUnknown):
        unknown.result()
    assert world.writer.state is WriterState.STOPPED and followers.closed == 1
    with pytest.raises(SegmentMoved):
        await world.writer.seal()
    assert (await world.flush_and_seal()).end == 4
    assert await world.values() == [b"first", b"early", b"known", b"unknown"]


async def test_a_drain_waits_for_nothing_of_a_segment_that_was_refused(
    world: SegmentWorld, followers: FakeFollowers
) -> None:
    """All have been told, and its put may be under way for as long as the store is away."""
    world.faults.add("create", FaultKind.HANG)
    world.append(b"flying")
    await settle()
    world.append(b"waiting")
    flushing = asyncio.create_task(world.writer.flush())
    await settle()
    assert not flushing.done()
    followers.refuse()
    async with asyncio.timeout(5):
        await flushing
        await world.writer.flush()
    world.store.release()
    await settle()


@pytest.mark.parametrize("fault", [FaultKind.HANG, FaultKind.HANG_ANSWER])
@pytest.mark.parametrize("seal_first", [True, False])
async def test_refused_while_a_put_is_under_way(
    world: SegmentWorld, followers: FakeFollowers, fault: FaultKind, seal_first: bool
) -> None:
    """Whether it lands before, after, or instead of what is stored in its stead: every message once."""
    world.faults.add("create", fault)
    early = world.append(b"early")
    await settle()
    world.append(b"late")
    followers.hold(2)
    followers.refuse()
    assert offset_of(early.result()) == 0
    if not seal_first:
        world.store.release()
        await settle()
    assert (await world.flush_and_seal()).end == 2
    world.store.release()
    await settle()
    assert world.writer.state is WriterState.STOPPED
    assert await world.values() == [b"early", b"late"]


async def test_refused_between_a_put_and_the_proof_that_it_counts(followers: FakeFollowers) -> None:
    """Whoever takes over stores what the owner holds, so what was told stays told: nothing of it is stored here."""
    world, looking, may_go_on = SegmentWorld(REF, followers=followers), asyncio.Event(), asyncio.Event()

    async def look() -> bool:
        looking.set()
        await may_go_on.wait()
        return True

    replication = followers.replication()
    world.writers = [owner(world.store, world.clock, REF, SegmentIndex(), replication=replication, look=look)]
    await world.writer.inheritance.wait()
    message = world.append(b"x", request=REQUEST)
    await looking.wait()
    followers.refuse()
    may_go_on.set()
    await settle()
    with pytest.raises(SegmentMoved):
        message.result()
    assert world.writer.state is WriterState.STOPPED and world.writer.index.end == 0
    assert followers.stored_ends == [] and followers.unstored_bytes == 0
    assert (await world.flush_and_seal()).end == 1
    await world.close()


async def test_closed_while_a_put_is_under_way_it_still_holds_what_it_answered(
    world: SegmentWorld, followers: FakeFollowers
) -> None:
    world.faults.add("create", FaultKind.HANG)
    early = world.append(b"early")
    await settle()
    followers.hold(1)
    assert offset_of(await early) == 0
    await world.writer.close()
    assert [each.base for each in world.writer.unflushed] == [0]
    assert followers.unstored_bytes == 0


async def test_refused_while_it_waits_for_the_windows_it_does_not_seal_without_them(
    world: SegmentWorld, followers: FakeFollowers
) -> None:
    """A seal that lacks what predecessors knew would have their requests stored a second time."""
    asked = asyncio.Event()

    async def never() -> ProducerWindows:
        asked.set()
        return await asyncio.Future()

    writer = world.open_writer(inherit=never)
    sealing = asyncio.create_task(writer.seal())
    await asked.wait()
    await settle()
    followers.refuse()
    await settle()
    with pytest.raises(SegmentMoved):
        await sealing
    assert not (await world.recovered()).sealed
    await writer.close()


async def test_refused_with_nothing_under_way_its_task_ends(world: SegmentWorld, followers: FakeFollowers) -> None:
    await store_first(world)
    followers.refuse()
    await settle()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "writer events/0"]


async def test_followers_are_closed_when_somebody_else_has_sealed(
    world: SegmentWorld, followers: FakeFollowers
) -> None:
    await store_first(world)
    await seal_at_end(world.memory, world.clock, REF, start_offset=0, writer="b.1", grace_seconds=GRACE_SECONDS)
    assert await world.writer.seal() == 1
    assert followers.closed == 1


async def test_a_lost_seal_after_a_refusal_does_not_make_it_sealed(
    world: SegmentWorld, followers: FakeFollowers
) -> None:
    await store_first(world)
    world.writer.inheritance.stop()
    world.faults.add("create", FaultKind.HANG)
    sealing = asyncio.create_task(world.writer.seal())
    await settle()
    followers.refuse()
    await world.flush_and_seal()
    world.store.release()
    await settle()
    assert world.writer.state is WriterState.STOPPED
    with pytest.raises(SegmentMoved):
        await sealing


async def test_unflushed_messages_are_dropped_once_the_segment_is_sealed(
    world: SegmentWorld, followers: FakeFollowers
) -> None:
    world.faults.add("create", FaultKind.HANG)
    world.append(b"x")
    await settle()
    followers.refuse()
    assert len(world.writer.unflushed) == 1
    world.writer.note_sealed()
    assert not world.writer.unflushed
    world.store.release()
    await settle()


async def test_an_idle_owner_whose_segment_others_have_sealed_stops(
    world: SegmentWorld, followers: FakeFollowers
) -> None:
    await store_first(world)
    world.writer.note_sealed()
    await settle()
    assert world.writer.state is WriterState.STOPPED and followers.closed == 1
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "writer events/0"]


async def test_a_busy_owner_answers_by_the_outcome_of_its_put(world: SegmentWorld) -> None:
    """It may have landed before the seal: sent again it would be stored twice."""
    world.faults.add("create", FaultKind.HANG_ANSWER)
    stored = world.append(b"x", replicated=False)
    await settle()
    assert (await world.flush_and_seal()).end == 1
    world.writer.note_sealed()
    assert world.writer.state is WriterState.OPEN
    # Whose broker knows no better yet is told so: the windows of a segment that is sealed are not at hand any more.
    world.writer.index.forget_windows()
    for request in (None, REQUEST):
        with pytest.raises(SegmentMoved):
            world.append(b"y", request=request)
    world.store.release()
    assert offset_of(await stored) == 0
    world.writer.note_sealed()
    assert world.writer.state is WriterState.STOPPED


async def test_the_seal_comes_after_messages_answered_early(world: SegmentWorld, followers: FakeFollowers) -> None:
    await store_first(world)
    early = world.append(b"early")
    followers.hold(2)
    assert offset_of(await early) == 1
    assert await world.writer.seal() == 2
    assert followers.closed == 1
    index = await world.recovered()
    assert index.sealed and index.end == 2
