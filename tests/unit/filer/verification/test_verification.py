"""What `mq verify` stands on: the condition of one file, and of the chain of a segment's files."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from filer.format.digests import DIGITS
from filer.format.segment_file import Footer, SegmentFileEncoder
from filer.keys import FileName
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef
from filer.stores.memory_store import MemoryStore
from filer.upkeep.rollup import roll_up
from filer.verification.chain_check import ChainBreak, ChainVerdict, Link, check_chain
from filer.verification.file_check import check_file
from filer.verification.stored_files import verify_file
from tests.support.instant_clock import InstantClock
from tests.support.topic.damage import damaged
from tests.support.topic.segment_files import append, rows

REF = SegmentRef("t", 3)
FIRST = FileName(0)
KEY = REF.key(FIRST)


def file_of(
    *, checks: bool = True, base: int = 0, count: int = 20, segment: int = 3, stated: int | None = None
) -> bytes:
    encoder = SegmentFileEncoder(REF.schema.log, compression="lz4", checks=checks)
    for first in range(base, base + count, 10):
        encoder.add_row_group(rows(REF, first, min(10, base + count - first)))
    footer = Footer(segment, base, count if stated is None else stated, "b/1", 1, 2)
    return encoder.finish(footer).to_pybytes()


async def verified(data: bytes, name: FileName = FIRST) -> tuple[str, str]:
    """The condition of the file, which is the same read whole and read from a store."""
    store = MemoryStore()
    await store.create(REF.key(name), data)
    verdict, _ = await verify_file(store, REF, name)
    assert verdict == check_file(REF, name, data)
    return verdict.condition, verdict.why


async def test_whole_files_are_ok_and_those_without_digests_unchecked() -> None:
    assert await verified(file_of()) == ("ok", "")
    assert await verified(file_of(checks=False)) == ("unchecked", "")


async def test_damage_anywhere_is_told() -> None:
    for name, bad in damaged(file_of(), step=5):
        assert (await verified(bad))[0] == "damaged", name


async def test_a_file_without_digests_that_is_cut_is_damaged() -> None:
    data = file_of(checks=False)
    assert all([(await verified(data[:at]))[0] == "damaged" for at in range(0, len(data), 50)])


@pytest.mark.parametrize(
    ("data", "name", "why"),
    [
        (file_of(base=20), FileName(0), "it is another file"),
        (file_of(segment=4), FileName(0), "it is another file"),
        (file_of(stated=21), FileName(0), "it has 20 messages, and its footer says 21"),
        (file_of(), FileName(0, 30), "its footer says that it ends at 20"),
        (file_of(count=0), FileName(0), "it has no messages and is no seal"),
        (b"", FileName(0), "not a whole Parquet file"),
    ],
)
async def test_a_file_that_is_not_what_its_name_says(data: bytes, name: FileName, why: str) -> None:
    condition, said = await verified(data, name)
    assert condition == "damaged" and why in said


async def test_a_missing_file() -> None:
    verdict, link = await verify_file(MemoryStore(), REF, FileName(0))
    assert (verdict.key, verdict.condition, link) == (KEY, "missing", None)
    assert not verdict.is_sound


async def links_of(store: MemoryStore, index: SegmentIndex) -> list[Link]:
    found = [await verify_file(store, REF, facts.name) for facts in index.files]
    assert all(verdict.condition == "ok" for verdict, _ in found)
    return [link for _, link in found if link is not None]


async def a_segment(files: int = 6, padding: bytes = b"") -> tuple[MemoryStore, SegmentIndex]:
    store, index = MemoryStore(), SegmentIndex()
    for _ in range(files):
        await append(store, REF, index, 10, padding=padding)
    return store, index


async def test_the_chain_of_a_segment_closes_also_over_roll_ups() -> None:
    store, index = await a_segment()
    assert check_chain(await links_of(store, index)) == ChainVerdict(closed=5)
    with ThreadPoolExecutor(1) as executor:
        for first, last in ((1, 4), (1, 3)):
            rolled = await roll_up(store, InstantClock(), REF, index.files[first:last], broker="b", executor=executor)
            index.supersede(rolled, 1)
    assert len(index.files) == 2 + 1 and index.files[1].name == FileName(10, 50)
    assert check_chain(await links_of(store, index)) == ChainVerdict(closed=2)


async def test_a_file_that_was_exchanged_for_another_whole_one_is_told() -> None:
    store, index = await a_segment()
    other, _ = await a_segment(padding=b"another")
    links = await links_of(store, index)
    links[2:3] = (await links_of(other, index))[2:3]
    first, second, third = (index.files[n].name for n in (1, 2, 3))
    assert check_chain(links) == ChainVerdict((ChainBreak(first, second), ChainBreak(second, third)), closed=3)


async def test_neighbours_that_say_nothing_are_unchecked() -> None:
    one, two = Link(FileName(0), 10, "", ""), Link(FileName(10), 20, "", "b" * DIGITS)
    three, beyond = Link(FileName(20), 30, "b" * DIGITS, "c" * DIGITS), Link(FileName(40), 50, "d" * DIGITS, "")
    assert check_chain([one, two, three, beyond]) == ChainVerdict(closed=1, unchecked=2)
    assert check_chain([]) == ChainVerdict()
