"""An owner that is sent a request again: it stores nothing twice and tells where everything is."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pyarrow as pa
import pytest

from filer.clock import settle
from filer.errors import (
    CorruptFile,
    OutcomeUnknown,
    ProducerTaken,
    SegmentMoved,
    SegmentSealed,
    SequenceExpired,
    StoreRefused,
)
from filer.format.requests import Position, RequestId
from filer.format.schema import MessageSchema
from filer.keys import FileName
from filer.segment import producer_windows, sequence_window
from filer.segment.next_file import Single
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import Inherit, SegmentRef, fetch_footer, seal_at_end
from filer.segment.writer.segment_writer import SegmentWriter
from filer.slots import SLOTS, slot_of
from filer.stores.decorators.faults import FaultKind
from tests.support.segment.segment_owners import GRACE_SECONDS, offset_of, single
from tests.support.segment.segment_world import SegmentWorld

REF = SegmentRef("events", 3)
FIRST = RequestId("p", 1)
HALF = SLOTS // 2
SEEN_US = 4_000_000_000_000_000
"""Later than an hour before anything here."""
LOW, HIGH = b"ann", b"a"
ANN, BOB = "a" * 16, "b" * 16
"""Digests of principals."""


@pytest.fixture
async def world() -> AsyncIterator[SegmentWorld]:
    made = SegmentWorld(REF)
    yield made
    await made.close()


async def open_owner(
    world: SegmentWorld, *, inherit: Inherit | None = None, index: SegmentIndex | None = None
) -> SegmentWriter:
    """An owner that has inherited, from nobody unless told otherwise."""
    if inherit is not None:
        return world.open_writer(index, inherit=inherit)
    writer = world.open_writer(index)
    await writer.inheritance.wait()
    return writer


def batch(keys: Sequence[bytes | None], value: bytes = b"v") -> pa.RecordBatch:
    rows = [{"key": key, "value": value + b"%d" % n} for n, key in enumerate(keys)]
    return pa.RecordBatch.from_pylist(rows, MessageSchema.of().rows)


def known(*requests: tuple[RequestId, Position], start: int = 0, stop: int = SLOTS) -> ProducerWindows:
    """What a predecessor left for some slots."""
    windows = ProducerWindows(start, stop)
    for request, position in requests:
        windows.note(request, position, SEEN_US)
    return windows


def left_half_stored(request: RequestId, position: Position) -> Inherit:
    """A merge: only one parent had stored its share."""
    parts = [known((request, position), stop=HALF), known(start=HALF)]

    async def inherit() -> ProducerWindows:
        return ProducerWindows.combined(parts, 0, SLOTS)

    return inherit


def test_the_keys_lie_where_these_tests_want_them() -> None:
    assert slot_of(LOW) < HALF <= slot_of(HIGH)


# -- repeats -----------------------------------------------------------------------------------------------


async def test_a_repeat_is_answered_with_the_first_position(world: SegmentWorld) -> None:
    writer = await open_owner(world)
    await writer.append(single(b"before"), 1)
    first = await writer.append(batch([b"a", b"b"]), 9, FIRST)
    assert first == [Position(3, 1, 2)]
    await writer.append(single(b"after"), 1)
    assert await writer.append(batch([b"a", b"b"]), 9, FIRST) == first
    assert await world.values() == [b"before", b"v0", b"v1", b"after"]


async def test_other_sequences_and_producers_are_not_repeats(world: SegmentWorld) -> None:
    writer = await open_owner(world)
    requests = [RequestId("p", 7), RequestId("p", 5), RequestId("q", 7), RequestId("p", 0)]
    futures = [writer.append(single(b"%d" % n), 1, request) for n, request in enumerate(requests)]
    assert [offset_of(await future) for future in futures] == [0, 1, 2, 3]


async def test_without_an_id_everything_is_stored(world: SegmentWorld) -> None:
    writer = await open_owner(world)
    assert [offset_of(await writer.append(single(b"same"), 1)) for _ in range(3)] == [0, 1, 2]
    footer, _ = await fetch_footer(world.memory, REF.key((await world.recovered()).files[0].name))
    assert footer.requests == ()
    assert b"requests" not in b"".join(name.encode() for name in footer.to_metadata())


async def test_a_repeat_of_one_still_pending_waits_for_it(world: SegmentWorld) -> None:
    writer = await open_owner(world)
    world.faults.add("create", FaultKind.HANG)
    first = writer.append(single(b"x"), 1, FIRST)
    await settle()
    repeat = writer.append(single(b"x"), 1, FIRST)
    waiting = writer.append(single(b"y"), 1, RequestId("p", 2))
    also_waiting = writer.append(single(b"y"), 1, RequestId("p", 2))
    await settle()
    assert not repeat.done() and not also_waiting.done()
    world.store.release()
    await settle()
    assert first.result() == repeat.result() == [Position(3, 0, 1)]
    assert waiting.result() == also_waiting.result() == [Position(3, 1, 1)]
    assert await world.values() == [b"x", b"y"]


async def test_a_caller_that_gives_up_leaves_the_others_their_answer(world: SegmentWorld) -> None:
    writer = await open_owner(world)
    world.faults.add("create", FaultKind.HANG)
    first = writer.append(single(b"x"), 1, FIRST)
    repeat = writer.append(single(b"x"), 1, FIRST)
    await settle()
    first.cancel()
    world.store.release()
    await settle()
    assert repeat.result() == [Position(3, 0, 1)]
    assert await writer.append(single(b"x"), 1, FIRST) == [Position(3, 0, 1)]


async def test_a_repeat_fails_as_the_pending_one_does(world: SegmentWorld) -> None:
    """Whether it was stored the repeat knows no better; at the next owner, the log does."""
    writer = await open_owner(world)
    world.faults.add("create", FaultKind.HANG)
    first = writer.append(single(b"x"), 1, FIRST)
    await settle()
    repeat = writer.append(single(b"x"), 1, FIRST)
    waiting = [writer.append(single(b"y"), 1, RequestId("p", 2)) for _ in range(2)]
    await writer.close()
    await settle()
    assert isinstance(first.exception(), OutcomeUnknown)
    assert isinstance(repeat.exception(), OutcomeUnknown)
    assert [type(future.exception()) for future in waiting] == [SegmentMoved] * 2
    with pytest.raises(SegmentMoved):
        writer.append(single(b"x"), 1, FIRST)


async def test_repeats_wait_while_the_store_refuses(world: SegmentWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = await open_owner(world)

    async def refuse(*args: object, **kwargs: object) -> None:
        raise StoreRefused("the credentials have expired")

    monkeypatch.setattr(world.memory, "create", refuse)
    futures = [writer.append(single(b"x"), 1, FIRST) for _ in range(2)]
    await settle()
    await world.clock.advance(30)
    assert not any(future.done() for future in futures)
    monkeypatch.undo()
    await world.pass_seconds(30)
    assert futures[0].result() == futures[1].result()
    assert await world.values() == [b"x"]


@pytest.mark.parametrize("fault", [FaultKind.LOSE_ANSWER, FaultKind.FAIL_BEFORE, FaultKind.CONFLICT])
async def test_a_put_of_unknown_outcome_is_one_request(world: SegmentWorld, fault: FaultKind) -> None:
    writer = await open_owner(world)
    world.faults.add("create", fault, fault)
    futures = [writer.append(single(b"x"), 1, FIRST) for _ in range(3)]
    await world.pass_seconds(60)
    assert [future.result() for future in futures] == [[Position(3, 0, 1)]] * 3
    assert await world.values() == [b"x"]


async def test_a_put_that_landed_unnoticed_is_found_by_the_next_owner(world: SegmentWorld) -> None:
    """The owner stops before the answer comes; its successor on the same segment knows the request by the footer."""
    writer = await open_owner(world)
    world.faults.add("create", FaultKind.HANG_ANSWER)
    first = writer.append(single(b"x"), 1, FIRST)
    await settle()
    await writer.close()
    assert isinstance(first.exception(), OutcomeUnknown)
    next_owner = await open_owner(world, index=await world.recovered())
    assert await next_owner.append(single(b"x"), 1, FIRST) == [Position(3, 0, 1)]
    assert await world.values() == [b"x"]


async def test_a_request_lost_to_another_writer_is_stored_by_it(world: SegmentWorld) -> None:
    """The first never landed, so the repeat is not a repeat for whoever has the segment now."""
    writer = await open_owner(world)
    world.faults.add("create", FaultKind.HANG)
    lost = writer.append(single(b"x"), 1, FIRST)
    await settle()
    next_owner = await open_owner(world, index=await world.recovered())
    assert await next_owner.append(single(b"x"), 1, FIRST) == [Position(3, 0, 1)]
    world.store.release()
    await settle()
    assert isinstance(lost.exception(), SegmentMoved)
    assert await world.values() == [b"x"]


# -- the window --------------------------------------------------------------------------------------------


async def test_below_the_window_is_refused(world: SegmentWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence_window, "WINDOW_SEQUENCES", 3)
    writer = await open_owner(world)
    for sequence in range(1, 5):
        await writer.append(single(b"%d" % sequence), 1, RequestId("p", sequence))
    with pytest.raises(SequenceExpired, match="sequence 1 of producer 'p'"):
        writer.append(single(b"1"), 1, FIRST)
    with pytest.raises(SequenceExpired):
        writer.check_sequence(single(b"1"), FIRST)
    writer.check_sequence(single(b"2"), RequestId("p", 2))
    assert offset_of(await writer.append(single(b"2"), 1, RequestId("p", 2))) == 1
    assert await world.values() == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("after", ["at once", "a recovery", "a seal"])
async def test_a_producer_that_room_was_wanted_for_is_refused_its_repeats(
    world: SegmentWorld, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    monkeypatch.setattr(producer_windows, "MAX_PRODUCERS", 2)
    writer = await open_owner(world)
    for number in range(4):
        await writer.append(single(b"%d" % number), 1, RequestId(f"p{number}", 1))
    if after == "a recovery":
        await writer.close()
        writer = await open_owner(world, index=await world.recovered())
    elif after == "a seal":
        end = await writer.seal()
        footer, _ = await fetch_footer(world.memory, REF.key(FileName(end)))
        left = ProducerWindows.from_bytes(footer.windows)
        world.ref = SegmentRef("events", 4)

        async def inherit() -> ProducerWindows:
            return left.restricted(0, SLOTS)

        writer = await open_owner(world, inherit=inherit)
        await writer.inheritance.wait()
    for number in range(2):
        with pytest.raises(SequenceExpired, match=f"sequence 1 of producer 'p{number}'"):
            writer.append(single(b"again"), 1, RequestId(f"p{number}", 1))
    assert offset_of(await writer.append(single(b"3"), 1, RequestId("p3", 1))) == 3
    # The next request of one that was forgotten, and the first one of a new producer.
    for request in (RequestId("p0", 2), RequestId("new", 1)):
        await writer.append(single(b"new"), 1, request)
    assert (await world.values()).count(b"new") == 2
    assert b"again" not in await world.values()


async def test_a_pending_request_is_no_repeat_that_came_too_late(
    world: SegmentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequence_window, "WINDOW_SEQUENCES", 3)
    writer = await open_owner(world)
    world.faults.add("create", FaultKind.HANG)
    futures = [writer.append(single(b"%d" % n), 1, RequestId("p", n)) for n in range(5)]
    writer.check_sequence(single(b"0"), RequestId("p", 0))
    await settle()
    world.store.release()
    await settle()
    assert [offset_of(future.result()) for future in futures] == [0, 1, 2, 3, 4]
    with pytest.raises(SequenceExpired):
        writer.append(single(b"0"), 1, RequestId("p", 0))


# -- what predecessors left --------------------------------------------------------------------------------


async def test_only_what_a_parent_had_not_stored_is_new(world: SegmentWorld) -> None:
    old = Position(1, 40, 2)
    writer = await open_owner(world, inherit=left_half_stored(FIRST, old))
    await writer.inheritance.wait()
    rows = batch([LOW, HIGH, LOW, HIGH, HIGH])
    new = Position(3, 0, 3)
    assert await writer.append(rows, 50, FIRST) == [old, new]
    assert await writer.append(rows, 50, FIRST) == [old, new]
    assert await world.values() == [b"v1", b"v3", b"v4"]


async def test_a_repeat_of_a_part_under_way_is_answered_with_all_of_it(world: SegmentWorld) -> None:
    old = Position(1, 40, 1)
    writer = await open_owner(world, inherit=left_half_stored(FIRST, old))
    await writer.inheritance.wait()
    rows = batch([LOW, HIGH])
    futures = [writer.append(rows, 50, FIRST) for _ in range(2)]
    assert [await future for future in futures] == [[old, Position(3, 0, 1)]] * 2


async def test_keys_of_one_parent_only(world: SegmentWorld) -> None:
    old = Position(1, 40, 2)
    writer = await open_owner(world, inherit=left_half_stored(FIRST, old))
    await writer.inheritance.wait()
    assert await writer.append(batch([LOW, LOW]), 9, FIRST) == [old]
    assert await writer.append(Single(LOW, b"v", None, None), 1, FIRST) == [old]
    assert await world.values() == []
    assert await writer.append(batch([HIGH]), 9, FIRST) == [Position(3, 0, 1)]


async def test_messages_without_a_key_are_known_by_the_slot_of_their_request(world: SegmentWorld) -> None:
    lower = next(request for n in range(100) if (request := RequestId("p", n)).null_slot < HALF)
    upper = next(request for n in range(100) if (request := RequestId("p", n)).null_slot >= HALF)
    old = Position(1, 40, 1)
    for request in (lower, upper):
        writer = await open_owner(world, inherit=left_half_stored(request, old), index=await world.recovered())
        await writer.inheritance.wait()
        is_new = request is upper
        answers = [await writer.append(batch([None]), 9, request)]
        answers.append(await writer.append(Single(None, b"v0", None, None), 9, request))
        assert [answer == [old] for answer in answers] == [not is_new] * 2
        await writer.close()


async def test_too_old_in_the_slots_of_one_parent(world: SegmentWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is stored of a request that may be stored in part; keys of the other parent are not concerned."""
    monkeypatch.setattr(sequence_window, "WINDOW_SEQUENCES", 3)
    far = known(*((RequestId("p", n), Position(1, n, 1)) for n in range(10, 13)), stop=HALF)

    async def inherit() -> ProducerWindows:
        return ProducerWindows.combined([far], 0, SLOTS)

    writer = await open_owner(world, inherit=inherit)
    await writer.inheritance.wait()
    with pytest.raises(SequenceExpired):
        writer.append(batch([HIGH, LOW]), 9, FIRST)
    assert await world.values() == []
    assert await writer.append(batch([HIGH]), 9, FIRST) == [Position(3, 0, 1)]


async def test_requests_without_an_id_do_not_wait_for_predecessors(world: SegmentWorld) -> None:
    gate = asyncio.Event()
    old = Position(1, 40, 1)

    async def inherit() -> ProducerWindows:
        await gate.wait()
        return known((FIRST, old))

    writer = await open_owner(world, inherit=inherit)
    assert offset_of(await writer.append(single(b"x"), 1)) == 0
    assert not writer.inheritance.complete
    with pytest.raises(RuntimeError):
        writer.append(single(b"x"), 1, FIRST)
    sealing = asyncio.create_task(writer.seal())
    await settle()
    assert not sealing.done(), "a seal says all that is known of producers"
    gate.set()
    assert await sealing == 1
    assert await inherited_by_the_next(world) == [old]


async def test_inheriting_is_tried_until_the_store_answers(world: SegmentWorld) -> None:
    tries: list[Exception] = [OutcomeUnknown(), CorruptFile("the seal is damaged"), OutcomeUnknown()]

    async def inherit() -> ProducerWindows:
        if tries:
            raise tries.pop(0)
        return known()

    writer = await open_owner(world, inherit=inherit)
    waiting = asyncio.create_task(writer.inheritance.wait())
    await world.pass_seconds(0.2)
    with pytest.raises(CorruptFile):
        await waiting
    waiting = asyncio.create_task(writer.inheritance.wait())
    await world.pass_seconds(10)
    await waiting
    assert offset_of(await writer.append(single(b"x"), 1, FIRST)) == 0


async def test_nobody_waits_for_what_a_closed_owner_would_inherit(world: SegmentWorld) -> None:
    async def inherit() -> ProducerWindows:
        raise OutcomeUnknown

    writer = await open_owner(world, inherit=inherit)
    waiting = asyncio.create_task(writer.inheritance.wait())
    await settle()
    await writer.close()
    await waiting
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("inherit")]


# -- seals -------------------------------------------------------------------------------------------------


async def inherited_by_the_next(world: SegmentWorld) -> list[Position]:
    """Positions of the first request that the segment's seal hands on."""
    footer, _ = await fetch_footer(world.memory, REF.key((await world.recovered()).files[-1].name))
    assert footer.sealed
    parts = ProducerWindows.from_bytes(footer.windows).look_up(FIRST) if footer.windows else []
    return [part.position for part in parts if part.position is not None]


async def test_the_owner_s_seal_knows_its_own_messages_too(world: SegmentWorld) -> None:
    writer = await open_owner(world)
    world.faults.add("create", FaultKind.HANG)
    await settle()
    other = writer.append(single(b"x"), 1, RequestId("p", 2))
    await settle()
    last = writer.append(single(b"y"), 1, FIRST)
    sealing = asyncio.create_task(writer.seal())
    await settle()
    with pytest.raises(SegmentSealed):
        writer.append(single(b"y"), 1, FIRST)
    world.store.release()
    await sealing
    assert (offset_of(await other), offset_of(await last)) == (0, 1)
    index = await world.recovered()
    assert [(facts.base, facts.count) for facts in index.files] == [(0, 1), (1, 1)]
    assert await inherited_by_the_next(world) == [Position(3, 1, 1)]


async def test_a_seal_in_the_owner_s_stead_knows_the_log_and_what_it_inherited(world: SegmentWorld) -> None:
    old, second = Position(1, 40, 1), RequestId("p", 2)
    writer = await open_owner(world, inherit=left_half_stored(FIRST, old))
    await writer.inheritance.wait()
    await writer.append(batch([LOW, HIGH]), 9, FIRST)
    await writer.append(batch([LOW]), 9, second)
    await writer.close()
    sealed = await seal_at_end(
        world.memory, world.clock, REF, start_offset=0, writer="b.9", grace_seconds=GRACE_SECONDS,
        inherit=left_half_stored(FIRST, old),
    )  # fmt: skip
    assert (sealed.end, sealed.inherited) == (2, True)
    assert await inherited_by_the_next(world) == [old, Position(3, 0, 1)]
    footer, _ = await fetch_footer(world.memory, REF.key(sealed.files[-1].name))
    assert ProducerWindows.from_bytes(footer.windows).look_up(second)[0].position == Position(3, 1, 1)


async def test_a_seal_forgets_producers_silent_for_an_hour(world: SegmentWorld) -> None:
    writer = await open_owner(world)
    await writer.append(single(b"x"), 1, FIRST)
    await world.clock.advance(3601)
    await writer.append(single(b"y"), 1, RequestId("q", 1))
    await writer.seal()
    assert await inherited_by_the_next(world) == []
    footer, _ = await fetch_footer(world.memory, REF.key((await world.recovered()).files[-1].name))
    left = ProducerWindows.from_bytes(footer.windows)
    assert [part.position for part in left.look_up(RequestId("q", 1))] == [Position(3, 1, 1)]


async def test_without_producers_footers_have_no_producers(world: SegmentWorld) -> None:
    writer = await open_owner(world)
    await writer.append(single(b"x"), 1)
    await writer.seal()
    footer, _ = await fetch_footer(world.memory, REF.key((await world.recovered()).files[-1].name))
    assert footer.sealed
    assert not {"braidmq.requests", "braidmq.windows"} & footer.to_metadata().keys()


# -- owners of producers -----------------------------------------------------------------------------------


async def owned_after(world: SegmentWorld, writer: SegmentWriter, after: str) -> SegmentWriter:
    """The owner of the segment, or of its successor, after that."""
    if after == "a recovery":
        await writer.close()
        return await open_owner(world, index=await world.recovered())
    if after == "a seal":
        end = await writer.seal()
        footer, _ = await fetch_footer(world.memory, REF.key(FileName(end)))
        left = ProducerWindows.from_bytes(footer.windows)
        world.ref = SegmentRef("events", 4)

        async def inherit() -> ProducerWindows:
            return left.restricted(0, SLOTS)

        writer = await open_owner(world, inherit=inherit)
        await writer.inheritance.wait()
    return writer


@pytest.mark.parametrize("after", ["at once", "a recovery", "a seal"])
async def test_a_producer_of_another_principal_is_refused(world: SegmentWorld, after: str) -> None:
    writer = await open_owner(world)
    first = await writer.append(single(b"ann's"), 1, RequestId("p", 1, ANN))
    writer = await owned_after(world, writer, after)
    for sequence in (1, 2, 2**62):
        for refuses in (writer.append, lambda payload, _, request: writer.check_sequence(payload, request)):
            with pytest.raises(ProducerTaken, match="choose another id") as refused:
                refuses(single(b"bob's"), 1, RequestId("p", sequence, BOB))
            assert ANN not in str(refused.value)
    assert await writer.append(single(b"ann's"), 1, RequestId("p", 1, ANN)) == first
    assert await writer.append(single(b"ann's"), 1, RequestId("p", 1)) == first, "by way of an older broker"
    await writer.append(single(b"next"), 1, RequestId("p", 2, ANN))
    assert b"bob's" not in await world.values()


async def test_a_producer_of_another_principal_is_refused_before_anything_is_stored(world: SegmentWorld) -> None:
    writer = await open_owner(world)
    world.faults.add("create", FaultKind.HANG)
    first = writer.append(single(b"ann's"), 1, RequestId("p", 1, ANN))
    await settle()
    for sequence in (1, 2):
        with pytest.raises(ProducerTaken):
            writer.append(single(b"bob's"), 1, RequestId("p", sequence, BOB))
    world.store.release()
    await settle()
    assert first.result() == [Position(3, 0, 1)]
    with pytest.raises(ProducerTaken):
        writer.append(single(b"bob's"), 1, RequestId("p", 2, BOB))
    assert await world.values() == [b"ann's"]


async def test_a_window_without_an_owner_is_the_next_principals(world: SegmentWorld) -> None:
    """As one that an older broker has left, or that came by way of one."""
    writer = await open_owner(world)
    first = await writer.append(single(b"x"), 1, RequestId("p", 1))
    assert await writer.append(single(b"x"), 1, RequestId("p", 1, BOB)) == first
    await writer.append(single(b"y"), 1, RequestId("p", 2, ANN))
    with pytest.raises(ProducerTaken):
        writer.append(single(b"x"), 1, RequestId("p", 1, BOB))
    assert await writer.append(single(b"x"), 1, RequestId("p", 1, ANN)) == first


@pytest.mark.parametrize("after", ["at once", "a recovery"])
async def test_a_producer_is_free_after_an_hour_of_silence(world: SegmentWorld, after: str) -> None:
    """Also where nobody else publishes, so that no file says that the hour is over."""
    writer = await open_owner(world)
    await writer.append(single(b"ann's"), 1, RequestId("p", 1, ANN))
    await world.pass_seconds(3601)
    world.memory.time.record(world.clock.now_us())
    bobs = await writer.append(single(b"bob's"), 1, RequestId("p", 1, BOB))
    assert bobs == [Position(3, 1, 1)]
    writer = await owned_after(world, writer, after)
    with pytest.raises(ProducerTaken):
        writer.append(single(b"ann's"), 1, RequestId("p", 1, ANN))
    assert await writer.append(single(b"bob's"), 1, RequestId("p", 1, BOB)) == bobs


async def test_a_producer_stays_its_owners_while_the_stores_clock_is_behind(world: SegmentWorld) -> None:
    writer = await open_owner(world)
    await writer.append(single(b"ann's"), 1, RequestId("p", 1, ANN))
    await world.pass_seconds(3601)
    with pytest.raises(ProducerTaken):
        writer.append(single(b"bob's"), 1, RequestId("p", 1, BOB))
