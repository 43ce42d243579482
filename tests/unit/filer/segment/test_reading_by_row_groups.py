"""A large file is read by row groups: how often its bytes are fetched and decoded, and by how many at a time."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from filer.errors import CorruptFile
from filer.format.segment_file import WHOLE_FILE_BYTES, Footer, SegmentFileEncoder, read_footer
from filer.keys import FileName
from filer.segment.live_files import FileFacts
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef
from filer.segment.segment_reader import SegmentReader
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Fetched
from tests.support.topic.segment_files import START_US, rows

MIB = 1024 * 1024
REF = SegmentRef("t", 3)
GROUPS, MESSAGES_EACH, PADDING = 3, 6, os.urandom(MIB)
MESSAGES = GROUPS * MESSAGES_EACH
READERS = 12


class Counting(ForwardingStore):
    """Keeps what was asked for, and lets all who ask go on at once, after they have all asked."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.asked: list[tuple[int, int | None]] = []

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        self.asked.append((start, stop))
        await asyncio.sleep(0)
        return await super().get(key, start=start, stop=stop)


@pytest.fixture(scope="module")
def large_file() -> tuple[MemoryStore, SegmentIndex]:
    encoder = SegmentFileEncoder(REF.schema.log, compression="lz4")
    for base in range(0, MESSAGES, MESSAGES_EACH):
        encoder.add_row_group(rows(REF, base, MESSAGES_EACH, padding=PADDING))
    last_us = START_US + 1000 * (MESSAGES - 1)
    data = encoder.finish(Footer(REF.segment, 0, MESSAGES, "b/1", START_US, last_us)).to_pybytes()
    assert len(data) > WHOLE_FILE_BYTES
    store, index, name = MemoryStore(), SegmentIndex(), FileName(0)
    asyncio.run(store.create(REF.key(name), data))
    index.append(FileFacts(name, MESSAGES, len(data), START_US, last_us, 0, False, 0), link=read_footer(data).link)
    return store, index


async def offsets(reader: SegmentReader, index: SegmentIndex, offset: int) -> list[int]:
    table = await reader.read(REF, index, offset, max_rows=2, max_bytes=64 * MIB)
    found: list[int] = table["_offset"].to_pylist()
    return found


async def test_who_reads_page_by_page_needs_the_footer_and_each_row_group_once(
    large_file: tuple[MemoryStore, SegmentIndex],
) -> None:
    store, index = Counting(large_file[0]), large_file[1]
    with ThreadPoolExecutor(1) as decoder:
        reader = SegmentReader(store, decoder, cache_bytes=64 * MIB)
        for offset in range(0, MESSAGES, 2):
            assert await offsets(reader, index, offset) == [offset, offset + 1]
    assert len(store.asked) == len(set(store.asked)) == GROUPS + 1


@pytest.mark.parametrize("cache_bytes", [64 * MIB, 0])
async def test_what_many_ask_for_at_once_is_decoded_once_if_there_is_room_for_it(
    large_file: tuple[MemoryStore, SegmentIndex], cache_bytes: int
) -> None:
    store, index = Counting(large_file[0]), large_file[1]
    with ThreadPoolExecutor(2) as decoder:
        reader = SegmentReader(store, decoder, cache_bytes=cache_bytes)
        assert await asyncio.gather(*(offsets(reader, index, 0) for _ in range(READERS))) == [[0, 1]] * READERS
    groups = sum(start >= 0 for start, _ in store.asked)
    assert groups == (1 if cache_bytes else READERS)


async def test_those_who_wait_go_on_when_the_one_who_decodes_is_cancelled_or_fails(
    large_file: tuple[MemoryStore, SegmentIndex],
) -> None:
    store, index = Counting(large_file[0]), large_file[1]
    with ThreadPoolExecutor(2) as decoder:
        reader = SegmentReader(store, decoder, cache_bytes=64 * MIB)
        await offsets(reader, index, MESSAGES - 2)
        readers = [asyncio.create_task(offsets(reader, index, 0)) for _ in range(3)]
        asked = len(store.asked)
        while len(store.asked) == asked:
            await asyncio.sleep(0)
        readers[0].cancel()
        assert await asyncio.gather(*readers[1:]) == [[0, 1]] * 2
        assert readers[0].cancelled()


async def test_damage_is_told_to_each_of_many_who_ask_at_once(large_file: tuple[MemoryStore, SegmentIndex]) -> None:
    index, damaged = large_file[1], MemoryStore()
    key = REF.key(index.files[0].name)
    data = bytearray((await large_file[0].get(key)).data)
    data[MIB] ^= 1
    await damaged.create(key, bytes(data))
    with ThreadPoolExecutor(2) as decoder:
        reader = SegmentReader(damaged, decoder, cache_bytes=64 * MIB)
        found = await asyncio.gather(*(offsets(reader, index, n % 3) for n in range(READERS)), return_exceptions=True)
    assert [type(each) for each in found] == [CorruptFile] * READERS
    assert [each.offset for each in found if isinstance(each, CorruptFile)] == [n % 3 for n in range(READERS)]
