"""The upkeep of one segment: it settles, and whoever is killed in it, or does it too, loses and doubles nothing."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from filer import keys
from filer.clock import ManualClock, SystemClock
from filer.errors import BraidError, ObjectNotFound, OutcomeUnknown, SegmentMoved
from filer.keys import FileName
from filer.segment.live_files import FileFacts
from filer.segment.segment_index import SegmentIndex, Superseded
from filer.segment.segment_log import SegmentRef, list_names, read_snapshot, recover_index
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.local.local_store import LocalStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Data, Fetched, ObjectInfo, Store
from filer.upkeep.index_snapshots import ADOPTED_AT_ONCE, create_snapshot, write_snapshot
from filer.upkeep.rollup import roll_up
from filer.upkeep.segment_upkeep import SNAPSHOT_FILES, SegmentUpkeep
from tests.support.segment.segment_owners import GRACE_SECONDS, still_there
from tests.support.segment.upkeeps import ROLLUP_BYTES, run_until_idle, upkeep_of
from tests.support.store.dying_store import DyingStore, Killed
from tests.support.store.told_store import ToldStore
from tests.support.topic.segment_files import (
    append,
    append_singly,
    check_readable,
    exists,
    list_live,
    read_by_index,
    read_listed,
)

REF = SegmentRef("t", 3)


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


async def gone() -> bool:
    return False


def upkeep(
    store: Store,
    clock: ManualClock,
    index: SegmentIndex,
    executor: Executor,
    *,
    born_here: bool = False,
    broker: str = "b",
    exists: Callable[[], Awaitable[bool]] = still_there,
) -> SegmentUpkeep:
    return upkeep_of(store, clock, REF, index, executor, broker=broker, born_here=born_here, exists=exists)


async def filled(store: Store, files: int, *, sealed: bool = True, first: int = 0) -> SegmentIndex:
    index = SegmentIndex(first)
    for _ in range(files):
        await append(store, REF, index, 3)
    if sealed:
        await append(store, REF, index, 0, sealed=True)
    return index


def fresh_clock() -> ManualClock:
    return ManualClock(start_us=1_700_000_000_000_000 + 20_000)


def clocked_store() -> tuple[MemoryStore, ManualClock]:
    clock = fresh_clock()
    return MemoryStore(clock=clock), clock


async def test_an_open_segment_settles_and_sheds_its_small_files_after_grace(executor: Executor):
    store, clock = clocked_store()
    index = SegmentIndex()
    maintainer = upkeep(store, clock, index, executor, born_here=True)
    for _ in range(40):
        for _ in range(10):
            await append(store, REF, index, 1)
        await run_until_idle(maintainer)
    assert len(index.files) <= 20
    assert len(await list_names(store, REF)) > 400
    listed = await list_live(store, REF)
    assert await read_listed(store, REF, listed) == list(range(400))
    await clock.advance(GRACE_SECONDS - 1)
    await run_until_idle(maintainer)
    assert await read_listed(store, REF, listed) == list(range(400))
    assert len(await list_names(store, REF)) > 400
    await clock.advance(2)
    await run_until_idle(maintainer)
    assert sorted(facts.name for facts in index.files) == sorted(await list_names(store, REF))
    assert index.superseded == []
    assert not maintainer.has_work(0)
    await check_readable(store, REF, range(400))


async def test_4_000_single_messages_settle_and_are_read_once_at_every_moment(executor: Executor):
    store, clock = clocked_store()
    index = SegmentIndex()
    maintainer = upkeep(store, clock, index, executor, born_here=True)
    listed = []
    for burst in (1500, 40, 1, 1459, 9, 7, 784, 200):
        await append_singly(store, REF, index, burst)
        if burst <= 500:
            listed.append((index.end, await list_live(store, REF)))
        await run_until_idle(maintainer)
        listed.append((index.end, await list_live(store, REF)))
    assert index.end == 4_000
    assert len(index.files) <= 20
    assert len(await list_names(store, REF)) > 4_000
    await check_readable(store, REF, range(4_000))
    for end, names in listed[-4:]:
        assert await read_listed(store, REF, names) == list(range(end))
    await clock.advance(GRACE_SECONDS)
    await run_until_idle(maintainer)
    assert len(await list_names(store, REF)) <= 20
    await check_readable(store, REF, range(4_000))


async def test_each_file_stays_for_a_grace_period_of_its_own(executor: Executor):
    store, clock = clocked_store()
    index = SegmentIndex()
    maintainer = upkeep(store, clock, index, executor, born_here=True)
    for _ in range(12):
        await append(store, REF, index, 1)
    await run_until_idle(maintainer)
    await clock.advance(GRACE_SECONDS / 2)
    for _ in range(12):
        await append(store, REF, index, 1)
    await run_until_idle(maintainer)
    await clock.advance(GRACE_SECONDS / 2)
    await run_until_idle(maintainer)
    assert [name for name in await list_names(store, REF) if name.base < 8] == [FileName(0, 8), FileName(0, 20)]
    await clock.advance(GRACE_SECONDS / 2)
    await run_until_idle(maintainer)
    assert await list_names(store, REF) == [facts.name for facts in index.files]


async def test_a_short_run_waits_until_the_segment_is_at_rest(executor: Executor):
    store, clock = clocked_store()
    index = SegmentIndex()
    maintainer = upkeep(store, clock, index, executor, born_here=True)
    for _ in range(9):
        await append(store, REF, index, 1)
    await run_until_idle(maintainer)
    assert len(index.files) == 9
    await clock.advance(31)
    assert maintainer.has_work(0)
    await run_until_idle(maintainer)
    assert [facts.name for facts in index.files] == [FileName(0, 5), *(FileName(base) for base in range(5, 9))]


async def test_a_sealed_segment_becomes_one_file_and_its_seal(executor: Executor):
    store, clock = clocked_store()
    index = await filled(store, 30)
    await run_until_idle(upkeep(store, clock, index, executor))
    assert [facts.name for facts in index.files] == [FileName(0, 90), FileName(90)]
    await clock.advance(GRACE_SECONDS)
    again = upkeep(store, clock, await recover_index(store, REF), executor)
    await run_until_idle(again)
    assert await list_names(store, REF) == [FileName(0, 90), FileName(90)]
    assert (await check_readable(store, REF, range(90))).sealed


async def test_a_local_directory_serves_as_well(executor: Executor, tmp_path: Path):
    clock = fresh_clock()
    # The time of a file system is not for a test to move.
    store = ToldStore(LocalStore(tmp_path, clock=SystemClock()), clock)
    index = await filled(store, 30)
    await run_until_idle(upkeep(store, clock, index, executor))
    await check_readable(store, REF, range(90))
    await clock.advance(GRACE_SECONDS)
    await run_until_idle(upkeep(store, clock, await recover_index(store, REF), executor))
    assert await list_names(store, REF) == [FileName(0, 90), FileName(90)]
    assert (await check_readable(store, REF, range(90))).sealed
    await store.close()


async def test_a_seal_with_messages_stays(executor: Executor):
    store, clock = clocked_store()
    index = SegmentIndex()
    for sealed in (False, False, False, True):
        await append(store, REF, index, 3, sealed=sealed)
    await clock.advance(31)
    await run_until_idle(upkeep(store, clock, index, executor))
    await clock.advance(GRACE_SECONDS)
    await run_until_idle(upkeep(store, clock, index, executor))
    assert await list_names(store, REF) == [FileName(0, 9), FileName(9)]
    await check_readable(store, REF, range(12))


async def test_a_snapshot_is_put_every_so_many_files(executor: Executor):
    store, clock = clocked_store()
    index = SegmentIndex()
    maintainer = upkeep(store, clock, index, executor, born_here=True)
    for _ in range(5):
        await append(store, REF, index, 1)
    await run_until_idle(maintainer)
    assert not await exists(store, keys.index_snapshot("t", 3))
    large = b"x" * 9 * 1024 * 1024
    await append(store, REF, index, 1, padding=large)
    for _ in range(SNAPSHOT_FILES - 6):
        index.append(FileFacts(FileName(index.end), index.end + 1, len(large), 1, 1, start=index.end))
    await run_until_idle(maintainer)
    snapshot = await read_snapshot(store, REF, 0)
    assert snapshot is not None
    assert snapshot.end == SNAPSHOT_FILES


async def test_expired_files_are_deleted_after_grace(executor: Executor):
    store, clock = clocked_store()
    index = await filled(store, 10)
    maintainer = upkeep(store, clock, index, executor)
    await maintainer.run(rollup_bytes=1024, start_offset=12)
    assert index.start_offset == 12
    assert [facts.base for facts in index.files][:2] == [12, 15]
    assert index.superseded == [Superseded(0, 12, clock.now_us(), rolled=False)]
    listed = await list_live(store, REF)
    await clock.advance(GRACE_SECONDS - 1)
    await maintainer.run(rollup_bytes=1024, start_offset=12)
    assert await read_listed(store, REF, listed) == list(range(30))
    await clock.advance(1)
    await maintainer.run(rollup_bytes=1024, start_offset=12)
    assert (await list_names(store, REF))[0] == FileName(12)
    await check_readable(store, REF, range(12, 30))


async def test_all_of_a_sealed_segment_may_expire_but_its_seal(executor: Executor):
    store, clock = clocked_store()
    index = await filled(store, 5)
    for started in (index, await recover_index(store, REF, start_offset=15)):
        maintainer = upkeep(store, clock, started, executor)
        await run_until_idle(maintainer, start_offset=15)
        await clock.advance(GRACE_SECONDS)
        await run_until_idle(maintainer, start_offset=15)
        assert await exists(store, REF.key(FileName(15)))
    assert await list_names(store, REF) == [FileName(15)]


# -- killed at every request ----------------------------------------------------------------------------------


async def one_life(store: Store, clock: ManualClock, executor: Executor, *, start_offset: int) -> None:
    """Recover, keep, wait out the grace period, keep again: what a broker does with a sealed segment."""
    index = await recover_index(store, REF, start_offset=start_offset)
    maintainer = upkeep(store, clock, index, executor)
    await run_until_idle(maintainer, start_offset=start_offset)
    await clock.advance(GRACE_SECONDS + 1)
    await run_until_idle(maintainer, start_offset=start_offset)


@pytest.mark.parametrize("start_offset", [0, 12])
@pytest.mark.parametrize("before", [True, False])
async def test_killed_at_any_request_nothing_is_lost_or_doubled(executor: Executor, before: bool, start_offset: int):
    at, expected = 0, range(start_offset, 36)
    while True:
        memory, clock = clocked_store()
        await filled(memory, 12)
        listed = await list_live(memory, REF)
        store = DyingStore(memory).die_at(at, before=before)
        began_us = clock.now_us()
        with contextlib.suppress(Killed):
            await one_life(store, clock, executor, start_offset=start_offset)
        if clock.now_us() == began_us:
            assert await read_listed(memory, REF, listed) == list(range(36))
        await check_readable(memory, REF, expected)
        # Files below the start offset go at their time, whoever may have listed them just before.
        listed = [live for live in await list_live(memory, REF) if live.start >= start_offset]
        maintainer = upkeep(memory, clock, await recover_index(memory, REF, start_offset=start_offset), executor)
        await maintainer.run(rollup_bytes=ROLLUP_BYTES, start_offset=start_offset)
        await check_readable(memory, REF, expected)
        assert await read_listed(memory, REF, listed) == list(expected)
        await run_until_idle(maintainer, start_offset=start_offset)
        await clock.advance(GRACE_SECONDS + 1)
        await run_until_idle(maintainer, start_offset=start_offset)
        index = await check_readable(memory, REF, expected)
        assert (
            await list_names(memory, REF)
            == [FileName(start_offset, 36), FileName(36)]
            == [facts.name for facts in index.files]
        )
        if not store.dead:
            break
        at += 1
    assert at > 10


async def test_killed_again_and_again_it_still_settles(executor: Executor):
    memory, clock = clocked_store()
    await filled(memory, 12)
    for at in range(3, 40):
        with contextlib.suppress(Killed):
            await one_life(DyingStore(memory).die_at(at, before=at % 2 == 0), clock, executor, start_offset=0)
        await check_readable(memory, REF, range(36))
    assert await list_names(memory, REF) == [FileName(0, 36), FileName(36)]


# -- what other processes do ----------------------------------------------------------------------------------


async def test_two_maintainers_of_the_same_segment_agree(executor: Executor):
    store, clock = clocked_store()
    await filled(store, 12)
    maintainers = [
        upkeep(store, clock, await recover_index(store, REF), executor, broker=broker) for broker in ("a", "b")
    ]
    for step in range(12):
        for maintainer in maintainers:
            try:
                await maintainer.run(rollup_bytes=ROLLUP_BYTES, start_offset=0)
            except ObjectNotFound:
                # Meanwhile the other one has been faster: it is looked at again the next time.
                continue
            await check_readable(store, REF, range(36))
        if step % 3 == 2:
            await clock.advance(GRACE_SECONDS / 2)
    assert await list_names(store, REF) == [FileName(0, 36), FileName(36)]
    for maintainer in maintainers:
        assert await read_by_index(store, REF, maintainer.index) == list(range(36))


async def test_overlapping_roll_ups_are_read_once_and_end_in_one(executor: Executor):
    store, clock = clocked_store()
    index = await filled(store, 12)
    for first, last in ((0, 6), (3, 9), (6, 12)):
        await roll_up(store, clock, REF, index.files[first:last], broker="x", executor=executor)
        await check_readable(store, REF, range(36))
    for start in (index, await recover_index(store, REF)):
        maintainer = upkeep(store, clock, start, executor)
        await run_until_idle(maintainer)
        await check_readable(store, REF, range(36))
        await clock.advance(GRACE_SECONDS + 1)
        await run_until_idle(maintainer)
        await check_readable(store, REF, range(36))
        assert await read_by_index(store, REF, start) == list(range(36))


async def test_a_file_that_another_deleted_is_noticed(executor: Executor):
    store, clock = clocked_store()
    stale = await filled(store, 12)
    other = upkeep(store, clock, await recover_index(store, REF), executor)
    await run_until_idle(other)
    await clock.advance(GRACE_SECONDS + 1)
    await run_until_idle(other)
    with pytest.raises(ObjectNotFound):
        await run_until_idle(upkeep(store, clock, stale, executor))
    await check_readable(store, REF, range(36))


async def test_the_snapshot_of_a_former_owner_never_replaces_a_newer_one(executor: Executor):
    store, clock = clocked_store()
    former = await filled(store, 12, sealed=False)
    maintainer = upkeep(store, clock, former, executor, born_here=True)
    newer = await recover_index(store, REF)
    await append(store, REF, newer, 3)
    await append(store, REF, newer, 0, sealed=True)
    await run_until_idle(upkeep(store, clock, newer, executor))
    snapshot = await read_snapshot(store, REF, 0)
    assert snapshot is not None
    assert snapshot.sealed
    before = await store.get(keys.index_snapshot(REF.topic, REF.segment))
    await maintainer.run(rollup_bytes=ROLLUP_BYTES, start_offset=0)
    assert (await store.get(keys.index_snapshot(REF.topic, REF.segment))).data == before.data
    with pytest.raises(SegmentMoved, match="another broker maintains this segment"):
        await maintainer.run(rollup_bytes=ROLLUP_BYTES, start_offset=0)
    await clock.advance(GRACE_SECONDS + 1)
    await run_until_idle(upkeep(store, clock, newer, executor))
    assert (await check_readable(store, REF, range(39))).sealed


class BusyStore(ForwardingStore):
    """Lets something else happen right after its first listing."""

    def __init__(self, inner: Store, meanwhile: Callable[[], Awaitable[None]]) -> None:
        super().__init__(inner)
        self._meanwhile: Callable[[], Awaitable[None]] | None = meanwhile

    async def list(self, prefix: str, *, after=None, limit=None) -> AsyncIterator[ObjectInfo]:
        async for info in self.inner.list(prefix, after=after, limit=limit):
            yield info
        if self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            await meanwhile()


async def test_a_snapshot_written_between_two_reconciliations_is_not_replaced(executor: Executor):
    store, clock = clocked_store()
    index = await filled(store, 12)
    for _ in range(2):
        await upkeep(store, clock, await recover_index(store, REF), executor).run(rollup_bytes=1, start_offset=0)

    async def meanwhile() -> None:
        await run_until_idle(upkeep(store, clock, await recover_index(store, REF), executor, broker="other"))

    maintainer = upkeep(BusyStore(store, meanwhile), clock, index, executor)
    await maintainer.run(rollup_bytes=1, start_offset=0)
    assert maintainer.has_work(0)
    snapshot = await read_snapshot(store, REF, 0)
    assert snapshot is not None
    assert [facts.name for facts in snapshot.files] == [FileName(0, 36), FileName(36)]


@pytest.mark.parametrize("due", [False, True])
async def test_the_former_owner_and_the_new_maintainer_do_not_fail(executor: Executor, due: bool):
    """The one has known the segment from its first message on; the other has looked and put the first snapshot."""
    store, clock = clocked_store()
    index = SegmentIndex()
    owner = upkeep(store, clock, index, executor, born_here=True, broker="owner")
    for _ in range(12):
        await append(store, REF, index, 3)
    await append(store, REF, index, 0, sealed=True)
    await run_until_idle(upkeep(store, clock, await recover_index(store, REF), executor, broker="maintainer"))
    await clock.advance(GRACE_SECONDS + 1 if due else 1)
    names = await list_names(store, REF)
    await owner.run(rollup_bytes=ROLLUP_BYTES, start_offset=0)
    assert await list_names(store, REF) == names, "nothing goes before the other's snapshot has been taken in"
    await run_until_idle(owner)
    await clock.advance(GRACE_SECONDS + 1)
    await run_until_idle(owner)
    assert await list_names(store, REF) == [FileName(0, 36), FileName(36)]
    await check_readable(store, REF, range(36))


class SlowStore(ForwardingStore):
    """Takes a while over each roll-up."""

    def __init__(self, inner: Store, clock: ManualClock, *, seconds: float) -> None:
        super().__init__(inner)
        self._clock, self._seconds = clock, seconds

    async def create(self, key: str, data: Data, *, metadata=None) -> None:
        await self.inner.create(key, data, metadata=metadata)
        await self._clock.advance(self._seconds)


async def test_a_roll_up_that_took_too_long_is_checked_again(executor: Executor):
    memory, clock = clocked_store()
    index = await filled(memory, 12)
    slow = SlowStore(memory, clock, seconds=GRACE_SECONDS)
    with pytest.raises(OutcomeUnknown, match="more than half of the grace period"):
        await upkeep(slow, clock, index, executor).run(rollup_bytes=ROLLUP_BYTES, start_offset=0)
    assert len(index.files) == 13
    await run_until_idle(upkeep(memory, clock, index, executor))
    assert len(index.files) == 2


async def test_a_roll_up_written_after_its_segment_was_removed_is_deleted(executor: Executor):
    memory, clock = clocked_store()
    index = await filled(memory, 12)
    slow = SlowStore(memory, clock, seconds=GRACE_SECONDS)
    with pytest.raises(SegmentMoved, match="after its segment had been removed"):
        await upkeep(slow, clock, index, executor, exists=gone).run(rollup_bytes=ROLLUP_BYTES, start_offset=0)
    assert not await exists(memory, REF.key(FileName(0, 36)))


# -- what it costs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rolled", [True, False])
async def test_requests_to_recover_do_not_grow_with_what_is_behind_the_snapshot(executor: Executor, rolled: bool):
    costs = []
    for files in (1_000, 100_000):
        memory, index = MemoryStore(), SegmentIndex()
        for base in range(files):
            index.append(FileFacts(FileName(base), base + 1, 3000, 1, 1, start=base))
        if rolled:
            index.supersede(FileFacts(FileName(0, files), files, 10_000, 1, 1), 1)
        await write_snapshot(memory, REF, index, etag=None, executor=executor)
        for _ in range(5):
            await append(memory, REF, index, 1)
        counting = DyingStore(memory)
        again = await recover_index(counting, REF)
        assert again.end == files + 5
        assert again.files == index.files
        costs.append(counting.requests)
    assert costs[0] == costs[1]
    assert costs[0] < 10


async def test_nothing_is_asked_of_the_store_where_nothing_happened(executor: Executor):
    memory, clock = clocked_store()
    index = await filled(memory, 12)
    counting = DyingStore(memory)
    maintainer = upkeep(counting, clock, index, executor)
    await run_until_idle(maintainer)
    await clock.advance(GRACE_SECONDS + 1)
    await run_until_idle(maintainer)
    before = counting.requests
    await clock.advance(10 * GRACE_SECONDS)
    assert not maintainer.has_work(0)
    await run_until_idle(maintainer)
    assert counting.requests == before


class StumblingStore(ForwardingStore):
    """Gives way to other tasks for a random while before and after each request.

    A file may only be deleted while the snapshot that stands knows that it counts no more.
    """

    def __init__(self, inner: Store, dice: random.Random) -> None:
        super().__init__(inner)
        self._dice = dice

    async def stumble(self) -> None:
        for _ in range(self._dice.choice((0, 0, 1, 5, 30))):
            await asyncio.sleep(0)

    async def create(self, key: str, data: Data, *, metadata=None) -> None:
        await self.stumble()
        await self.inner.create(key, data, metadata=metadata)
        await self.stumble()

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        await self.stumble()
        replaced = await self.inner.replace(key, data, etag=etag)
        await self.stumble()
        return replaced

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        await self.stumble()
        return await self.inner.get(key, start=start, stop=stop)

    async def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            await self.stumble()
            name = FileName.parse(key)
            snapshot = await read_snapshot(self.inner, REF, 0)
            assert name is not None
            assert snapshot is not None
            assert name not in [facts.name for facts in snapshot.files]
            await self.inner.delete([key])


async def keep_on(store: Store, clock: ManualClock, executor: Executor, dice: random.Random, broker: str) -> None:
    """A broker that recovers the segment anew now and then, and whenever its index proves wrong."""
    for _ in range(4):
        maintainer = upkeep(store, clock, await recover_index(store, REF), executor, broker=broker)
        for _ in range(6):
            try:
                await maintainer.run(rollup_bytes=ROLLUP_BYTES, start_offset=0)
            except ObjectNotFound:
                break
            except BraidError:
                continue
            await clock.advance(dice.choice((0, 1, 10, 40)))


@pytest.mark.parametrize("seed", range(8))
async def test_any_number_of_maintainers_at_once_do_no_harm(executor: Executor, seed: int):
    dice = random.Random(seed)
    memory, clock = clocked_store()
    index = await filled(memory, 16)
    for _ in range(dice.randrange(3)):
        first = dice.randrange(12)
        run = index.files[first : first + dice.randrange(2, 16 - first + 1)]
        await roll_up(memory, clock, REF, [f for f in run if not f.sealed], broker="x", executor=executor)
    store = StumblingStore(memory, dice)
    maintainers = [asyncio.create_task(keep_on(store, clock, executor, dice, f"b{n}")) for n in range(3)]
    listed, listed_us = await list_live(memory, REF), clock.now_us()
    while not all(task.done() for task in maintainers):
        if clock.now_us() - listed_us >= GRACE_SECONDS * 1e6:
            listed, listed_us = await list_live(memory, REF), clock.now_us()
        assert await read_listed(memory, REF, listed) == list(range(48))
        assert await read_listed(memory, REF, await list_live(memory, REF)) == list(range(48))
        # Somebody has to move the time on while all of them rest.
        await clock.advance(0.1)
    await asyncio.gather(*maintainers)
    await check_readable(memory, REF, range(48))
    last = upkeep(memory, clock, await recover_index(memory, REF), executor)
    await run_until_idle(last)
    await clock.advance(GRACE_SECONDS + 1)
    await run_until_idle(last)
    await check_readable(memory, REF, range(48))
    assert await read_by_index(memory, REF, last.index) == list(range(48))


async def roll_up_beside(store: Store, clock: ManualClock, executor: Executor, index: SegmentIndex, files: int) -> None:
    """What another program does: a roll-up of each so many files, of which nobody who keeps the segment knows."""
    for first in range(0, len(index.files) - 1, files):
        run = index.files[first : first + files]
        await roll_up(store, clock, REF, run, broker="pipeline", executor=executor)


async def test_announced_roll_ups_of_other_programs_are_taken_in(executor: Executor):
    store, clock = clocked_store()
    index = await filled(store, 3)
    maintainer = upkeep(store, clock, index, executor)
    await maintainer.run(rollup_bytes=1, start_offset=0)
    await roll_up_beside(store, clock, executor, await recover_index(store, REF), 3)
    assert not maintainer.has_work(0)
    maintainer.invalidate()
    assert maintainer.has_work(0)
    await run_until_idle(maintainer)
    await clock.advance(GRACE_SECONDS + 1)
    await run_until_idle(maintainer)
    assert [name.rolled for name in await list_names(store, REF)] == [True, False]
    await check_readable(store, REF, range(index.end))


async def test_many_roll_ups_of_others_are_adopted_in_rounds_and_no_file_is_deleted_before(
    executor: Executor,
):
    store, clock = clocked_store()
    index = await filled(store, 3 * (2 * ADOPTED_AT_ONCE + 1))
    await roll_up_beside(store, clock, executor, index, 3)
    maintainer, names = upkeep(store, clock, index, executor), await list_names(store, REF)
    for rounds in (1, 2):
        await maintainer.run(rollup_bytes=1, start_offset=0)
        assert sum(facts.name.rolled for facts in index.files) == rounds * ADOPTED_AT_ONCE
        assert maintainer.has_work(0) and await read_snapshot(store, REF, 0) is None
    await run_until_idle(maintainer)
    assert len(index.files) == 2 * ADOPTED_AT_ONCE + 2
    assert await list_names(store, REF) == names
    await clock.advance(GRACE_SECONDS + 1)
    await run_until_idle(maintainer)
    assert len(await list_names(store, REF)) == 2 * ADOPTED_AT_ONCE + 2
    await check_readable(store, REF, range(index.end))


async def test_a_roll_up_announced_during_a_reconciliation_is_looked_for_again(executor: Executor):
    store, clock = clocked_store()
    index = await filled(store, 3)

    class AnnouncingStore(ForwardingStore):
        """While the first listing is on its way, a program rolls up and says so."""

        announced = False

        def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> AsyncIterator[ObjectInfo]:
            if not self.announced:
                self.announced = True
                maintainer.invalidate()
            return self.inner.list(prefix, after=after, limit=limit)

    maintainer = upkeep(AnnouncingStore(store), clock, index, executor)
    await maintainer.run(rollup_bytes=1, start_offset=0)
    await roll_up_beside(store, clock, executor, await recover_index(store, REF), 3)
    await run_until_idle(maintainer)
    assert index.files[0].name.rolled


async def test_the_first_snapshot_of_a_segment_is_never_put_in_place_of_another(executor: Executor):
    store, clock = clocked_store()
    index = await filled(store, 20)
    assert await create_snapshot(store, REF, index, executor=executor)
    assert await create_snapshot(store, REF, index, executor=executor)
    found = await recover_index(store, REF)
    assert (found.files, found.stored_bytes, found.sealed) == (index.files, index.stored_bytes, True)
    assert not await create_snapshot(store, REF, await filled(MemoryStore(), 19), executor=executor)
    maintainer = upkeep(store, clock, found, executor)
    await clock.advance(GRACE_SECONDS)
    await run_until_idle(maintainer)
    moved_on = await store.get(keys.index_snapshot("t", 3))
    assert not await create_snapshot(store, REF, index, executor=executor)
    assert (await store.get(keys.index_snapshot("t", 3))).data == moved_on.data


async def test_a_file_written_within_another_never_counts_and_is_deleted(executor: Executor):
    """By an address of a load that was given out before the commit: nobody has checked it."""
    store, clock = clocked_store()
    index = await filled(store, 3)
    assert await create_snapshot(store, REF, index, executor=executor)
    await store.create(REF.key(FileName(4)), b"no Parquet at all")
    found = await recover_index(store, REF)
    assert found.files == index.files
    maintainer = upkeep(store, clock, found, executor)
    await run_until_idle(maintainer)
    assert FileName(4) in await list_names(store, REF)
    await clock.advance(GRACE_SECONDS)
    await run_until_idle(maintainer)
    assert FileName(4) not in await list_names(store, REF)
    await check_readable(store, REF, range(9))
