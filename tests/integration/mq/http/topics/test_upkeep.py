"""What a broker makes of roll-ups that other programs, or other brokers, have written."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from filer.clock import ManualClock
from filer.keys import FileName
from filer.segment.segment_log import SegmentRef, recover_index
from filer.stores.memory_store import MemoryStore
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.segment.upkeeps import upkeep_of

GRACE_SECONDS = 60.0


async def test_it_says_how_many_segments_it_will_look_at() -> None:
    async with http_broker(MemoryStore(), maintenance_interval=3600) as broker:
        await broker.client.put("/v1/topics/t", json={"segments": 3})
        await broker.broker.maintenance.round()
        answer = await broker.client.post("/v1/topics/t/upkeep")
        assert (answer.status_code, answer.json()) == (202, {"topic": "t", "segments": 3})


async def test_a_topic_that_is_not_there_is_not_found() -> None:
    async with http_broker(MemoryStore(), maintenance_interval=3600) as broker:
        check_problem(await broker.client.post("/v1/topics/none/upkeep"), 404, "topic-not-found")


async def test_a_broker_lists_live_files_when_another_one_maintains_the_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other has rolled up and deleted: files that are gone are not listed."""
    store, clock = MemoryStore(), ManualClock()
    async with http_broker(store, clock=clock, maintenance_interval=3600, grace=GRACE_SECONDS) as broker:
        monkeypatch.setattr(broker.broker.maintenance, "is_maintainer", lambda runtime: False)
        await broker.client.put("/v1/topics/t", json={})
        for number in range(6):
            body = {"messages": [{"key": "k", "value": number}]}
            (await broker.client.post("/v1/topics/t/messages", json=body)).raise_for_status()
        (await broker.client.post("/v1/topics/t/segments/0/split")).raise_for_status()
        assert await listed(broker) == [FileName(offset) for offset in range(6)]
        await keep_elsewhere(store, clock)
        assert await listed(broker) == [FileName(0, 6)]


async def listed(broker: HttpBroker) -> list[FileName | None]:
    """The names of segment 0, each of which is there."""
    files = (await broker.client.get("/v1/topics/t/files")).raise_for_status().json()["files"]
    names = [FileName.parse(file["uri"]) for file in files if file["segment"] == 0]
    for name in names:
        assert name is not None
        await broker.broker.store.head(SegmentRef("t", 0).key(name))
    return names


async def keep_elsewhere(store: MemoryStore, clock: ManualClock) -> None:
    """What another broker does: a roll-up, and a grace period later the deletion."""

    ref = SegmentRef("t", 0)
    with ThreadPoolExecutor(1) as executor:
        upkeep = upkeep_of(
            store, clock, ref, await recover_index(store, ref), executor, broker="other", grace_seconds=GRACE_SECONDS,
            rollup_age_seconds=0,
        )  # fmt: skip
        for _ in range(2):
            await upkeep.run(rollup_bytes=1 << 20, start_offset=0)
            await clock.advance(GRACE_SECONDS + 1)
        await upkeep.run(rollup_bytes=1 << 20, start_offset=0)
