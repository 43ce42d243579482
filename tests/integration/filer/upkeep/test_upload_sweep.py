"""Uploads that nobody refers to go after a day; the others with the last file that refers to them."""

import random
from collections.abc import Collection, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from filer import keys
from filer.clock import ManualClock
from filer.errors import CorruptFile, DataMissing
from filer.format.segment_file import FOOTER_GUESS_BYTES
from filer.keys import FileName
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Store
from filer.topic.given_up import GivenUpRange, GivenUpRanges
from filer.upkeep.deletion import delete_segment
from filer.upkeep.rollup import roll_up
from filer.upkeep.upload_sweep import RefMemory, expired_uploads, sweep_uploads
from filer.uploads import Uploads
from tests.support.store.dying_store import DyingStore
from tests.support.topic.segment_files import append, exists

REF = SegmentRef("t", 3)
HOUR = 3600.0


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


class Desk:
    """Issues uploads as a broker does, one minute after another, and sweeps."""

    def __init__(self, executor: Executor) -> None:
        self.store: Store = MemoryStore()
        self.clock, self.executor = ManualClock(), executor
        self.uploads = Uploads(self.store, self.clock, b"secret")
        self.memory = RefMemory()

    async def upload(self) -> str:
        upload = self.uploads.issue("t", size_bytes=4, sha256=None)
        await self.store.create(keys.upload("t", upload.id), b"data")
        await self.clock.advance(60)
        return f"uploads/{upload.id}"

    async def sweep(
        self, *, hours: float = 25, indexes: dict[int, SegmentIndex] | None = None, bare: Collection[int] = ()
    ) -> int:
        before_us = self.clock.now_us() - int(hours * HOUR * 1e6)
        return await sweep_uploads(
            self.store, "t", indexes or {}, self.memory, before_us=before_us, executor=self.executor, bare=bare
        )

    async def stands(self, uri: str) -> bool:
        return await exists(self.store, f"topics/t/{uri}")


async def test_only_old_uploads_without_references_are_deleted(executor: Executor):
    desk, index = Desk(executor), SegmentIndex()
    unused, used = await desk.upload(), await desk.upload()
    await append(desk.store, REF, index, 5, uris=[used])
    await desk.clock.advance(25 * HOUR)
    young = await desk.upload()
    assert await desk.sweep() == 1
    assert [await desk.stands(uri) for uri in (unused, used, young)] == [False, True, True]
    assert await desk.sweep() == 0
    await desk.clock.advance(25 * HOUR)
    assert await desk.sweep() == 1
    assert [await desk.stands(uri) for uri in (used, young)] == [True, False]


async def test_an_upload_is_deleted_with_the_last_file_that_refers_to_it(executor: Executor):
    desk, index = Desk(executor), SegmentIndex()
    used = [await desk.upload() for _ in range(6)]
    for uri in used[:5]:
        await append(desk.store, REF, index, 2, uris=[uri])
    await append(desk.store, SegmentRef("t", 4), SegmentIndex(), 2, uris=[used[0], used[5]])
    await desk.clock.advance(26 * HOUR)
    rolled = await roll_up(desk.store, desk.clock, REF, index.files[:3], broker="b", executor=executor)
    await desk.store.delete([REF.key(facts.name) for facts in index.files[:3]])
    index.supersede(rolled, 1)
    assert await desk.sweep(indexes={3: index}) == 0
    await desk.store.delete([REF.key(rolled.name)])
    assert await desk.sweep() == 2
    assert [await desk.stands(uri) for uri in used] == [True, False, False, True, True, True]
    await delete_segment(desk.store, "t", 4)
    assert await desk.sweep() == 2
    assert [await desk.stands(uri) for uri in used] == [False, False, False, True, True, False]


async def test_files_in_the_folder_of_a_bulk_load_are_not_opened(executor: Executor):
    desk = Desk(executor)
    unused = await desk.upload()
    await desk.store.create(keys.segment_file("t", 16_387, FileName(0)), b"what anybody may have put there")
    await desk.clock.advance(25 * HOUR)
    with pytest.raises(CorruptFile):
        await desk.sweep()
    assert await desk.sweep(bare={16_387}) == 1
    assert not await desk.stands(unused)


async def test_references_in_large_files_are_read_without_the_rest(executor: Executor):
    desk, index = Desk(executor), SegmentIndex()
    used = [await desk.upload() for _ in range(3)]
    await append(desk.store, REF, index, 5, uris=used[:2], padding=random.Random(1).randbytes(200_000))
    await append(desk.store, REF, index, 5, uris=used[2:], padding=random.Random(2).randbytes(200_000))
    rolled = await roll_up(desk.store, desk.clock, REF, index.files, broker="b", executor=executor)
    assert rolled.size_bytes > FOOTER_GUESS_BYTES
    await desk.clock.advance(26 * HOUR)
    assert await desk.sweep() == 0
    await desk.store.delete([REF.key(facts.name) for facts in index.files])
    assert await desk.sweep() == 0
    assert [await desk.stands(uri) for uri in used] == [True] * 3


async def test_a_file_is_read_once_and_one_without_references_not_at_all(executor: Executor):
    desk, index = Desk(executor), SegmentIndex()
    await desk.upload()
    await append(desk.store, REF, index, 5, uris=[await desk.upload()])
    for _ in range(50):
        await append(desk.store, REF, index, 5)
    await desk.clock.advance(26 * HOUR)
    memory, costs = desk.store, []
    for _ in range(2):
        desk.store = DyingStore(memory)
        await desk.sweep(indexes={3: index})
        costs.append(desk.store.requests)
    assert costs[0] - costs[1] == 2
    assert costs[1] <= 4


async def test_the_cache_of_references_is_bounded(executor: Executor):
    desk, index = Desk(executor), SegmentIndex()
    desk.memory = RefMemory(limit=10)
    used = [await desk.upload() for _ in range(8)]
    for number in range(0, 8, 4):
        await append(desk.store, REF, index, 6, uris=used[number : number + 4])
    await append(desk.store, REF, index, 40, uris=[f"uploads/{n}" for n in range(30)])
    await desk.clock.advance(26 * HOUR)
    assert await desk.sweep() == 0
    assert await desk.sweep() == 0
    assert all([await desk.stands(uri) for uri in used])


async def test_expired_uploads_come_oldest_first_and_strangers_are_left_alone(executor: Executor):
    desk = Desk(executor)
    for name in ("0", "notes.txt", "zzzz"):
        await desk.store.create(keys.upload("t", name), b"")
    used = [await desk.upload() for _ in range(3)]
    before_us = desk.clock.now_us() - 60_000_000
    found = [key async for key in expired_uploads(desk.store, "t", before_us)]
    assert found == [f"topics/t/{uri}" for uri in used[:2]]
    await desk.clock.advance(26 * HOUR)
    assert await desk.sweep() == 3
    assert await exists(desk.store, keys.upload("t", "notes.txt"))


async def test_a_damaged_file_that_is_given_up_keeps_no_upload(executor: Executor):
    desk, index = Desk(executor), SegmentIndex()
    used = [await desk.upload() for _ in range(2)]
    for uri in used:
        await append(desk.store, REF, index, 2, uris=[uri])
    key = REF.key(FileName(2))
    await desk.store.delete([key])
    await desk.store.create(key, b"not Parquet at all")
    await desk.clock.advance(26 * HOUR)
    index.lose(index.files[1], damaged=True)
    with pytest.raises(DataMissing):
        await desk.sweep(indexes={3: index})
    assert index.give_up(GivenUpRanges((GivenUpRange(2, 4),)))
    assert await desk.sweep(indexes={3: index}) == 1
    assert [await desk.stands(uri) for uri in used] == [True, False]
