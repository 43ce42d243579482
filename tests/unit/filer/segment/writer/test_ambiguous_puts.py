"""Puts of which one cannot tell what became of them: nothing is lost, doubled or put out of order."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping

import pytest

from filer.clock import settle
from filer.errors import BraidError, CorruptFile, OutcomeUnknown, SegmentMoved, StoreRefused
from filer.format.segment_file import Footer, encode
from filer.keys import FileName
from filer.segment.next_file import ACCEPTED_OVERHEAD_BYTES
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, seal_at_end
from filer.segment.writer.writer_state import WriterState
from filer.stores.decorators.faults import Fault, FaultKind
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.store import Data, Fetched, MakeData, Store
from filer.upkeep.index_snapshots import write_snapshot
from filer.upkeep.rollup import roll_up
from tests.support.inline_executor import InlineExecutor
from tests.support.segment.segment_owners import GRACE_SECONDS, offset_of, single
from tests.support.segment.segment_world import SegmentWorld
from tests.support.topic.segment_files import append

REF = SegmentRef("events", 0)
STALE_SECONDS = GRACE_SECONDS / 2 + 1


@pytest.fixture
async def world() -> AsyncIterator[SegmentWorld]:
    made = SegmentWorld(REF)
    made.open_writer()
    yield made
    await made.close()


async def replace_by_rollup(world: SegmentWorld) -> None:
    """What upkeep of another process does: roll up all of the log, snapshot, and delete after the grace period."""
    index = await world.recovered()
    run = list(index.files)
    rolled = await roll_up(world.memory, world.clock, REF, run, broker="b.1", executor=InlineExecutor())
    index.supersede(rolled, world.clock.now_us())
    await write_snapshot(world.memory, REF, index, etag=None, executor=InlineExecutor())
    await world.clock.advance(GRACE_SECONDS)
    await world.memory.delete([REF.key(facts.name) for facts in run])


FAULTS = [
    FaultKind.LOSE_ANSWER,
    FaultKind.FAIL_BEFORE,
    FaultKind.CONFLICT,
    FaultKind.UNAVAILABLE,
    Fault(FaultKind.DELAY, seconds=5),
]


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_put_is_repeated_until_known(world: SegmentWorld, fault: FaultKind | Fault, times: int) -> None:
    world.faults.add("create", *[fault] * times)
    futures = [world.writer.append(single(b"%d" % n), 1) for n in range(3)]
    await world.pass_seconds(60)
    assert [offset_of(future.result()) for future in futures] == [0, 1, 2]
    assert await world.values() == [b"0", b"1", b"2"]


async def test_own_footer_cannot_be_read_for_a_while(world: SegmentWorld) -> None:
    world.faults.add("create", FaultKind.LOSE_ANSWER, FaultKind.LOSE_ANSWER)
    world.faults.add("get", FaultKind.UNAVAILABLE, FaultKind.UNAVAILABLE)
    future = world.writer.append(single(b"x"), 1)
    await world.pass_seconds(60)
    assert offset_of(future.result()) == 0
    assert await world.values() == [b"x"]


async def test_a_hanging_put_holds_back_what_comes_after(world: SegmentWorld) -> None:
    world.faults.add("create", FaultKind.HANG)
    first = world.writer.append(single(b"first"), 1)
    await settle()
    second = world.writer.append(single(b"second"), 1)
    await settle()
    assert not first.done() and not second.done()
    world.store.release()
    await settle()
    assert (offset_of(first.result()), offset_of(second.result())) == (0, 1)
    assert await world.values() == [b"first", b"second"]


async def test_a_zombie_put_loses_to_the_seal(world: SegmentWorld) -> None:
    world.faults.add("create", FaultKind.HANG)
    future = world.writer.append(single(b"zombie"), 1)
    await settle()
    assert (await world.seal_at_end()).end == 0
    world.store.release()
    await settle()
    with pytest.raises(SegmentMoved):
        future.result()
    assert world.writer.state is WriterState.STOPPED
    assert await world.values() == []


async def test_a_put_that_landed_unnoticed_is_sealed_in(world: SegmentWorld) -> None:
    """Its answer comes after the seal: the message counts, and the owner may say so."""
    world.faults.add("create", FaultKind.HANG_ANSWER)
    future = world.writer.append(single(b"x"), 1)
    await settle()
    assert (await world.seal_at_end()).end == 1
    world.store.release()
    await settle()
    assert offset_of(future.result()) == 0
    assert await world.values() == [b"x"]


async def test_a_foreign_file_at_our_offset(world: SegmentWorld) -> None:
    other = await world.open_next_writer()
    assert offset_of(await other.append(single(b"theirs"), 1)) == 0
    ours = world.writer.append(single(b"ours"), 1)
    await settle()
    with pytest.raises(SegmentMoved):
        ours.result()
    with pytest.raises(SegmentMoved):
        world.writer.append(single(b"more"), 1)
    with pytest.raises(SegmentMoved):
        await world.writer.seal()
    await other.close()
    assert await world.values() == [b"theirs"]


async def test_rubbish_at_our_offset(world: SegmentWorld) -> None:
    await world.memory.create(REF.key(FileName(0)), b"rubbish" * 10)
    ours = world.writer.append(single(b"ours"), 1)
    await settle()
    with pytest.raises(CorruptFile) as told:
        ours.result()
    assert told.value.key == REF.key(FileName(0))
    with pytest.raises(CorruptFile, match="unknown where the segment ends"):
        await world.seal_at_end()


async def test_an_empty_file_that_is_no_seal_is_refused(world: SegmentWorld) -> None:
    """Taken for a file, it would be the end of the log for ever: whoever comes next finds its name taken."""
    footer = Footer(0, 0, 0, "somebody", 0, 0)
    await world.memory.create(
        REF.key(FileName(0)), bytes(encode(REF.schema.in_file(REF.schema.log.empty_table()), footer))
    )
    assert (await world.recovered()).blocked == FileName(0)
    with pytest.raises(CorruptFile, match="unknown where the segment ends"):
        await world.seal_at_end()


# -- names that come back ------------------------------------------------------------------------------------


async def test_a_stale_owner_that_still_owns_continues(world: SegmentWorld) -> None:
    await world.writer.append(single(b"0"), 1)
    await world.pass_seconds(STALE_SECONDS)
    assert offset_of(await world.writer.append(single(b"1"), 1)) == 1
    assert world.writer.state is WriterState.OPEN


@pytest.mark.parametrize("was_open", [False, True])
async def test_an_old_name_under_a_rollup_is_never_acknowledged(world: SegmentWorld, was_open: bool) -> None:
    """Others wrote, rolled up and deleted while our put stood still; then it makes the name anew.

    So also where topic.json named the segment as ours when the put began.
    """
    world.open = was_open
    world.faults.add("create", FaultKind.HANG)
    zombie = world.writer.append(single(b"zombie"), 1)
    await settle()
    other = await world.open_next_writer()
    for value in (b"a", b"b", b"c"):
        await other.append(single(value), 1)
    await replace_by_rollup(world)
    world.store.release()
    await settle()
    assert isinstance(zombie.exception(), BraidError)
    await other.close()
    assert await world.values() == [b"a", b"b", b"c"]


async def test_an_owner_that_begins_from_an_old_recovery_has_no_proof(world: SegmentWorld) -> None:
    """It stood still between looking where the log ends and opening its writer there."""
    looked = await world.recovered()
    other = await world.open_next_writer()
    for value in (b"a", b"b"):
        await other.append(single(value), 1)
    await replace_by_rollup(world)
    late = world.open_writer(looked)
    zombie = late.append(single(b"zombie"), 1)
    await settle()
    assert isinstance(zombie.exception(), BraidError)
    await late.close()
    await other.close()
    assert await world.values() == [b"a", b"b"]


async def test_our_own_file_was_rolled_up_meanwhile(world: SegmentWorld) -> None:
    """It is in the log, so nobody may say that it is not: sent again it would be there twice."""
    world.faults.add("create", FaultKind.HANG_ANSWER)
    ours = world.writer.append(single(b"ours"), 1)
    await settle()
    other = await world.open_next_writer()
    await other.append(single(b"theirs"), 1)
    await replace_by_rollup(world)
    world.store.release()
    await settle()
    assert isinstance(ours.exception(), OutcomeUnknown)
    await other.close()
    assert await world.values() == [b"ours", b"theirs"]


async def test_our_file_counts_but_others_continued_the_segment(world: SegmentWorld) -> None:
    world.faults.add("create", FaultKind.HANG_ANSWER)
    ours = world.writer.append(single(b"ours"), 1)
    await settle()
    other = await world.open_next_writer()
    await other.append(single(b"theirs"), 1)
    await world.pass_seconds(STALE_SECONDS)
    world.store.release()
    await settle()
    assert offset_of(ours.result()) == 0
    assert world.writer.state is WriterState.STOPPED
    await other.close()
    assert await world.values() == [b"ours", b"theirs"]


async def test_the_segment_is_gone(world: SegmentWorld) -> None:
    world.exists = False
    world.faults.add("create", FaultKind.HANG)
    ours = world.writer.append(single(b"ours"), 1)
    await world.pass_seconds(STALE_SECONDS)
    world.store.release()
    await settle()
    assert isinstance(ours.exception(), SegmentMoved)


async def test_a_check_that_fails_leaves_the_outcome_unknown(world: SegmentWorld) -> None:
    world.faults.add("create", FaultKind.HANG)
    ours = world.writer.append(single(b"ours"), 1)
    await world.pass_seconds(STALE_SECONDS)
    world.faults.add("get", FaultKind.UNAVAILABLE)
    world.store.release()
    await settle()
    assert isinstance(ours.exception(), OutcomeUnknown)
    assert await world.values() == [b"ours"]


async def test_a_late_seal_on_an_old_name_does_not_count(world: SegmentWorld) -> None:
    """The sealer stood still while others wrote on, rolled up and deleted: its seal makes an old name anew."""
    world.faults.add("create", FaultKind.HANG)
    sealing = asyncio.create_task(world.seal_at_end())
    await settle()
    other = await world.open_next_writer()
    for value in (b"a", b"b", b"c"):
        await other.append(single(value), 1)
    await replace_by_rollup(world)
    world.store.release()
    index = await sealing
    assert (index.end, index.sealed) == (3, True)
    assert await world.values() == [b"a", b"b", b"c"]
    with pytest.raises(SegmentMoved):
        await asyncio.wait_for(other.append(single(b"d"), 1), 5)


# -- sealing -------------------------------------------------------------------------------------------------


async def test_the_seal_comes_with_what_was_accepted(world: SegmentWorld) -> None:
    futures = [world.writer.append(single(b"%d" % n), 1) for n in range(3)]
    assert await world.writer.seal() == 3
    assert [offset_of(future.result()) for future in futures] == [0, 1, 2]
    assert (await world.seal_at_end()).end == 3


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_seal_is_repeated_until_known(world: SegmentWorld, fault: FaultKind | Fault) -> None:
    await world.writer.append(single(b"0"), 1)
    world.faults.add("create", fault, fault)
    sealing = asyncio.create_task(world.writer.seal())
    await world.pass_seconds(60)
    assert await sealing == 1
    assert (await world.recovered()).sealed


async def test_owner_and_another_process_seal_at_once(world: SegmentWorld) -> None:
    await world.writer.append(single(b"0"), 1)
    index, end = await asyncio.gather(world.seal_at_end(), world.writer.seal())
    assert (index.end, end) == (1, 1)


async def test_many_other_processes_seal_while_the_owner_writes(world: SegmentWorld) -> None:
    futures = [world.writer.append(single(b"%d" % n), 1) for n in range(20)]
    ends = {index.end for index in await asyncio.gather(*(world.seal_at_end() for _ in range(5)))}
    await world.writer.flush()
    assert len(ends) == 1
    stored = [future for future in futures if future.exception() is None]
    assert await world.values() == [b"%d" % n for n in range(len(stored))]
    assert ends == {len(stored)}


async def test_a_failed_read_of_the_seal_is_an_answer(world: SegmentWorld) -> None:
    """Whoever waits for the seal must hear of it."""
    await world.writer.append(single(b"0"), 1)
    await world.seal_at_end()
    world.faults.add("get", None, FaultKind.UNAVAILABLE)
    with pytest.raises(OutcomeUnknown):
        await asyncio.wait_for(world.writer.seal(), 5)
    assert (await world.seal_at_end()).end == 1


class BusyOwnerStore(ForwardingStore):
    """A store on which the owner is quicker with the next name a few times; counts what is read."""

    def __init__(self, inner: Store, index: SegmentIndex, *, losses: int) -> None:
        super().__init__(inner)
        self._index, self._losses = index, losses
        self.read: Counter[str] = Counter()

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        if self._losses:
            self._losses -= 1
            await append(self.inner, REF, self._index, 1)
        await self.inner.create(key, data, metadata=metadata)

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        self.read[key] += 1
        return await self.inner.get(key, start=start, stop=stop)


async def test_a_sealer_reads_on_from_where_it_was(world: SegmentWorld) -> None:
    """Looking at everything anew, it would always be too late against an owner under load."""
    index = SegmentIndex()
    for _ in range(40):
        await append(world.memory, REF, index, 1)
    store = BusyOwnerStore(world.memory, index, losses=3)
    sealed = await seal_at_end(store, world.clock, REF, start_offset=0, writer="b.1", grace_seconds=GRACE_SECONDS)
    assert sealed.end == 43
    assert {store.read[REF.key(FileName(n))] for n in range(40)} == {1}


# -- stopping ------------------------------------------------------------------------------------------------


async def test_closing_answers_everybody(world: SegmentWorld) -> None:
    """Of the put under way nobody knows; what still waited is certainly not stored."""
    world.faults.add("create", FaultKind.HANG)
    under_way = world.writer.append(single(b"0"), 1)
    await settle()
    waiting = world.writer.append(single(b"1"), 1)
    await world.writer.close()
    assert isinstance(under_way.exception(), OutcomeUnknown)
    assert isinstance(waiting.exception(), SegmentMoved)


@pytest.mark.parametrize("lost_before", [False, True], ids=["refused", "stored before"])
async def test_a_store_that_refuses_is_asked_until_it_does_not(
    world: SegmentWorld, lost_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an earlier try took effect unnoticed, a refusal must not make the message count as not stored."""
    create = world.memory.create

    async def refuse(*args: object, **kwargs: object) -> None:
        raise StoreRefused("the credentials have expired")

    if lost_before:
        world.faults.add("create", FaultKind.LOSE_ANSWER)
    futures = [world.writer.append(single(b"0"), 1)]
    await settle()
    monkeypatch.setattr(world.memory, "create", refuse)
    futures.append(world.writer.append(single(b"1"), 1))
    await world.pass_seconds(60)
    assert not futures[1].done() and world.writer.is_open
    monkeypatch.setattr(world.memory, "create", create)
    await world.pass_seconds(60)
    assert [offset_of(future.result()) for future in futures] == [0, 1]
    assert await world.values() == [b"0", b"1"]


async def test_a_roll_up_does_not_wait_for_a_store_that_refuses(
    world: SegmentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in (b"0", b"1"):
        await world.writer.append(single(value), 1)

    async def refuse(*args: object, **kwargs: object) -> None:
        raise StoreRefused("the credentials have expired")

    monkeypatch.setattr(world.memory, "create", refuse)
    with pytest.raises(StoreRefused):
        await replace_by_rollup(world)


async def test_messages_that_nobody_waits_for_any_more_are_counted_until_they_are_stored(world: SegmentWorld) -> None:
    unstored: list[int] = []
    world.writer._on_unstored = unstored.append
    world.faults.add("create", FaultKind.HANG)
    futures = [world.writer.append(single(b"%d" % n), 100) for n in range(4)]
    await settle()
    world.writer.count_abandoned()
    assert unstored == []
    for future in futures[:3]:
        future.cancel()
    world.writer.count_abandoned()
    world.writer.count_abandoned()
    held_bytes = 3 * (100 + ACCEPTED_OVERHEAD_BYTES)
    assert unstored == [held_bytes]
    world.store.release()
    await world.pass_seconds(10)
    assert offset_of(futures[3].result()) == 3
    assert await world.values() == [b"0", b"1", b"2", b"3"]
    assert sum(unstored) == 0


async def test_messages_that_nobody_waits_for_are_given_up_with_the_segment(world: SegmentWorld) -> None:
    unstored: list[int] = []
    world.writer._on_unstored = unstored.append
    world.faults.add("create", FaultKind.HANG)
    future = world.writer.append(single(b"0"), 100)
    await settle()
    future.cancel()
    world.writer.count_abandoned()
    assert sum(unstored) > 0
    await world.writer.close()
    world.writer.count_abandoned()
    assert sum(unstored) == 0


async def test_a_bug_in_a_put_leaves_nobody_waiting(world: SegmentWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(world.memory, "create", fail)
    future = world.writer.append(single(b"0"), 1)
    await settle()
    assert isinstance(future.exception(), RuntimeError)
    with pytest.raises(RuntimeError):
        await asyncio.wait_for(world.writer.seal(), 5)
