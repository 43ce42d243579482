"""The upkeep of a broker's topics, round by round, on a clock of the test's own."""

import asyncio
import contextlib
import itertools
import logging
import sys
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from filer import keys
from filer.clock import ManualClock, settle
from filer.errors import ObjectNotFound, OutcomeUnknown
from filer.format.schema import MessageSchema
from filer.format.segment_file import decode
from filer.keys import FileName
from filer.segment.next_file import Single
from filer.segment.segment_log import SegmentRef, list_names, read_snapshot
from filer.segment.segment_reader import SegmentReader
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Data, Fetched, ObjectInfo, Store
from filer.topic.catalogue import Catalogue
from filer.topic.topic_config import parse_config
from filer.topic.topic_state import TopicState
from filer.upkeep.rollup import roll_up
from filer.uploads import EXPIRES_SECONDS, Claim
from leader.membership.coordinator import InProcessCoordinator
from mq.base.errors import StoreTimeout
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.limits.turns import Line
from mq.maintenance.maintenance import REFRESH_SECONDS, TOPICS_AT_ONCE
from mq.maintenance.segment_rounds import FIRST_INDEXES_PER_ROUND
from mq.maintenance.upload_sweeper import SWEEP_SECONDS
from mq.topic.topic_runtime import TopicRuntime
from mq.transitions.split_merge_requests import MergeRequest, SplitRequest
from tests.support.inline_executor import InlineExecutor
from tests.support.store.dying_store import DyingStore
from tests.support.topic.segment_files import exists, list_live, read_listed, value_of

GRACE_SECONDS = 60.0


def broker_of(store: Store, clock: ManualClock, *, publish_timeout: float = 20.0) -> Broker:
    """A broker whose rounds only the test begins."""
    settings = BrokerSettings(
        grace=GRACE_SECONDS,
        rollup_age=30,
        maintenance_interval=3600,
        report_interval=3600,
        file_cache_bytes=1 << 20,
        publish_timeout=publish_timeout,
    )
    return Broker(store, clock, InProcessCoordinator(), settings)


class WatchedStore(ForwardingStore):
    """Counts requests, notes what is looked at, and fails for keys that hold `broken`."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.headed: list[str] = []
        self.requests = 0
        self.broken: str | None = None

    def _note(self, key: str) -> None:
        self.requests += 1
        if self.broken is not None and self.broken in key:
            raise OutcomeUnknown(f"no answer for {key}")

    async def head(self, key: str) -> ObjectInfo:
        self._note(key)
        self.headed.append(key)
        return await self.inner.head(key)

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        self._note(key)
        return await self.inner.get(key, start=start, stop=stop)

    def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> AsyncIterator[ObjectInfo]:
        self._note(prefix)
        return self.inner.list(prefix, after=after, limit=limit)


@contextlib.asynccontextmanager
async def running(store: Store, clock: ManualClock, *, publish_timeout: float = 20.0) -> AsyncIterator[Broker]:
    broker = broker_of(store, clock, publish_timeout=publish_timeout)
    await broker.start("http://127.0.0.1:1")
    for task in asyncio.all_tasks():
        if task.get_name() == "maintenance":
            task.cancel()
    async with asyncio.timeout(10):
        while broker.loading.left != 0:
            await asyncio.sleep(0)
    try:
        yield broker
    finally:
        await broker.close()


async def publish(runtime: TopicRuntime, first: int, count: int) -> None:
    """Single messages, one after another: a file each. Messages are numbered over the whole topic."""
    for number in range(first, first + count):
        await runtime.publisher.publish_single(Single(b"k", value_of(number), None, None), 20)


async def read_all(broker: Broker, topic: str = "t") -> list[int]:
    """Numbers of all messages that are kept, as a browsing client gets them, straight from the files."""
    runtime = await broker.topics.topic(topic)
    found: list[int] = []
    reader = SegmentReader(broker.store, InlineExecutor(), cache_bytes=0)
    for segment in runtime.state.segments:
        index = await runtime.reads.index(segment.id)
        offset = max(segment.start_offset, index.start_offset)
        while offset < index.end:
            table = await reader.read(runtime.ref(segment.id), index, offset, max_rows=10**6, max_bytes=10**9)
            found += [int(value.split()[1]) for value in table["value"].to_pylist()]
            offset = table["_offset"][-1].as_py() + 1
    return found


async def numbers_by_names(store: Store, state: TopicState) -> list[int]:
    """Numbers of all messages, as a reader finds them that lists names and knows nothing else."""
    found: list[int] = []
    for segment in state.segments:
        ref = SegmentRef(state.topic, segment.id)
        listed = await list_live(store, ref)
        for index, live in enumerate(listed):
            stop = listed[index + 1].start if index + 1 < len(listed) else sys.maxsize
            table = decode((await store.get(ref.key(live.name))).data)
            numbers = [int(value.split()[1]) for value in table["value"].to_pylist()]
            found += numbers[live.start - live.name.base : stop - live.name.base]
    return found


async def files_of(store: Store, segment: int = 0, topic: str = "t") -> list[str]:
    return [str(FileName.parse(info.key)) async for info in store.list(keys.segment_folder(topic, segment))]


async def state_of(broker: Broker, topic: str = "t") -> TopicState:
    record = await broker.catalogue.read(topic)
    assert record is not None
    return record.state


async def test_small_files_settle_and_only_the_live_ones_stay():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with running(store, clock) as broker:
        runtime, _ = await broker.administration.put("t", {})
        for first in range(0, 1200, 150):
            await publish(runtime, first, 150)
            await broker.maintenance.round()
            assert await read_all(broker) == list(range(first + 150))
        index = await runtime.reads.index(0)
        assert len(index.files) <= 20
        assert len(await files_of(store)) > 1200
        listed = await list_live(store, runtime.ref(0))
        await clock.advance(GRACE_SECONDS + 1)
        assert await read_listed(store, runtime.ref(0), listed) == list(range(1200))
        await broker.maintenance.round()
        assert len(await files_of(store)) <= 20
        assert await read_all(broker) == list(range(1200))
        assert b"braidmq_rollups_total" in b"".join(broker.metrics.pieces())


async def test_segments_of_former_lives_are_kept_up_too():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    for life in range(3):
        async with running(store, clock) as broker:
            runtime, _ = await broker.administration.put("t", {})
            await publish(runtime, life * 20, 20)
    async with running(store, clock) as broker:
        await broker.maintenance.round()
        await clock.advance(GRACE_SECONDS + 1)
        await broker.maintenance.round()
        for segment in range(2):
            assert await files_of(store, segment) == [f"{0:020d}-{20:020d}.parquet", f"{20:020d}.parquet"]
        # Nobody has used the topic in this life, so the last one is open, and its newest files are left alone.
        last = [f"{0:020d}-{16:020d}.parquet", *(f"{each:020d}.parquet" for each in range(16, 20))]
        assert await files_of(store, 2) == last
        assert [segment.state for segment in (await state_of(broker)).segments] == ["sealed", "sealed", "open"]
        assert await read_all(broker) == list(range(60))


async def test_first_looks_are_spread_over_rounds():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    segments = FIRST_INDEXES_PER_ROUND + 5
    for _ in range(2):
        async with running(store, clock) as broker:
            await broker.administration.put("t", {"segments": segments})
            await broker.repair.take_over("t", frozenset())
    watched = WatchedStore(store)
    async with running(watched, clock) as broker:
        looked = []
        for _ in range(4):
            watched.headed.clear()
            await broker.maintenance.round()
            looked.append(len(watched.headed))
        assert looked == [
            FIRST_INDEXES_PER_ROUND,
            FIRST_INDEXES_PER_ROUND,
            2 * segments - 2 * FIRST_INDEXES_PER_ROUND,
            0,
        ]


async def test_a_segment_rolls_when_it_is_large_or_old_enough():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with running(store, clock) as broker:
        runtime, _ = await broker.administration.put("t", {"segment_bytes": 10_000, "segment_seconds": 1000})
        await broker.maintenance.round()
        await publish(runtime, 0, 3)
        await broker.maintenance.round()
        assert [s.state for s in (await state_of(broker)).segments] == ["open"]
        await publish(runtime, 3, 7)
        await broker.maintenance.round()
        state = await state_of(broker)
        assert [(s.id, s.state, s.reason, s.predecessors) for s in state.segments] == [
            (0, "sealed", "create", ()),
            (1, "open", "roll", (0,)),
        ]
        await clock.advance(1001)
        await broker.maintenance.round()
        assert len((await state_of(broker)).segments) == 2
        await publish(runtime, 10, 1)
        await broker.maintenance.round()
        assert [s.id for s in (await state_of(broker)).open_segments] == [2]
        await publish(runtime, 11, 1)
        assert await read_all(broker) == list(range(12))


async def test_retention_by_time_empties_and_then_removes_segments(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with running(store, clock) as broker:
        runtime, _ = await broker.administration.put("t", {"retention": {"seconds": 600}, "segment_seconds": 100})
        for first in range(0, 60, 20):
            await publish(runtime, first, 20)
            await clock.advance(101)
            await broker.maintenance.round()
        assert await read_all(broker) == list(range(60))
        await clock.advance(320)
        await broker.maintenance.round()
        state = await state_of(broker)
        assert [s.start_offset for s in state.segments] == [20, 0, 0, 0]
        assert await read_all(broker) == list(range(20, 60))
        await clock.advance(80)
        await broker.maintenance.round()
        state = await state_of(broker)
        assert [s.id for s in state.segments] == [1, 2, 3]
        assert await read_all(broker) == list(range(40, 60))
        assert [removal.segment for removal in state.removals] == [0]
        assert await store.head(keys.history("t", 0, 0))
        assert await files_of(store, 0)
        await clock.advance(GRACE_SECONDS)
        await broker.maintenance.round()
        assert await files_of(store, 0) == []
        assert await read_snapshot(store, runtime.ref(0), 0) is None
        assert [r.segment for r in (await state_of(broker)).removals] != [0]
        await clock.advance(10_000)
        for _ in range(4):
            await broker.maintenance.round()
            await clock.advance(GRACE_SECONDS)
        state = await state_of(broker)
        assert [s.id for s in state.segments] == [3]
        assert state.removals == ()
        await publish(runtime, 60, 1)
        assert await read_all(broker) == [60]
    told = [line for line in caplog.messages if line.startswith("segment")]
    assert [line for line in told if "removed" in line] == [f"segments_removed topic=t segments={ids}" for ids in "012"]
    assert [line.rpartition(" files=")[0] for line in told if "deleted" in line] == [
        f"segment_deleted topic=t segment={n}" for n in range(3)
    ]
    assert "messages_expired topic=t segments=0" in caplog.messages
    assert any(line.startswith("files_rolled_up topic=t segment=0 key=") for line in caplog.messages)


async def test_what_a_crash_has_left_open_ages_out_without_a_publish():
    """Its owner would have rolled it. Without retention, or before its time, it stays as it is."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    ages, stays = {"retention": {"seconds": 600}, "segment_seconds": 100}, {"segment_seconds": 100}
    async with running(store, clock) as killed:
        for topic, config in (("t", ages), ("kept", stays)):
            runtime, _ = await killed.administration.put(topic, config)
            await publish(runtime, 0, 3)
    async with running(store, clock) as broker:
        for _ in range(3):
            await broker.maintenance.round()
        assert [len((await state_of(broker, topic)).segments) for topic in ("t", "kept")] == [1, 1]
        await clock.advance(601)
        for _ in range(3):
            await broker.maintenance.round()
        assert (await read_all(broker), await read_all(broker, "kept")) == ([], [0, 1, 2])
        assert len((await state_of(broker, "kept")).segments) == 1
        await clock.advance(10_000)
        for _ in range(4):
            await broker.maintenance.round()
            await clock.advance(GRACE_SECONDS)
        assert await files_of(store) == []
        # What replaced it is not replaced again.
        assert [segment.id for segment in (await state_of(broker)).segments] == [1]


@pytest.mark.parametrize("before", [True, False])
async def test_what_a_crash_has_left_open_is_sealed_once_wherever_the_next_life_stops(before: bool):
    """At every request of the rounds that seal it: nothing that is kept is lost, and the life after that ends it."""
    for at in itertools.count():
        clock = ManualClock()
        memory = MemoryStore(clock=clock)
        async with running(memory, clock) as killed:
            runtime, _ = await killed.administration.put("t", {"retention": {"seconds": 600}})
            await publish(runtime, 0, 3)
        await clock.advance(601)
        store = DyingStore(memory)
        with contextlib.suppress(Exception):
            async with running(store, clock) as dying:
                store.die_at(at, before=before)
                for _ in range(3):
                    await dying.maintenance.round()
        async with running(memory, clock) as broker:
            runtime = await broker.topics.topic("t")
            await publish(runtime, 3, 1)
            for _ in range(3):
                await broker.maintenance.round()
            assert await read_all(broker) == [3]
        if not store.dead:
            break
    assert at > 5


@pytest.mark.parametrize("before", [True, False])
async def test_no_segment_is_forgotten_wherever_it_stops_while_some_leave(before: bool):
    """At every request of the round: each segment is in topic.json, in the history, or in both."""
    for at in itertools.count():
        clock = ManualClock()
        memory = MemoryStore(clock=clock)
        dying = DyingStore(memory)
        async with running(dying, clock) as broker:
            runtime, _ = await broker.administration.put("t", {"retention": {"seconds": 600}, "segment_seconds": 100})
            for first in range(3):
                await publish(runtime, first, 1)
                await clock.advance(101)
                await broker.maintenance.round()
            await clock.advance(650)
            dying.die_at(at, before=before)
            await broker.maintenance.round()
            assert await known_segments(memory, clock) == [0, 1, 2, 3]
        async with running(memory, clock) as broker:
            await broker.topics.topic("t")
            await broker.maintenance.round()
            assert await known_segments(memory, clock) == [0, 1, 2, 3]
            await publish(await broker.topics.topic("t"), 3, 1)
            assert await known_segments(memory, clock) == [0, 1, 2, 3, 4], "the last is a failover's"
            assert (await state_of(broker)).segments[0].id > 0
        if not dying.dead:
            assert at > 4, "the round takes more requests than that"
            return


async def test_floors_empty_and_then_remove_segments():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    floors: dict[int, int] = {}
    async with running(store, clock) as broker:
        broker.floors["t"] = lambda: floors
        runtime, _ = await broker.administration.put("t", {})
        await publish(runtime, 0, 20)
        floors[0] = 5
        await broker.maintenance.round()
        assert await read_all(broker) == list(range(5, 20))
        await broker.executor.give_successors("t", [0], "roll")
        await broker.maintenance.round()
        assert await read_all(broker) == list(range(5, 20)), "nobody has said that what came before is not needed"
        await publish(runtime, 20, 20)
        floors[1] = 10
        await broker.maintenance.round()
        assert await read_all(broker) == list(range(30, 40))
        assert [(s.id, s.start_offset) for s in (await state_of(broker)).segments] == [(0, 20), (1, 10)]
        for _ in range(3):
            await clock.advance(GRACE_SECONDS + 1)
            await broker.maintenance.round()
        assert [s.id for s in (await state_of(broker)).segments] == [1]
        assert await files_of(store, 0) == []
        floors[1] = 100
        await broker.maintenance.round()
        assert await read_all(broker) == [39], "the newest file stays"


@pytest.mark.parametrize("before", [True, False])
async def test_killed_at_any_request_of_a_round_that_passes_floors_nothing_goes_that_is_needed(before: bool):
    """The next life knows no floor until it has told one itself."""
    for at in itertools.count():
        clock = ManualClock()
        memory = MemoryStore(clock=clock)
        dying = DyingStore(memory)
        async with running(dying, clock) as broker:
            broker.floors["t"] = lambda: {1: 4}
            runtime, _ = await broker.administration.put("t", {})
            await publish(runtime, 0, 3)
            await broker.executor.give_successors("t", [0], "roll")
            await publish(runtime, 3, 6)
            dying.die_at(at, before=before)
            for _ in range(3):
                await broker.maintenance.round()
                await clock.advance(GRACE_SECONDS + 1)
        async with running(memory, clock) as broker:
            broker.floors["t"] = dict
            for _ in range(3):
                read = await read_all(broker)
                assert read == list(range(read[0], 9)) and read[0] <= 7, "in order, and all behind the floor"
                await broker.maintenance.round()
                await clock.advance(GRACE_SECONDS + 1)
            await publish(await broker.topics.topic("t"), 9, 1)
            assert (await read_all(broker))[-3:] == [7, 8, 9]
        if not dying.dead:
            assert read == [7, 8] and at > 5, "the rounds take more requests than that"
            return


async def known_segments(store: MemoryStore, clock: ManualClock) -> list[int]:
    catalogue = Catalogue(store, clock)
    record = await catalogue.read("t")
    assert record is not None
    kept = await catalogue.read_history("t", after=-1, limit=100)
    return sorted({segment.id for segment in (*kept, *record.state.segments)})


async def test_segments_that_never_had_a_message_leave_like_others():
    """Split, split again and merged while they were empty; upkeep finds nothing to do but to let them go in the end."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with running(store, clock) as broker:
        runtime, _ = await broker.administration.put("t", {"retention": {"seconds": 600}})
        _, (low, high) = await broker.administration.split_or_merge("t", SplitRequest(0))
        _, (_, middle) = await broker.administration.split_or_merge("t", SplitRequest(low.id))
        _, (merged,) = await broker.administration.split_or_merge("t", MergeRequest(middle.id, high.id))
        await publish(runtime, 0, 20)
        for _ in range(2):
            await broker.maintenance.round()
            await clock.advance(GRACE_SECONDS + 1)
        assert [await files_of(store, each) for each in (0, low.id, middle.id, high.id)] == [[f"{0:020d}.parquet"]] * 4
        assert len((await state_of(broker)).segments) == 6
        assert await read_all(broker) == list(range(20))
    async with running(store, clock) as broker:
        await clock.advance(700)
        for _ in range(4):
            await broker.maintenance.round()
        state = await state_of(broker)
        assert {0, low.id, middle.id, high.id}.isdisjoint(s.id for s in state.segments)
        assert {s.range for s in state.open_segments} == {(0, 16384), merged.range}
        await clock.advance(GRACE_SECONDS + 1)
        await broker.maintenance.round()
        assert await files_of(store) == []
        await publish(await broker.topics.topic("t"), 20, 5)
        assert (await read_all(broker))[-5:] == list(range(20, 25))


async def test_retention_by_size_keeps_the_newest():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with running(store, clock) as broker:
        runtime, _ = await broker.administration.put("t", {"retention": {"bytes": 20_000}, "rollup_bytes": 1024})
        for first in range(0, 40, 4):
            await clock.advance(1)
            await publish(runtime, first, 4)
        await broker.maintenance.round()
        left = await read_all(broker)
        assert left == list(range(left[0], 40))
        assert 1 <= len(left) < 15
        index = await runtime.reads.index(0)
        assert index.size_bytes <= 20_000
        await clock.advance(GRACE_SECONDS)
        await broker.maintenance.round()
        assert len(await files_of(store)) == len(left)


async def test_a_deleted_topic_leaves_nothing_but_its_tombstone_and_its_history():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with running(store, clock) as broker:
        runtime, _ = await broker.administration.put("t", {"segments": 2})
        await publish(runtime, 0, 20)
        await broker.maintenance.round()
        await broker.administration.delete("t")
        await broker.maintenance.round()
        assert len(await files_of(store, 0)) + len(await files_of(store, 1)) >= 20
    async with running(store, clock) as broker:
        again, _ = await broker.administration.put("t", {})
        await publish(again, 0, 5)
        await clock.advance(GRACE_SECONDS + 1)
        await broker.maintenance.round()
        assert [await files_of(store, segment) for segment in (0, 1)] == [[], []]
        assert await read_all(broker) == list(range(5))
        await broker.administration.delete("t")
        await clock.advance(GRACE_SECONDS + 1)
        await broker.maintenance.round()
        state = await state_of(broker)
        assert (state.deleted, state.segments, state.removals) == (True, (), ())
        left = [info.key async for info in store.list("topics/t/")]
        tombstone = [keys.topic("t"), keys.version_mark("t", state.version)]
        assert left == [keys.history("t", 0, 1), keys.history("t", 2, 2), *tombstone]


async def upload(broker: Broker, topic: str = "t") -> str:
    issued = broker.uploads.issue(topic, size_bytes=4, sha256=None)
    await broker.store.create(keys.upload(topic, issued.id), b"data")
    return issued.id


async def publish_reference(broker: Broker, upload_id: str, topic: str = "t") -> None:
    runtime = await broker.topics.topic(topic)
    found = await broker.uploads.verify(topic, Claim(upload_id))
    ref = {"uri": found.uri, "size": found.size_bytes, "etag": found.etag, "sha256": None}
    row = {"key": None, "value": None, "event_time": None, "headers": None, "_ref": ref}
    await runtime.publisher.publish_rows(pa.RecordBatch.from_pylist([row], MessageSchema.of().rows), 100)


async def test_uploads_go_when_nothing_refers_to_them():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with running(store, clock) as broker:
        runtime, _ = await broker.administration.put("t", {"retention": {"seconds": 3 * EXPIRES_SECONDS}})
        unused, used = await upload(broker), await upload(broker)
        await publish_reference(broker, used)
        await publish(runtime, 0, 5)
        await broker.maintenance.round()
        await clock.leap(EXPIRES_SECONDS - 1)
        await broker.maintenance.round()
        assert await exists(store, keys.upload("t", unused))
        await clock.advance(GRACE_SECONDS + SWEEP_SECONDS)
        await broker.maintenance.round()
        assert not await exists(store, keys.upload("t", unused))
        assert await exists(store, keys.upload("t", used))
        await clock.leap(2 * EXPIRES_SECONDS)
        await broker.maintenance.round()
        assert await exists(store, keys.upload("t", used)), "files that await deletion still refer to it"
        await clock.advance(GRACE_SECONDS + SWEEP_SECONDS)
        await broker.maintenance.round()
        await clock.advance(SWEEP_SECONDS)
        await broker.maintenance.round()
        assert not await exists(store, keys.upload("t", used))


async def test_the_first_round_over_a_topic_that_was_made_here_reads_nothing():
    """What is there of it is known: nothing but its record, and no upload can have expired."""
    clock = ManualClock()
    store = WatchedStore(MemoryStore(clock=clock))
    async with running(store, clock) as broker:
        await broker.administration.put("t", {})
        before = store.requests
        await broker.maintenance.round()
        await broker.topics["t"].publisher.publish_single(Single(b"k", b"v", None, None), 1)
        assert store.requests == before, "that it has created the topic proves that the first name is new"
        assert [info.key async for info in store.list(keys.version_marks_folder("t"))] == [keys.version_mark("t", 1)]
        await broker.administration.put("t", {"rollup_bytes": 4096})
        await broker.maintenance.round()
        assert [info.key async for info in store.list(keys.version_marks_folder("t"))] == [keys.version_mark("t", 2)]


async def test_uploads_of_a_deleted_topic_go_too():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with running(store, clock) as broker:
        await broker.administration.put("t", {})
        used = await upload(broker)
        await publish_reference(broker, used)
        await broker.administration.delete("t")
        await clock.leap(EXPIRES_SECONDS + GRACE_SECONDS + 1)
        await broker.maintenance.round()
        await clock.advance(SWEEP_SECONDS)
        await broker.maintenance.round()
        assert not await exists(store, keys.upload("t", used))


class StuckStore(ForwardingStore):
    """Takes no segment file until it is let go."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.go = asyncio.Event()
        self.go.set()

    async def create(self, key: str, data: Data, *, metadata: Mapping[str, str] | None = None) -> None:
        if "segments/" in key:
            await self.go.wait()
        await self.inner.create(key, data, metadata=metadata)


async def test_the_sweep_waits_for_publishes_that_were_accepted_before_it():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    stuck = StuckStore(store)
    async with running(stuck, clock, publish_timeout=1.0) as broker:
        runtime, _ = await broker.administration.put("t", {})
        used = await upload(broker)
        stuck.go.clear()
        publishing = asyncio.create_task(publish_reference(broker, used))
        await settle()
        await clock.leap(EXPIRES_SECONDS + GRACE_SECONDS + 1)
        for _ in range(3):
            # Rounds stand back for files that are made, for a while.
            round_ = asyncio.create_task(broker.maintenance.round())
            while not round_.done():
                await clock.advance(0.01)
            assert await exists(store, keys.upload("t", used))
        # Its publisher is told that it takes too long; the message is kept, and stored when the store is back.
        with pytest.raises(StoreTimeout):
            await publishing
        stuck.go.set()
        await runtime.writers[0].flush()
        assert runtime.writers[0].index.end == 1
        await broker.maintenance.round()
        assert await exists(store, keys.upload("t", used))


async def test_what_fails_for_one_topic_is_tried_again_and_stops_no_other(caplog: pytest.LogCaptureFixture):
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    watched = WatchedStore(store)
    async with running(watched, clock) as broker:
        for topic in ("a", "b"):
            runtime, _ = await broker.administration.put(topic, {})
            await publish(runtime, 0, 20)
        watched.broken = "topics/a/segments"
        await broker.maintenance.round()
        assert [len((await broker.topics[topic].reads.index(0)).files) for topic in ("a", "b")] == [20, 5]
        assert 'upkeep_failed topic=a work="segment 0" error="OutcomeUnknown: no answer' in caplog.text
        assert b"braidmq_maintenance_errors_total 1.0" in b"".join(broker.metrics.pieces())
        await broker.maintenance.round()
        failed = watched.requests
        await broker.maintenance.round()
        assert watched.requests == failed
        watched.broken = None
        await clock.advance(3601)
        await broker.maintenance.round()
        assert len((await broker.topics["a"].reads.index(0)).files) <= 6
        assert await read_all(broker, "a") == list(range(20))


async def test_an_idle_broker_asks_the_store_for_next_to_nothing():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    for _ in range(3):
        async with running(store, clock) as broker:
            runtime, _ = await broker.administration.put("t", {"segments": 4})
            await publish(runtime, 0, 40)
    watched = WatchedStore(store)
    async with running(watched, clock) as broker:
        for _ in range(4):
            await broker.maintenance.round()
            await clock.advance(GRACE_SECONDS)
        before = watched.requests
        for _ in range(10):
            await clock.advance(REFRESH_SECONDS / 10)
            await broker.maintenance.round()
        assert watched.requests - before <= 2


async def test_a_change_by_another_process_is_noticed():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with running(store, clock) as broker:
        runtime, _ = await broker.administration.put("t", {})
        await broker.maintenance.round()
        await broker.catalogue.change(
            "t", lambda state: state.model_copy(update={"config": parse_config({"segment_bytes": 5000})})
        )
        await clock.advance(REFRESH_SECONDS)
        await broker.maintenance.round()
        assert runtime.state.config.segment_bytes == 5000


async def test_what_somebody_has_asked_to_keep_meanwhile_does_not_expire():
    """The maintainer has not heard yet that the retention is longer."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with running(store, clock) as broker:
        runtime, _ = await broker.administration.put("t", {"retention": {"seconds": 3600}})
        await publish(runtime, 0, 5)
        await clock.advance(3599)
        await broker.maintenance.round()
        longer = parse_config({"retention": {"seconds": 7200}})
        await broker.catalogue.change("t", lambda state: state.model_copy(update={"config": longer}))
        await clock.advance(2)
        assert runtime.state.config.retention.seconds == 3600
        await broker.maintenance.round()
        assert [segment.start_offset for segment in runtime.state.segments] == [0]
        assert runtime.state.config.retention.seconds == 7200
        await clock.advance(3600)
        await broker.maintenance.round()
        assert [segment.start_offset for segment in runtime.state.segments] == [4]


async def test_rounds_go_on_by_themselves():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    settings = BrokerSettings(grace=GRACE_SECONDS, rollup_age=30, maintenance_interval=5)
    broker = Broker(store, clock, InProcessCoordinator(), settings)
    await broker.start("http://127.0.0.1:1")
    runtime, _ = await broker.administration.put("t", {})
    await publish(runtime, 0, 20)
    await clock.advance(5)
    async with asyncio.timeout(10):
        while len((await runtime.reads.index(0)).files) > 6:
            await asyncio.sleep(0.01)
    await broker.close()


@pytest.mark.parametrize("before", [True, False])
async def test_killed_at_any_request_of_a_round_the_next_life_has_every_message_once(before: bool):
    at = 0
    while True:
        clock = ManualClock()
        memory = MemoryStore(clock=clock)
        store = DyingStore(memory)
        async with running(store, clock) as broker:
            runtime, _ = await broker.administration.put("t", {"retention": {"seconds": 5000}, "segment_seconds": 100})
            await publish(runtime, 0, 12)
            await clock.advance(101)
            store.die_at(at, before=before)
            await broker.maintenance.round()
            await clock.advance(GRACE_SECONDS + 1)
            await broker.maintenance.round()
        async with running(memory, clock) as broker:
            assert await read_all(broker) == list(range(12))
            assert await numbers_by_names(memory, await state_of(broker)) == list(range(12))
            await publish(await broker.topics.topic("t"), 12, 3)
            for _ in range(5):
                await broker.maintenance.round()
                await clock.advance(GRACE_SECONDS + 1)
                assert await read_all(broker) == list(range(15))
                assert await numbers_by_names(memory, await state_of(broker)) == list(range(15))
            for segment in (await state_of(broker)).segments:
                ref = runtime.ref(segment.id)
                assert len(await list_names(memory, ref)) <= (2 if segment.state == "sealed" else 5)
        if not store.dead:
            break
        at += 1
    assert at > 20


async def test_two_brokers_on_the_same_store_do_each_other_no_harm(caplog: pytest.LogCaptureFixture):
    """Nor is it told as a failure that one finds rolled up what the other has rolled up: so it is after a hand-over."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with running(store, clock) as first:
        mine, _ = await first.administration.put("t", {})
        await publish(mine, 0, 20)
        await first.executor.give_successors("t", [0], "roll")
        await publish(mine, 20, 20)
        await first.maintenance.round()
        async with running(store, clock) as second:
            theirs = await second.topics.topic("t")
            await publish(theirs, 40, 20)
            for _ in range(4):
                await second.maintenance.round()
                await clock.advance(GRACE_SECONDS + 1)
                assert await read_all(second) == list(range(60))
            for _ in range(4):
                with contextlib.suppress(ObjectNotFound):
                    assert await read_all(first) == list(range(60))
                await first.maintenance.round()
                await second.maintenance.round()
                await clock.advance(GRACE_SECONDS + 1)
                assert await read_all(second) == list(range(60))
                assert await numbers_by_names(store, await state_of(second)) == list(range(60))
            assert await read_all(first) == list(range(60))
    assert "upkeep_failed" not in caplog.text


async def test_what_other_programs_rolled_up_is_taken_in_once_the_broker_is_told():
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with running(store, clock) as broker:
        runtime, _ = await broker.administration.put("t", {})
        await publish(runtime, 0, 6)
        await broker.maintenance.round()
        index = await runtime.reads.index(0)
        with ThreadPoolExecutor(1) as executor:
            await roll_up(store, clock, runtime.ref(0), index.files[:2], broker="pipeline", executor=executor)
        await broker.maintenance.round()
        assert len(index.files) == 6
        assert broker.maintenance.invalidate("other") == 0
        assert broker.maintenance.invalidate("t") == 1
        await broker.maintenance.round()
        assert len(index.files) == 5 and await read_all(broker) == list(range(6))
        await clock.advance(GRACE_SECONDS + 1)
        await broker.maintenance.round()
        assert len(await files_of(store)) == 5


async def test_a_round_over_many_topics_leaves_others_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, wait = 0, Line.wait

    async def counted(line: Line) -> None:
        nonlocal turns
        turns += 1
        await wait(line)

    monkeypatch.setattr(Line, "wait", counted)
    async with running(MemoryStore(), ManualClock()) as broker:
        for number in range(5 * TOPICS_AT_ONCE):
            await broker.administration.put(f"t-{number}", {})
        turns = 0
        await broker.maintenance.round()
    assert turns == 5


async def test_topics_are_created_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two steps of 20 creations everybody else is served."""
    steps: list[str] = []
    wait = Line.wait

    async def counted(line: Line) -> None:
        await wait(line)
        steps.append("step")
        asyncio.get_running_loop().call_soon(steps.append, "others")

    monkeypatch.setattr(Line, "wait", counted)
    async with running(MemoryStore(), ManualClock()) as broker:
        await asyncio.gather(*(broker.administration.put(f"t-{number}", {}) for number in range(20)))
        assert len(broker.topics) >= 20
    assert steps.count("step") >= 40
    assert "step step" not in " ".join(steps)
