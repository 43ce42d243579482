"""Damage to the bytes of a record never goes unnoticed, and records from before there were checks are read."""

import asyncio
import json

import orjson
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from filer import keys
from filer.clock import ManualClock
from filer.errors import BraidError, CorruptFile
from filer.segment.segment_index import SegmentIndex
from filer.segment.snapshot_format import from_snapshot, to_snapshot
from filer.stores.memory_store import MemoryStore
from filer.topic.catalogue import Catalogue
from filer.topic.cluster_record import open_cluster
from filer.topic.record_check import checked, with_check
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState
from leader.transitions import new_topic
from tests.support.topic.lineages import lineages

STATE = new_topic("orders", TopicConfig(), 3, lambda index: (f"b{index}", "c"), now_us=1_700_000_000_000_000)
BITS = st.integers(0, 2**62)


def with_flipped_bit(data: bytes, bit: int) -> bytes:
    flipped = bytearray(data)
    flipped[bit // 8 % len(data)] ^= 1 << bit % 8
    return bytes(flipped)


def all_damaged(data: bytes) -> list[bytes]:
    """The data with each single bit flipped, and cut off at each byte."""
    return [*(with_flipped_bit(data, bit) for bit in range(8 * len(data))), *(data[:end] for end in range(len(data)))]


def test_no_flipped_bit_and_no_cut_of_a_topic_goes_unnoticed() -> None:
    for damaged in all_damaged(STATE.to_json()):
        with pytest.raises(CorruptFile):
            TopicState.from_json(damaged)


@given(lineages(), BITS)
@settings(deadline=None)
def test_nor_in_any_other_topic(made: TopicState, bit: int) -> None:
    with pytest.raises(CorruptFile, match="that/key"):
        TopicState.from_json(with_flipped_bit(made.to_json(), bit), key="that/key")


def test_the_check_can_be_computed_without_braidmq() -> None:
    """As docs/file-format.md says."""
    content = json.loads(STATE.to_json())
    check = content.pop("check")
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert xxhash.xxh3_128(canonical).hexdigest() == check


def test_white_space_does_not_count() -> None:
    assert TopicState.from_json(orjson.dumps(orjson.loads(STATE.to_json()))) == STATE


def test_a_record_without_a_check_is_one_of_an_earlier_version() -> None:
    assert TopicState.from_json(STATE.model_dump_json(indent=1).encode()) == STATE


def test_a_check_that_an_older_broker_carried_along_does_not_count() -> None:
    """Such a broker keeps members that it does not know, behind its own."""
    newer = STATE.model_copy(update={"version": 2})
    carried = {**orjson.loads(newer.model_dump_json()), "check": orjson.loads(STATE.to_json())["check"]}
    assert TopicState.from_json(orjson.dumps(carried)) == newer


async def records_with(key: str, data: bytes) -> MemoryStore:
    store = MemoryStore()
    await store.create(key, data)
    return store


def test_no_damage_to_history_goes_unnoticed() -> None:
    left = Segment.model_validate({**STATE.segments[2].model_dump(), "id": 7, "state": "sealed", "end_offset": 5})

    async def data() -> bytes:
        store = MemoryStore()
        await Catalogue(store, ManualClock()).write_history("t", [left])
        return (await store.get(keys.history("t", 7, 7))).data

    async def read(damaged: bytes) -> list[Segment]:
        store = await records_with(keys.history("t", 7, 7), damaged)
        return await Catalogue(store, ManualClock()).read_history("t", after=-1, limit=1)

    async def refused(damaged: bytes) -> bool:
        try:
            await read(damaged)
        except CorruptFile as error:
            return error.key == keys.history("t", 7, 7)
        return False

    async def check() -> None:
        whole = await data()
        assert await read(whole) == [left]
        assert [each for each in all_damaged(whole) if not await refused(each)] == []
        without_check = orjson.dumps(checked(whole, key="", first="segments")[0])
        assert await read(without_check) == [left]

    asyncio.run(check())


@pytest.mark.parametrize("key", [keys.CLUSTER, keys.CLUSTER_SETTINGS])
async def test_no_damage_to_the_clusters_records_goes_unnoticed(key: str) -> None:
    clock, store = ManualClock(), MemoryStore()
    record = await open_cluster(store, clock, "c", grace_seconds=3600)
    stored = {each: (await store.get(each)).data for each in (keys.CLUSTER, keys.CLUSTER_SETTINGS)}

    async def opened(damaged: bytes) -> bool:
        other = MemoryStore()
        for each, data in {**stored, key: damaged}.items():
            await other.create(each, data)
        try:
            return await open_cluster(other, clock, "c", grace_seconds=3600) != record
        except BraidError:
            return False

    assert [each for each in all_damaged(stored[key]) if await opened(each)] == []


def test_no_damage_to_a_snapshot_goes_unnoticed() -> None:
    data = to_snapshot(SegmentIndex(7))
    assert from_snapshot(data, 0).start_offset == 7
    for damaged in all_damaged(data):
        if damaged == data[: -8 - 16]:
            # Cut off exactly at the digest, it is what an earlier version wrote.
            assert from_snapshot(damaged, 0).start_offset == 7
        else:
            with pytest.raises(CorruptFile):
                from_snapshot(damaged, 0)


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{}", b'"check"', b'{"check": 1}', b'{"x": 1, "format": 1}'])
def test_what_is_no_record(data: bytes) -> None:
    with pytest.raises(CorruptFile, match="a/key"):
        checked(data, key="a/key", first="format")


def test_the_check_comes_first() -> None:
    data = with_check(b'{"b": 1.5, "a": "\xc3\xa4"}')
    assert next(iter(orjson.loads(data))) == "check"
    assert checked(data, key="", first="b")[0] == {"b": 1.5, "a": "ä"}
