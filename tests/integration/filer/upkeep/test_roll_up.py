"""One roll-up: what is written holds exactly the run, and nothing that fails does harm."""

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filer.clock import ManualClock, SystemClock
from filer.errors import CorruptFile, DataMissing, ObjectNotFound
from filer.format.schema import MessageSchema
from filer.format.segment_file import ROW_GROUP_BYTES, decode, read_footer
from filer.keys import FileName
from filer.segment.live_files import FileFacts
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, list_names
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Data, Fetched, Store
from filer.upkeep.rollup import check_rollup, roll_up
from tests.support.topic.segment_files import append, check_readable, exists, read_by_index, rows

REF = SegmentRef("t", 3)


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


async def write(store: Store, run: list[FileFacts], executor: Executor, *, ref: SegmentRef = REF) -> FileFacts:
    return await roll_up(store, ManualClock(), ref, run, broker="b", executor=executor)


@pytest.mark.parametrize("key_type", ["binary", "string"])
@pytest.mark.parametrize("value_type", ["binary", "string", "json"])
async def test_it_holds_the_same_rows_under_a_footer_of_its_own(key_type, value_type, executor: Executor):
    ref, store, index = SegmentRef("t", 3, MessageSchema.of(key_type, value_type)), MemoryStore(), SegmentIndex()
    parts = []
    for count in (1, 5, 1, 100):
        uris = ["uploads/a"] if count == 5 else []
        parts.append(rows(ref, index.end, count, uris=uris))
        await append(store, ref, index, count, uris=uris)
    rolled = await write(store, index.files, executor, ref=ref)
    data = (await store.get(ref.key(FileName(0, 107)))).data
    assert decode(data).equals(pa.concat_tables(parts))
    footer = read_footer(data)
    assert (footer.segment, footer.base, footer.end, footer.refs, footer.sealed) == (3, 0, 107, 1, False)
    assert (footer.first_timestamp_us, footer.last_timestamp_us) == (
        index.files[0].first_timestamp_us,
        index.files[-1].last_timestamp_us,
    )
    assert rolled == FileFacts(
        FileName(0, 107), 107, len(data), footer.first_timestamp_us, footer.last_timestamp_us, refs=1
    )
    column = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0)
    assert column.compression == "ZSTD"
    index.supersede(rolled, 1)
    await check_readable(store, ref, range(107))
    assert await read_by_index(store, ref, index) == list(range(107))


async def test_row_groups_are_of_a_size_readers_can_hold(executor: Executor):
    store, index = MemoryStore(), SegmentIndex()
    for _ in range(5):
        await append(store, REF, index, 600, padding=b"x" * 10_000)
    await write(store, index.files, executor)
    metadata = pq.read_metadata(pa.BufferReader((await store.get(REF.key(FileName(0, 3000)))).data))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert len(groups) > 2
    assert all(group.total_byte_size < 2 * ROW_GROUP_BYTES for group in groups)
    assert sum(group.num_rows for group in groups) == 3000


async def test_only_messages_that_count_are_taken(executor: Executor):
    store, index = MemoryStore(), SegmentIndex()
    for _ in range(4):
        await append(store, REF, index, 10)
    left, right = index.files[:3], index.files[1:]
    first, second = await write(store, left, executor), await write(store, right, executor)
    overlapping = SegmentIndex()
    overlapping.append(FileFacts(first.name, 30, first.size_bytes, 1, 1, start=0))
    overlapping.append(FileFacts(second.name, 40, second.size_bytes, 1, 1, start=30))
    whole = await write(store, overlapping.files, executor)
    assert whole.name == FileName(0, 40)
    overlapping.supersede(whole, 1)
    await check_readable(store, REF, range(40))


async def test_an_existing_roll_up_is_used(executor: Executor):
    store, index = MemoryStore(), SegmentIndex()
    for _ in range(3):
        await append(store, REF, index, 10)
    first = await write(store, index.files, executor)
    again = await roll_up(store, ManualClock(seed=9), REF, index.files, broker="other", executor=executor)
    assert again == first
    assert len(await list_names(store, REF)) == 4


async def test_an_incomplete_run_makes_no_roll_up(executor: Executor):
    store, index = MemoryStore(), SegmentIndex()
    for _ in range(3):
        await append(store, REF, index, 10)
    with pytest.raises(CorruptFile, match="ends at 20, not at 30"):
        await write(store, [index.files[0], index.files[2]], executor)
    # By names alone, as a job plans, the first file would reach to the third one.
    with pytest.raises(DataMissing) as told:
        await write(store, [replace(index.files[0], end=20), index.files[2]], executor)
    assert told.value.key == REF.key(FileName(10))
    await store.delete([REF.key(FileName(10))])
    with pytest.raises(ObjectNotFound):
        await write(store, index.files, executor)
    await store.create(REF.key(FileName(10)), b"PAR1 of a kind")
    with pytest.raises(CorruptFile):
        await write(store, index.files, executor)
    assert not [name for name in await list_names(store, REF) if name.rolled]


class FlippingStore(ForwardingStore):
    """Stores another byte than it was given."""

    async def create(self, key: str, data: Data, *, metadata=None) -> None:
        changed = bytearray(data)
        changed[100] ^= 1
        await self.inner.create(key, changed, metadata=metadata)


async def test_a_roll_up_that_is_read_back_differently_is_removed(executor: Executor):
    store, index = MemoryStore(), SegmentIndex()
    for _ in range(3):
        await append(store, REF, index, 10)
    with pytest.raises(CorruptFile, match="was not read back as it was written"):
        await write(FlippingStore(store), index.files, executor)
    assert not await exists(store, REF.key(FileName(0, 30)))
    await check_readable(store, REF, range(30))


async def test_a_file_of_that_name_with_other_messages_is_refused(executor: Executor):
    store, index = MemoryStore(), SegmentIndex()
    for _ in range(3):
        await append(store, REF, index, 10)
    data = (await store.get(REF.key(FileName(10)))).data
    await store.create(REF.key(FileName(0, 30)), data)
    with pytest.raises(CorruptFile):
        await write(store, index.files, executor)
    with pytest.raises(CorruptFile, match="it is another file"):
        await check_rollup(store, ManualClock(), SegmentRef("t", 4), await renamed(store, data), executor=executor)


async def renamed(store: Store, data: bytes) -> FileName:
    name = FileName(10, 20)
    await store.create(SegmentRef("t", 4).key(name), data)
    return name


async def test_a_large_roll_up_is_checked_by_row_groups(executor: Executor):
    """What reads it holds a row group, however large the file is that somebody with more memory wrote."""
    store, index = MemoryStore(), SegmentIndex()
    padding = SystemClock().entropy(40_000)
    for _ in range(3):
        await append(store, REF, index, 200, padding=padding)
    written = await write(store, index.files, executor)
    name = FileName(0, 600)
    watched = LargestGet(store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("filer.upkeep.rollup.WHOLE_FILE_BYTES", 1024)
        found = await check_rollup(watched, ManualClock(), REF, name, executor=executor)
        assert found == written
        assert watched.bytes < written.size_bytes
        data = bytearray((await store.get(REF.key(name))).data)
        data[4:40] = bytes(36)
        damaged = MemoryStore()
        await damaged.create(REF.key(name), bytes(data))
        with pytest.raises(CorruptFile):
            await check_rollup(damaged, ManualClock(), REF, name, executor=executor)


class LargestGet(ForwardingStore):
    """Notes the most bytes that were read at once."""

    bytes = 0

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        fetched = await self.inner.get(key, start=start, stop=stop)
        self.bytes = max(self.bytes, len(fetched.data))
        return fetched
