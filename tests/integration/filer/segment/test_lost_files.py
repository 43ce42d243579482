"""Any file of a log is deleted or cut short: nothing is sealed over, and with it put back all is as before."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from filer.clock import ManualClock
from filer.errors import CorruptFile, DataMissing, UnreadableObject
from filer.format.requests import Position, RequestId, StoredRequest
from filer.keys import FileName
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, catch_up, find_again, list_names, recover_index, seal_at_end
from filer.segment.segment_reader import SegmentReader
from filer.stores.memory_store import MemoryStore
from filer.upkeep.index_snapshots import reconcile, write_snapshot
from tests.support.instant_clock import InstantClock
from tests.support.topic.segment_files import append, check_readable

REF = SegmentRef("t", 0)
FILES = 6


@pytest.fixture
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


async def written(store: MemoryStore, *, sealed: bool = False) -> SegmentIndex:
    """Six files of two messages; each is one request of a producer. Perhaps a seal behind them."""
    index = SegmentIndex()
    for number in range(FILES):
        request = StoredRequest(RequestId("p", number), Position(0, 2 * number, 2))
        await append(store, REF, index, 2, requests=[request])
    if sealed:
        await append(store, REF, index, 0, sealed=True)
    return index


async def sealed_at_end(store: MemoryStore) -> SegmentIndex:
    return await seal_at_end(store, InstantClock(), REF, start_offset=0, writer="z.1", grace_seconds=60)


async def lose(store: MemoryStore, base: int, *, left_bytes: int | None) -> bytes:
    """Delete the file, or leave its first bytes; returns what it was."""
    key = REF.key(FileName(base))
    data = (await store.get(key)).data
    await store.delete([key])
    if left_bytes is not None:
        await store.create(key, data[:left_bytes])
    return data


async def put_back(store: MemoryStore, base: int, data: bytes) -> None:
    key = REF.key(FileName(base))
    await store.delete([key])
    await store.create(key, data)


async def readable(store: MemoryStore, pool: Executor, index: SegmentIndex) -> tuple[list[int], list[UnreadableObject]]:
    """All offsets that can be read, and every error on the way: at each one reading goes on where it says."""
    reader = SegmentReader(store, pool, cache_bytes=0)
    offsets: list[int] = []
    errors: list[UnreadableObject] = []
    offset = index.start_offset
    while offset < index.end:
        try:
            table = await reader.read(REF, index, offset, max_rows=100, max_bytes=1 << 20)
        except UnreadableObject as error:
            assert error.offset == offset
            assert error.next_offset is not None
            errors.append(error)
            offset = error.next_offset
            continue
        offsets += table["_offset"].to_pylist()
        offset = offsets[-1] + 1
    return offsets, errors


@pytest.mark.parametrize("left_bytes", [None, 0, 100], ids=["gone", "empty", "cut short"])
@pytest.mark.parametrize("lost", range(FILES - 1))
async def test_one_lost_file_is_a_hole(lost: int, left_bytes: int | None, pool: Executor) -> None:
    store = MemoryStore()
    await written(store)
    data = await lose(store, 2 * lost, left_bytes=left_bytes)
    key = REF.key(FileName(2 * lost))
    index = await sealed_at_end(store)
    assert (index.end, index.sealed, index.seal_offset) == (12, True, 12)
    again = await recover_index(store, REF)
    offsets, [told] = await readable(store, pool, again)
    assert offsets == [n for n in range(12) if n // 2 != lost]
    assert isinstance(told, DataMissing if left_bytes is None else CorruptFile)
    assert (told.key, told.segment, told.offset, told.next_offset) == (key, 0, 2 * lost, 2 * lost + 2)
    await find_again(store, REF, again, again.holes[0])
    assert len(again.holes) == 1, "it is still lost"
    await put_back(store, 2 * lost, data)
    await find_again(store, REF, again, again.holes[0])
    assert again.files == (await check_readable(store, REF, range(12))).files
    assert not again.holes


async def test_files_that_are_lost_together_are_found_one_by_one(pool: Executor) -> None:
    store = MemoryStore()
    await written(store, sealed=True)
    kept = {base: await lose(store, base, left_bytes=None) for base in (2, 4, 6)}
    index = await recover_index(store, REF)
    assert [(hole.start, hole.end) for hole in index.holes] == [(2, 8)]
    await put_back(store, 4, kept[4])
    await find_again(store, REF, index, index.holes[0])
    assert [(hole.start, hole.end, hole.name) for hole in index.holes] == [
        (2, 4, FileName(2)),
        (6, 8, FileName(6)),
    ]
    assert (await readable(store, pool, index))[0] == [0, 1, 4, 5, 8, 9, 10, 11]
    for base in (2, 6):
        await put_back(store, base, kept[base])
        for hole in list(index.holes):
            await find_again(store, REF, index, hole)
    assert index.files == (await check_readable(store, REF, range(12))).files


@pytest.mark.parametrize("left_bytes", [0, 100])
async def test_a_damaged_last_file_keeps_the_segment_open(left_bytes: int, pool: Executor) -> None:
    store = MemoryStore()
    await written(store)
    data = await lose(store, 10, left_bytes=left_bytes)
    with pytest.raises(CorruptFile, match="unknown where the segment ends") as told:
        await sealed_at_end(store)
    assert told.value.key == REF.key(FileName(10))
    index = await recover_index(store, REF)
    assert (index.end, index.blocked, index.sealed) == (10, FileName(10), False)
    with pytest.raises(CorruptFile):
        await SegmentReader(store, pool, cache_bytes=0).read(REF, index, 10, max_rows=1, max_bytes=1)
    assert await catch_up(store, REF, index) is index
    await put_back(store, 10, data)
    assert (await catch_up(store, REF, index)).end == 12
    assert (await sealed_at_end(store)).end == 12
    await check_readable(store, REF, range(12))


async def test_sequences_that_may_have_been_lost_are_refused() -> None:
    store = MemoryStore()
    await written(store)
    await lose(store, 4, left_bytes=None)
    index = await recover_index(store, REF)
    found = [index.windows.look_up(RequestId("p", sequence))[0] for sequence in (1, 2, 3, 6)]
    assert [each.position for each in found] == [Position(0, 2, 2), None, Position(0, 6, 2), None]
    assert [each.expired for each in found] == [False, True, False, False]


async def test_the_log_reaches_as_far_as_is_known() -> None:
    """Its owner has acknowledged the last file, which is gone without a trace on the store."""
    store = MemoryStore()
    await written(store)
    data = await lose(store, 10, left_bytes=None)
    index = await seal_at_end(store, InstantClock(), REF, start_offset=0, writer="z.1", grace_seconds=60, known_end=12)
    assert (index.end, index.seal_offset) == (12, 12)
    await put_back(store, 10, data)
    await check_readable(store, REF, range(12))


async def test_upkeep_deletes_nothing_that_a_hole_waits_for(pool: Executor) -> None:
    """A file that is back, or still damaged, is no leftover."""
    store, clock = MemoryStore(), ManualClock()
    await written(store, sealed=True)
    kept = {base: await lose(store, base, left_bytes=left) for base, left in ((0, None), (4, 50), (8, None))}
    index = await recover_index(store, REF)
    assert len(index.holes) == 3
    await put_back(store, 0, kept[0])
    await put_back(store, 8, kept[8])
    assert await reconcile(store, REF, index, clock=clock, executor=pool)
    assert index.superseded == []


async def test_a_file_that_the_snapshot_knows_is_read_anew_after_it_was_put_back(pool: Executor) -> None:
    store = MemoryStore()
    index = await written(store)
    await write_snapshot(store, REF, index, etag=None, executor=pool)
    index.lose(index.files[1], damaged=False)
    index.lose(index.files[3], damaged=True, etag="as it was")
    assert len(index.holes) == 2
    for hole in list(index.holes):
        await find_again(store, REF, index, hole)
    assert index.files == (await recover_index(store, REF)).files


async def test_a_damaged_object_that_has_not_changed_is_not_read_again() -> None:
    store = MemoryStore()
    index = await written(store)
    key = REF.key(FileName(2))
    index.lose(index.files[1], damaged=True, etag=(await store.head(key)).etag)
    await find_again(store, REF, index, index.holes[0])
    assert len(index.holes) == 1


async def test_many_looks_at_once_change_nothing_twice() -> None:
    store = MemoryStore()
    await written(store, sealed=True)
    data = await lose(store, 6, left_bytes=None)
    index = await recover_index(store, REF)
    await put_back(store, 6, data)
    [hole] = index.holes
    await asyncio.gather(*(find_again(store, REF, index, hole) for _ in range(5)))
    assert (len(index.files), index.holes) == (FILES + 1, [])
    assert len(await list_names(store, REF)) == FILES + 1
