"""One damaged object keeps a broker from nothing but the messages in it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from filer.clock import SystemClock
from filer.errors import CorruptFile, DataMissing
from filer.segment.next_file import Single
from filer.slots import slot_of
from filer.stores.local.local_store import LocalStore
from leader.membership.coordinator import InProcessCoordinator
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.topic.topic_reader import TopicReader

KEYS = {slot_of(b"%d" % n) < 32_768: b"%d" % n for n in range(20)}
"""A key in each half of the slots; True: in the first half."""


async def broker_on(folder: Path) -> Broker:
    clock = SystemClock()
    broker = Broker(LocalStore(folder, clock=clock), clock, InProcessCoordinator(), BrokerSettings(data=folder))
    await broker.start("http://127.0.0.1:1")
    return broker


async def publish(broker: Broker, topic: str, value: bytes, *, first_half: bool = True) -> int:
    """One message; the segment it went to."""
    runtime = await broker.topics.topic(topic)
    single = Single(KEYS[first_half], value, None, None)
    return (await runtime.publisher.publish_single(single, len(value))).segment


async def values(reader: TopicReader) -> list[bytes]:
    """All messages up to the first that cannot be read."""
    found: list[bytes] = []
    positions = reader.earliest()
    while True:
        runs, positions = await reader.read(positions, max_rows=10, max_bytes=2**20)
        if not runs:
            return found
        found += [value for run in runs for value in run.table["value"].to_pylist()]


@pytest.fixture
async def left_behind(tmp_path: Path) -> AsyncIterator[Path]:
    """Topics that an earlier life has left: of one segment each, and of two."""
    broker = await broker_on(tmp_path)
    for name, segments in (("good", 1), ("bad", 1), ("wide", 2)):
        await broker.administration.put(name, {"min_segments": segments})
        for first_half in (True, False):
            await publish(broker, name, b"kept", first_half=first_half)
            await publish(broker, name, b"more", first_half=first_half)
    await broker.close()
    yield tmp_path


def files_of(folder: Path, topic: str, segment: int) -> list[Path]:
    return sorted((folder / "topics" / topic / "segments" / f"segment={segment}").glob("*.parquet"))


async def test_a_damaged_topic_leaves_the_others_served(left_behind: Path) -> None:
    for damaged in files_of(left_behind, "bad", 0):
        damaged.write_bytes(b"not Parquet at all")
    again = await broker_on(left_behind)
    try:
        assert await publish(again, "good", b"new") == 1
        with pytest.raises(CorruptFile, match="unknown where the segment ends"):
            await publish(again, "bad", b"no")
        assert await values(await again.reader("good")) == [b"kept", b"more", b"kept", b"more", b"new"]
        with pytest.raises(CorruptFile):
            await values(await again.reader("bad"))
    finally:
        await again.close()


async def test_a_segment_that_cannot_be_sealed_keeps_no_other_from_having_a_successor(left_behind: Path) -> None:
    newest = files_of(left_behind, "wide", 0)[-1]
    whole = newest.read_bytes()
    newest.write_bytes(whole[:100])
    again = await broker_on(left_behind)
    try:
        assert await publish(again, "wide", b"new", first_half=False) > 1
        with pytest.raises(CorruptFile) as told:
            await publish(again, "wide", b"no", first_half=True)
        assert told.value.key is not None and told.value.key.endswith(newest.name)
        runtime = await again.topics.topic("wide")
        assert [segment.state for segment in runtime.state.segments if segment.id < 2] == ["open", "sealed"]
        assert [(each["offset"], each["what"]) for each in runtime.lost.shown()] == [(1, "damaged")]
        newest.write_bytes(whole)
        async with asyncio.timeout(20):
            while runtime.state.segments[0].state == "open":
                await asyncio.sleep(0.05)
        assert await publish(again, "wide", b"new", first_half=True) > 1
        assert sorted(await values(await again.reader("wide"))) == [*[b"kept"] * 2, *[b"more"] * 2, *[b"new"] * 2]
        assert runtime.lost.shown() == []
    finally:
        await again.close()


async def test_a_lost_file_is_told_to_readers_and_heals(left_behind: Path) -> None:
    lost = files_of(left_behind, "good", 0)[1]
    data = lost.read_bytes()
    lost.unlink()
    again = await broker_on(left_behind)
    try:
        reader = await again.reader("good")
        with pytest.raises(DataMissing) as told:
            await values(reader)
        assert told.value.key is not None and told.value.key.endswith(lost.name)
        assert (told.value.offset, told.value.next_offset) == (1, 2)
        assert told.value.next_marker is not None
        run = await reader.read_segment(0, 2, max_rows=10, max_bytes=2**20)
        assert run.table["value"].to_pylist() == [b"kept", b"more"]
        [position] = (await reader.at_time(0)).items()
        assert position == (0, 0)
        lost.write_bytes(data)
        async with asyncio.timeout(20):
            while (await again.topics.topic("good")).lost.shown():
                await asyncio.sleep(0.05)
                await (await again.topics.topic("good")).reads.index(0)
        assert await values(reader) == [b"kept", b"more", b"kept", b"more"]
    finally:
        await again.close()


async def test_a_file_that_goes_after_its_name_was_read_is_told(left_behind: Path) -> None:
    """No name on the store shows the loss. What comes before it is read, and nothing is passed over."""
    broker = await broker_on(left_behind)
    try:
        runtime = await broker.topics.topic("good")
        assert (await runtime.reads.index(0)).end == 4
        lost = files_of(left_behind, "good", 0)[2]
        data = lost.read_bytes()
        lost.unlink()
        reader = await broker.reader("good")
        runs, positions = await reader.read(reader.earliest(), max_rows=10, max_bytes=2**20)
        assert [value for run in runs for value in run.table["value"].to_pylist()] == [b"kept", b"more"]
        assert positions == {0: 2}
        with pytest.raises(DataMissing) as told:
            await reader.read(positions, max_rows=10, max_bytes=2**20)
        assert (told.value.offset, told.value.next_offset) == (2, 3)
        lost.write_bytes(data)
        async with asyncio.timeout(20):
            while runtime.lost.shown():
                await asyncio.sleep(0.05)
                await runtime.reads.index(0)
        assert await values(reader) == [b"kept", b"more", b"kept", b"more"]
    finally:
        await broker.close()
