"""Each file of a segment names the one before it, whoever wrote that, and readers notice damage before they decode."""

from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from filer.clock import ManualClock
from filer.errors import CorruptFile
from filer.format.segment_file import Footer, SegmentFileEncoder
from filer.keys import FileName
from filer.segment.live_files import FileFacts
from filer.segment.next_file import Accepted
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, list_names, recover_index, seal_at_end
from filer.segment.segment_reader import SegmentReader
from filer.segment.snapshot_format import from_snapshot, to_snapshot
from filer.segment.take_over import flush_and_seal
from filer.stores.memory_store import MemoryStore
from filer.upkeep.rollup import check_rollup, roll_up
from filer.verification.chain_check import ChainVerdict, check_chain
from filer.verification.stored_files import verify_file
from pipeline.topic_files import LiveFile, batches_of
from tests.support.segment.segment_owners import GRACE_SECONDS, owner, single
from tests.support.topic.damage import damaged, with_bit_flipped
from tests.support.topic.segment_files import append, check_readable, rows

REF = SegmentRef("t", 3)


async def write(store: MemoryStore, index: SegmentIndex, files: int, *, seal: bool = False) -> None:
    writer = owner(store, ManualClock(), REF, index)
    for _ in range(files):
        await writer.append(single(b"value"), 5)
    if seal:
        await writer.seal()
    await writer.close()


async def chain_of(store: MemoryStore) -> ChainVerdict:
    found = [await verify_file(store, REF, name) for name in await list_names(store, REF)]
    assert {verdict.condition for verdict, _ in found} == {"ok"}
    return check_chain(link for _, link in found if link is not None)


async def test_the_files_of_one_owner_and_of_the_next_and_the_seal() -> None:
    store = MemoryStore()
    await write(store, SegmentIndex(), 3)
    await write(store, await recover_index(store, REF), 2)
    assert await chain_of(store) == ChainVerdict(closed=4)
    await seal_at_end(store, ManualClock(), REF, start_offset=0, writer="b", grace_seconds=GRACE_SECONDS)
    assert await chain_of(store) == ChainVerdict(closed=5)


async def test_an_owners_seal() -> None:
    store = MemoryStore()
    await write(store, SegmentIndex(), 3, seal=True)
    assert await chain_of(store) == ChainVerdict(closed=3)


async def test_the_files_of_a_follower_that_takes_over() -> None:
    store = MemoryStore()
    await write(store, SegmentIndex(), 2)
    copy = [Accepted(single(b"value"), offset, 1, 5, 1) for offset in range(4)]
    await flush_and_seal(store, ManualClock(), REF, copy, start_offset=0, writer="b", grace_seconds=GRACE_SECONDS)
    assert await chain_of(store) == ChainVerdict(closed=3)


async def test_a_snapshot_keeps_the_link_and_one_of_an_earlier_version_has_none() -> None:
    store, index = MemoryStore(), SegmentIndex()
    await write(store, index, 3)
    assert index.link and from_snapshot(to_snapshot(index), 0).link == index.link
    assert index.copy().link == index.link
    index.link = ""
    await write(store, from_snapshot(to_snapshot(index), 0), 2)
    assert await chain_of(store) == ChainVerdict(closed=3, unchecked=1)


async def test_a_recovery_behind_a_roll_up_has_the_link_of_its_last_original() -> None:
    store, index = MemoryStore(), SegmentIndex()
    await write(store, index, 6)
    with ThreadPoolExecutor(1) as executor:
        await roll_up(store, ManualClock(), REF, index.files, broker="b", executor=executor)
    await store.delete([REF.key(facts.name) for facts in index.files])
    recovered = await recover_index(store, REF)
    assert (recovered.files[0].name, recovered.link) == (FileName(0, 6), index.link)
    await write(store, recovered, 2)
    assert await chain_of(store) == ChainVerdict(closed=2)


async def test_a_run_with_a_damaged_file_is_not_rolled_up() -> None:
    """Nothing is written, nothing is deleted, and the error names the file."""
    store, index = MemoryStore(), SegmentIndex()
    for _ in range(4):
        await append(store, REF, index, 10)
    key = REF.key(index.files[2].name)
    good = (await store.get(key)).data
    with ThreadPoolExecutor(1) as executor:
        for _, bad in damaged(good, step=97):
            await put_in_place(store, key, bad)
            with pytest.raises(CorruptFile, match=key) as raised:
                await roll_up(store, ManualClock(), REF, index.files, broker="b", executor=executor)
            assert raised.value.key == key
            assert await list_names(store, REF) == [facts.name for facts in index.files]
        await put_in_place(store, key, good)
        index.supersede(await roll_up(store, ManualClock(), REF, index.files, broker="b", executor=executor), 1)
    await check_readable(store, REF, range(40))


@pytest.mark.parametrize("size", ["small", "large"])
async def test_a_damaged_roll_up_is_not_adopted_and_not_read(size: str) -> None:
    """A large one is read by row groups."""
    store = MemoryStore()
    name, key = FileName(0, 40), REF.key(FileName(0, 40))
    data = rolled_up(padding=bytes(range(256)) * 2000 if size == "large" else b"")
    facts = FileFacts(name, 40, len(data), 1, 2, start=0)
    index = SegmentIndex()
    index.append(facts)
    with ThreadPoolExecutor(1) as executor:
        for at in {0, 1, 2, 3} if size == "small" else set():
            await put_in_place(store, key, with_bit_flipped(data, at * 8))
            await assert_refused(store, index, key, executor)
        for at in range(4, len(data), len(data) // 40):
            await put_in_place(store, key, with_bit_flipped(data, at * 8 + at % 8))
            await assert_refused(store, index, key, executor)
        for at in range(0, len(data), len(data) // 20):
            await put_in_place(store, key, data[:at])
            await assert_refused(store, index, key, executor)


async def test_a_whole_file_of_another_place_is_not_read() -> None:
    store, index = MemoryStore(), SegmentIndex()
    for _ in range(2):
        await append(store, REF, index, 10)
    first, second = (REF.key(facts.name) for facts in index.files)
    await put_in_place(store, second, (await store.get(first)).data)
    with ThreadPoolExecutor(1) as executor:
        reader = SegmentReader(store, executor, cache_bytes=0)
        with pytest.raises(CorruptFile, match="it is another file") as raised:
            await reader.read(REF, index, 10, max_rows=10, max_bytes=1000)
    assert raised.value.key == second


async def test_jobs_check_what_they_read() -> None:
    store, index = MemoryStore(), SegmentIndex()
    await append(store, REF, index, 10)
    file = LiveFile(REF, FileName(0), 0, 10, 1, 1)
    data = (await store.get(file.key)).data
    assert sum(batch.num_rows for batch in batches_of(file, data, ["key"])) == 10
    for name, bad in damaged(data, step=3):
        with pytest.raises(CorruptFile) as raised:
            list(batches_of(file, bad, ["key"]))
            raise AssertionError(name)
        assert raised.value.key == file.key


def rolled_up(padding: bytes) -> bytes:
    encoder = SegmentFileEncoder(REF.schema.log, compression="lz4")
    for base in range(0, 40, 10):
        encoder.add_row_group(rows(REF, base, 10, padding=padding))
    first_us, last_us = (rows(REF, offset, 1)["_timestamp"].cast("int64")[0].as_py() for offset in (0, 39))
    return encoder.finish(Footer(3, 0, 40, "b/1", first_us, last_us)).to_pybytes()


async def put_in_place(store: MemoryStore, key: str, data: bytes) -> None:
    await store.delete([key])
    await store.create(key, data)


async def assert_refused(store: MemoryStore, index: SegmentIndex, key: str, executor: Executor) -> None:
    with pytest.raises(CorruptFile, match=key) as raised:
        await check_rollup(store, ManualClock(), REF, FileName(0, 40), executor=executor)
    assert raised.value.key == key
    with pytest.raises(CorruptFile, match=key) as raised:
        await read_all(store, index, executor)
    assert raised.value.key == key


async def read_all(store: MemoryStore, index: SegmentIndex, executor: Executor) -> None:
    reader = SegmentReader(store, executor, cache_bytes=0)
    offset = 0
    while offset < index.end:
        offset += (await reader.read(REF, index, offset, max_rows=100, max_bytes=1)).num_rows
