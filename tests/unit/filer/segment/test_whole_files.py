"""Small files are decoded together: how often threads are asked, up to which size, and who is told of a damaged one."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from filer.errors import CorruptFile
from filer.segment.read_room import NoRoom
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef
from filer.segment.segment_reader import SegmentReader
from filer.segment.whole_files import Fresh, TooLarge, WholeFile, decode_up_to
from filer.stores.memory_store import MemoryStore
from tests.support.topic.segment_files import append

REF = SegmentRef("t", 3)
FILES, MESSAGES = 8, 5
KIB = 1024


class Counting(Executor):
    """Does at once what it is given, and counts."""

    def __init__(self) -> None:
        self.asked = 0

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        self.asked += 1
        done: Future[Any] = Future()
        try:
            done.set_result(work(*arguments, **named))
        except Exception as error:
            done.set_exception(error)
        return done


class Room:
    """Room for so many bytes; `taken` says how much was asked for each time."""

    def __init__(self, most_bytes: int) -> None:
        self.left_bytes = most_bytes
        self.taken: list[int] = []

    async def take(self, size_bytes: int) -> bool:
        self.taken.append(size_bytes)
        self.left_bytes -= size_bytes
        return self.left_bytes >= 0

    async def enlarge(self) -> bool:
        return False


async def filled(padding: bytes = b"", files: int = FILES) -> tuple[MemoryStore, SegmentIndex]:
    store, index = MemoryStore(), SegmentIndex()
    for _ in range(files):
        await append(store, REF, index, MESSAGES, padding=padding)
    return store, index


async def damage(store: MemoryStore, index: SegmentIndex, number: int) -> None:
    key = REF.key(index.files[number].name)
    data = bytearray((await store.get(key)).data)
    data[len(data) // 3] ^= 1
    await store.delete([key])
    await store.create(key, bytes(data))


def offsets(table: Any) -> list[int]:
    found: list[int] = table["_offset"].to_pylist()
    return found


async def test_what_has_been_fetched_is_decoded_at_once() -> None:
    store, index = await filled()
    decoder = Counting()
    reader = SegmentReader(store, decoder, cache_bytes=1 << 20)
    everything = list(range(FILES * MESSAGES))
    assert offsets(await reader.read(REF, index, 0, max_rows=1000, max_bytes=1 << 20)) == everything
    assert decoder.asked < FILES / 2
    # From the cache now, each of them.
    asked = decoder.asked
    for first in everything:
        assert offsets(await reader.read(REF, index, first, max_rows=1000, max_bytes=1 << 20)) == everything[first:]
    assert decoder.asked == asked


async def test_no_more_is_decoded_than_there_is_room_for() -> None:
    # Zeros: on the store they take a hundredth of it.
    store, index = await filled(b"\0" * 100 * KIB)
    room = Room(3 * KIB * KIB)
    reader = SegmentReader(store, Counting(), cache_bytes=0)
    table = await reader.read(REF, index, 0, max_rows=1000, max_bytes=1 << 30, room=room)
    assert 1 <= table.num_rows // MESSAGES <= 6 and table.nbytes <= 3 * KIB * KIB
    with pytest.raises(NoRoom):
        await reader.read(REF, index, 0, max_rows=1000, max_bytes=1 << 30, room=Room(100))


@pytest.mark.parametrize("number", [0, 3, FILES - 1])
async def test_a_damaged_file_is_told_to_whoever_comes_to_it(number: int) -> None:
    store, index = await filled()
    await damage(store, index, number)
    reader = SegmentReader(store, Counting(), cache_bytes=1 << 20)
    damaged = index.files[number]
    if number:
        table = await reader.read(REF, index, 0, max_rows=1000, max_bytes=1 << 20)
        assert offsets(table) == list(range(damaged.start))
    with pytest.raises(CorruptFile) as told:
        await reader.read(REF, index, damaged.start, max_rows=1000, max_bytes=1 << 20)
    assert (told.value.key, told.value.offset, told.value.next_offset) == (
        REF.key(damaged.name),
        damaged.start,
        damaged.end,
    )
    table = await reader.read(REF, index, damaged.end, max_rows=1000, max_bytes=1 << 20) if number < FILES - 1 else None
    assert table is None or offsets(table) == list(range(damaged.end, index.end))


async def test_a_page_ends_with_its_bounds_however_much_was_decoded() -> None:
    store, index = await filled()
    reader = SegmentReader(store, Counting(), cache_bytes=0)
    for rows in (1, MESSAGES - 1, MESSAGES, MESSAGES + 2, 3 * MESSAGES + 1):
        assert offsets(await reader.read(REF, index, 2, max_rows=rows, max_bytes=1 << 20)) == list(range(2, 2 + rows))


async def test_the_first_is_decoded_or_told_to_be_too_large_and_others_only_beside_it() -> None:
    store, index = await filled(b"x" * 10 * KIB)
    whole = [
        WholeFile(REF.key(facts.name), (REF.segment, facts.base), (await store.get(REF.key(facts.name))).data)
        for facts in index.files
    ]
    [first] = decode_up_to(whole, 1)
    assert isinstance(first, TooLarge) and first.size_bytes > MESSAGES * 10 * KIB
    for count in (1, 2, FILES):
        outcomes = decode_up_to(whole, count * first.size_bytes + KIB)
        assert len(outcomes) == count and all(isinstance(each, Fresh) for each in outcomes)
    other = whole[0]._replace(place=(REF.segment, 1))
    [told] = decode_up_to([other, *whole[1:]], 1 << 30)
    assert isinstance(told, CorruptFile) and told.key == other.key
    assert len(decode_up_to([whole[0], other, *whole[1:]], 1 << 30)) == 2


async def test_a_reader_who_goes_away_leaves_no_fetch_behind() -> None:
    store, index = await filled()
    reader = SegmentReader(store, Counting(), cache_bytes=0)
    before = len(asyncio.all_tasks())
    for turns in range(12):
        reading = asyncio.create_task(reader.read(REF, index, 0, max_rows=1000, max_bytes=1 << 20))
        for _ in range(turns):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert len(asyncio.all_tasks()) == before
