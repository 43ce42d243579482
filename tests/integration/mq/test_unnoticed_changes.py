"""Files that go, rot, or are written anew while no reader meets them: upkeep and listings find out by themselves."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from filer import keys
from filer.clock import SystemClock
from filer.errors import ObjectNotFound
from filer.format.segment_file import Footer, decode, encode
from filer.keys import FileName
from filer.segment.segment_log import SegmentRef
from filer.segment.snapshot_format import to_snapshot
from filer.stores.memory_store import MemoryStore
from filer.topic.incarnation import Incarnation
from filer.upkeep.rollup import NEWEST_KEPT
from tests.support.broker.http_broker import HttpBroker, http_broker

FILES = 12
REF = SegmentRef("t", 0)
ROLLED = REF.key(FileName(0, FILES - 1))


@asynccontextmanager
async def broker_on(store: MemoryStore, *, goes_on: bool = False) -> AsyncIterator[HttpBroker]:
    """A broker whose rounds only the test begins. One that does not go on is a new incarnation, as after a kill."""
    settings: dict[str, Any] = {"maintenance_interval": 3600.0, "rollup_age": 0.0, "grace": 60}
    clock = SystemClock()
    incarnation = await Incarnation.find(store, clock, "broker") if goes_on else None
    async with http_broker(store, clock=clock, incarnation=incarnation, **settings) as broker:
        yield broker


@asynccontextmanager
async def next_broker(store: MemoryStore) -> AsyncIterator[HttpBroker]:
    """A broker that has sealed what the one before left."""
    async with broker_on(store) as broker:
        await (await broker.broker.topics.topic("t")).take_up([0])
        yield broker


async def publish(broker: HttpBroker, count: int) -> None:
    for number in range(count):
        (await broker.client.post("/v1/topics/t/messages", content=b"%d" % number)).raise_for_status()


@pytest.fixture
async def sealed() -> AsyncIterator[tuple[MemoryStore, HttpBroker]]:
    """A segment of a former life, all of which but its seal is in one roll-up, and the next broker."""
    store = MemoryStore()
    async with broker_on(store) as broker:
        (await broker.client.put("/v1/topics/t", json={"segments": 1})).raise_for_status()
        await publish(broker, FILES - 1)
    async with next_broker(store) as broker:
        await broker.broker.maintenance.round()
        assert await sizes(broker) == {ROLLED: (await store.head(ROLLED)).size_bytes}
        yield store, broker


async def sizes(broker: HttpBroker) -> dict[str, int]:
    """What readers of files are told, by key."""
    listed = (await broker.client.get("/v1/topics/t/files")).raise_for_status().json()["files"]
    return {f"topics/{each['uri'].partition('/topics/')[2]}": each["bytes"] for each in listed}


async def lost(broker: HttpBroker) -> list[tuple[str, str]]:
    """The objects that the topic's description names."""
    shown = (await broker.client.get("/v1/topics/t")).raise_for_status().json()["damaged"]
    return [(each["key"], each["what"]) for each in shown]


async def put(store: MemoryStore, key: str, data: bytes) -> None:
    await store.delete([key])
    await store.create(key, data)


async def test_a_roll_up_that_was_written_anew_is_listed_with_its_size(
    sealed: tuple[MemoryStore, HttpBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, broker = sealed
    monkeypatch.setattr("mq.http.endpoints.files.LISTING_AGE_SHARE", 0.0)
    table = decode((await store.get(ROLLED)).data)
    anew = bytes(encode(REF.schema.in_file(table), Footer(0, 0, FILES - 1, "another broker" * 50, 1, 2)))
    await put(store, ROLLED, anew)
    assert await sizes(broker) == {ROLLED: len(anew)}
    await put(store, ROLLED, anew[:-1])
    assert (await broker.client.get("/v1/topics/t/files")).json()["key"] == ROLLED
    await put(store, ROLLED, anew)
    async with asyncio.timeout(20):
        while await lost(broker):
            await broker.client.get("/v1/topics/t/files")
            await asyncio.sleep(0.05)
    assert await sizes(broker) == {ROLLED: len(anew)}


async def test_upkeep_tells_of_a_file_that_is_gone_before_any_reader_meets_it(
    sealed: tuple[MemoryStore, HttpBroker],
) -> None:
    store, broker = sealed
    data = (await store.get(ROLLED)).data
    await store.delete([ROLLED, *[REF.key(FileName(base)) for base in range(FILES - 1)]])
    for _ in range(3):
        broker.broker.maintenance.invalidate("t")
        await broker.broker.maintenance.round()
    assert await lost(broker) == [(ROLLED, "missing")]
    await store.create(ROLLED, data)
    async with asyncio.timeout(20):
        while (await broker.client.get("/v1/topics/t/files")).status_code != 200:
            await asyncio.sleep(0.05)
    assert await lost(broker) == []


async def test_in_a_segment_of_its_own_at_once(sealed: tuple[MemoryStore, HttpBroker]) -> None:
    store, broker = sealed
    await publish(broker, 9)
    await broker.broker.maintenance.round()
    [first, *_] = [name for name in await sizes(broker) if "segment=1/" in name]
    originals = [keys.segment_file("t", 1, FileName(base)) for base in range(5)]
    await store.delete([first, *originals])
    broker.broker.maintenance.invalidate("t")
    await broker.broker.maintenance.round()
    assert await lost(broker) == [(first, "missing")]


async def test_upkeep_tells_of_a_damaged_file_and_goes_on_around_it() -> None:
    store = MemoryStore()
    async with broker_on(store) as broker:
        (await broker.client.put("/v1/topics/t", json={"segments": 1})).raise_for_status()
        await publish(broker, 2 * FILES)
    async with next_broker(store) as broker:
        rotten = REF.key(FileName(FILES))
        data = bytearray((await store.get(rotten)).data)
        data[8] ^= 1
        await put(store, rotten, bytes(data))
        for _ in range(2):
            await broker.broker.maintenance.round()
        assert await lost(broker) == [(rotten, "damaged")]
        names = [info.key async for info in store.list(keys.segment_folder("t", 0))]
        assert {REF.key(FileName(0, FILES)), REF.key(FileName(FILES + 1, 2 * FILES))} <= set(names)


@pytest.mark.parametrize("by", ["a reader", "upkeep"])
@pytest.mark.parametrize("left", ["sealed", "open", "by a clean stop"])
async def test_an_older_snapshot_that_names_files_that_are_gone_is_rebuilt(by: str, left: str) -> None:
    """The roll-up that replaced them came later, and they were deleted a grace period after that."""
    store, snapshot, goes_on = MemoryStore(), keys.index_snapshot("t", 0), left == "by a clean stop"
    async with broker_on(store, goes_on=goes_on) as broker:
        (await broker.client.put("/v1/topics/t", json={"segments": 1})).raise_for_status()
        await publish(broker, FILES - 1)
    async with next_broker(store) if left == "sealed" else broker_on(store, goes_on=goes_on) as broker:
        runtime = await broker.broker.topics.topic("t")
        older = to_snapshot(await runtime.reads.index(0))
        await broker.broker.maintenance.round()
        files = list(await sizes(broker))
        assert len(files) == (1 if left == "sealed" else 1 + NEWEST_KEPT)
    rolled_up = FileName.parse(files[0].rpartition("/")[2])
    assert rolled_up is not None and rolled_up.end is not None
    await store.delete([REF.key(FileName(base)) for base in range(min(rolled_up.end, FILES - 1))])
    with contextlib.suppress(ObjectNotFound):
        await store.delete([snapshot])
    await store.create(snapshot, older)
    async with broker_on(store, goes_on=goes_on) as broker:
        await broker.broker.topics.topic("t")
        if by == "upkeep":
            for _ in range(3):
                broker.broker.maintenance.invalidate("t")
                await broker.broker.maintenance.round()
            # Of an open segment the next one is due later. Until then it is found to be an older one at each start.
            assert left != "sealed" or (await store.get(snapshot)).data != older
        else:
            if goes_on:
                await publish(broker, 1)
        answer = await broker.client.get("/v1/topics/t/segments/0/messages")
        published = FILES - 1 + (goes_on and by == "a reader")
        assert len(answer.raise_for_status().json()["messages"]) == published
        assert (await sizes(broker)).keys() >= set(files)
        assert await lost(broker) == []
