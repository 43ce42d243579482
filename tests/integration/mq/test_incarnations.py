"""Restarts of a broker without a cluster: it goes on after a clean stop, and seals lazily after any other end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import orjson
import pytest

from filer import keys
from filer.clock import SystemClock
from filer.errors import BraidError, EtagMismatch, OutcomeUnknown
from filer.format.requests import RequestId
from filer.segment.next_file import Single
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Data, MakeData, ObjectInfo, Store
from filer.topic.incarnation import Incarnation, StoreTaken
from filer.upkeep.rollup import roll_up
from leader.membership.coordinator import InProcessCoordinator
from leader.transitions import begin_replacement
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.transitions.topic_repair import TopicRepair
from tests.support.broker.http_broker import http_broker
from tests.support.store.dying_store import DyingStore

SETTINGS = BrokerSettings(maintenance_interval=3600)


async def started(store: Store) -> Broker:
    clock = SystemClock()
    incarnation = await Incarnation.find(store, clock, SETTINGS.broker)
    broker = Broker(store, clock, InProcessCoordinator(), SETTINGS, incarnation=incarnation)
    await broker.start("http://here")
    return broker


@contextlib.asynccontextmanager
async def life(store: Store, *, clean: bool = True) -> AsyncIterator[Broker]:
    broker = await started(store)
    try:
        yield broker
        if clean:
            await broker.drain()
    finally:
        await broker.close()


async def publish(broker: Broker, value: bytes, topic: str = "t", request: RequestId | None = None) -> tuple[int, int]:
    runtime = await broker.topics.topic(topic)
    position = await runtime.publisher.publish_single(Single(b"k", value, None, None), len(value), request)
    return position.segment, position.offset


async def values(broker: Broker, topic: str = "t") -> list[bytes]:
    await broker.topics.topic(topic)
    reader = await broker.reader(topic)
    runs, _ = await reader.read(reader.earliest(), max_rows=1000, max_bytes=1 << 20)
    return [value for run in runs for value in run.table["value"].to_pylist()]


async def segments(store: MemoryStore, topic: str = "t") -> list[tuple[int, str]]:
    record = orjson.loads((await store.get(keys.topic(topic))).data)
    return [(each["id"], each["state"]) for each in record["segments"]]


@pytest.fixture
async def store() -> MemoryStore:
    """With a topic `t` that has one message, and a topic `idle`, after a clean stop."""
    made = MemoryStore()
    async with life(made) as broker:
        for topic in ("t", "idle"):
            await broker.administration.put(topic, {})
        assert await publish(broker, b"0") == (0, 0)
    return made


async def test_clean_restarts_go_on_in_the_same_segment(store: MemoryStore) -> None:
    ids = set()
    for number in range(1, 6):
        async with life(store) as broker:
            ids.add(broker.id)
            assert await publish(broker, b"%d" % number) == (0, number)
            assert await values(broker) == [b"%d" % each for each in range(number + 1)]
    assert len(ids) == 1
    assert await segments(store) == [(0, "open")] == await segments(store, "idle")


async def test_a_request_of_the_life_before_is_answered_and_not_stored_again(store: MemoryStore) -> None:
    request = RequestId("p", 7)
    async with life(store) as broker:
        first = await publish(broker, b"once", request=request)
    async with life(store) as broker:
        assert await publish(broker, b"once", request=request) == first
        assert await values(broker) == [b"0", b"once"]


async def test_a_broker_that_starts_beside_another_tells_so(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with life(store):
        pass
    async with life(store) as broker:
        assert "broker_before_not_stopped" not in caplog.text
        async with life(store):
            (told,) = [each for each in caplog.messages if "broker_before_not_stopped" in each]
    assert f"broker={broker.id}" in told and "cluster/incarnation.json" in told


async def test_after_a_kill_only_topics_that_are_used_are_sealed(store: MemoryStore) -> None:
    for number in range(1, 4):
        async with life(store, clean=False) as broker:
            assert await values(broker) == [b"%d" % each for each in range(number)]
            before = await segments(store)
            # The first goes on after the clean stop.
            assert await publish(broker, b"%d" % number) == ((0, 1) if number == 1 else (number - 1, 0))
            assert len(await segments(store)) == len(before) + (number > 1)
    assert await segments(store, "idle") == [(0, "open")]
    async with life(store) as broker:
        assert await publish(broker, b"used", "idle") == (1, 0)
        assert await values(broker) == [b"0", b"1", b"2", b"3"]


async def test_publishers_at_the_same_time_share_one_take_over(store: MemoryStore) -> None:
    async with life(store, clean=False):
        pass
    async with life(store) as broker:
        stored = await asyncio.gather(*(publish(broker, b"%d" % each) for each in range(20)))
        assert {segment for segment, _ in stored} == {1} and len(set(stored)) == 20
    assert [each for each, _ in await segments(store)] == [0, 1]


async def test_a_take_over_that_changes_nothing_is_not_tried_again_and_again(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be tried without a pause, for as long as a publisher has patience."""
    async with life(store, clean=False):
        pass
    tries: list[str] = []

    async def changes_nothing(repair: TopicRepair, name: str, left: Set[int]) -> None:
        tries.append(name)

    monkeypatch.setattr(TopicRepair, "take_over", changes_nothing)
    async with life(store) as broker:
        with pytest.raises(BraidError, match="now owned by broker"):
            await publish(broker, b"1")
    assert tries == ["t"]


async def test_of_two_that_start_at_the_same_moment_one_starts(store: MemoryStore) -> None:
    outcomes = await asyncio.gather(started(store), started(store), return_exceptions=True)
    brokers = [each for each in outcomes if isinstance(each, Broker)]
    errors = [each for each in outcomes if not isinstance(each, Broker)]
    assert len(brokers) == 1 and [type(each) for each in errors] == [StoreTaken]
    await brokers[0].close()


async def test_a_broker_takes_nothing_over_once_another_has_started(store: MemoryStore) -> None:
    async with life(store, clean=False):
        pass
    async with life(store) as older, life(store) as newer:
        with pytest.raises(Exception, match="another broker has started"):
            await publish(older, b"older")
        assert await publish(newer, b"newer") == (1, 0)
        await older.topics.refresh("t")
        assert await values(older) == [b"0", b"newer"]
    # The older one cannot say that it has stopped; the newer one, which stopped first here, has.
    async with life(store) as next_one:
        assert next_one.id == newer.id


async def test_two_that_publish_at_the_same_time_lose_and_double_nothing(store: MemoryStore) -> None:
    """The newer one takes the topic over while the older one writes it."""
    acknowledged = [b"0"]

    async def publish_some(broker: Broker, name: str) -> None:
        for number in range(20):
            value = f"{name} {number}".encode()
            with contextlib.suppress(BraidError):
                await publish(broker, value)
                acknowledged.append(value)

    async with life(store) as older:
        assert await publish(older, b"1") == (0, 1)
        acknowledged.append(b"1")
        async with life(store) as newer:
            assert newer.id != older.id
            await asyncio.gather(publish_some(older, "older"), publish_some(newer, "newer"))
            assert {b"newer 0", b"newer 19"} <= set(acknowledged)
            why = ""
            async with asyncio.timeout(10):
                while "another broker has started" not in why:
                    with pytest.raises(BraidError) as refused:
                        await publish(older, b"too late")
                    why = str(refused.value)
                    await asyncio.sleep(0.01)
            found = await values(newer)
            assert set(acknowledged) <= set(found) and len(set(found)) == len(found)
            assert b"too late" not in found
    async with life(store) as last:
        assert last.id == newer.id and await values(last) == found


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"check": "0", "broker": "broker.X"}'])
async def test_a_damaged_record_counts_as_none(store: MemoryStore, damage: bytes) -> None:
    etag = (await store.head(keys.INCARNATION)).etag
    await store.replace(keys.INCARNATION, damage, etag=etag)
    async with life(store) as broker:
        assert await publish(broker, b"1") == (1, 0)
    async with life(store) as broker:
        assert await publish(broker, b"2") == (1, 1)


async def test_an_older_record_that_is_put_back_loses_nothing(store: MemoryStore) -> None:
    """Two brokers have the same incarnation then: the names of files fence."""
    stopped = (await store.get(keys.INCARNATION)).data
    async with life(store) as one:
        assert await publish(one, b"1") == (0, 1)
        etag = (await store.head(keys.INCARNATION)).etag
        await store.replace(keys.INCARNATION, stopped, etag=etag)
        async with life(store) as two:
            assert two.id == one.id
            assert await publish(two, b"2") == (0, 2)
            for number in range(3, 8):
                with contextlib.suppress(Exception):
                    await publish(one, b"%d" % number)
    async with life(store, clean=False) as last:
        await publish(last, b"last")
        found = await values(last)
    assert found[:3] == [b"0", b"1", b"2"] and found[-1] == b"last" and len(set(found)) == len(found)


async def test_what_is_lost_at_the_end_after_a_clean_stop_is_told_and_not_written_over(store: MemoryStore) -> None:
    async with life(store) as broker:
        await publish(broker, b"1")
    key = f"{keys.segment_folder('t', 0)}{1:020d}.parquet"
    await store.delete([key])
    async with life(store) as broker:
        assert await publish(broker, b"2") == (0, 2)
        runtime = broker.topics["t"]
        assert [(hole.start, hole.end) for hole in (await runtime.reads.index(0)).lost] == [(1, 2)]


async def test_the_store_is_written_as_often_with_many_topics(store: MemoryStore) -> None:
    async with life(store) as broker:
        for number in range(30):
            await broker.administration.put(f"more-{number}", {})
    before = {info.key: info.etag async for info in store.list("topics/")}
    async with life(store) as broker:
        async with asyncio.timeout(10):
            while broker.loading.left != 0:
                await asyncio.sleep(0.01)
        assert len(broker.topics) == 32
    assert {info.key: info.etag async for info in store.list("topics/")} == before


async def test_a_broker_that_was_not_drained_leaves_no_record_of_a_stop(store: MemoryStore) -> None:
    async with life(store, clean=False) as killed:
        pass
    async with life(store) as broker:
        assert broker.id != killed.id


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("clean", [True, False])
async def test_killed_at_any_request_of_a_life_every_message_is_there_once(before: bool, clean: bool) -> None:
    """While it starts, goes on or takes over, publishes, and stops; what was answered is there, and is not repeated."""
    first, second = RequestId("p", 1), RequestId("p", 2)
    at = 0
    while True:
        memory = MemoryStore()
        async with life(memory, clean=clean) as broker:
            await broker.administration.put("t", {})
            stored = [await publish(broker, b"0", request=first)]
        dying = DyingStore(memory).die_at(at, before=before)
        stored += await a_life_that_ends(dying, second)
        assert dying.dead or len(stored) == 2
        async with life(memory) as broker:
            found = await values(broker)
            assert found in ([b"0"], [b"0", b"1"]) and len(found) >= len(stored)
            answers = [await publish(broker, b"0", request=first), await publish(broker, b"1", request=second)]
            assert answers[: len(stored)] == stored
            await publish(broker, b"2")
            lineage = await segments(memory)
            assert len(lineage) <= 3
        async with life(memory) as broker:
            await publish(broker, b"3")
            assert await values(broker) == [b"0", b"1", b"2", b"3"]
            assert await segments(memory) == lineage, "the life before stopped cleanly"
        if not dying.dead:
            break
        at += 1
    assert at > 15


async def a_life_that_ends(store: DyingStore, request: RequestId) -> list[tuple[int, int]]:
    """Publish once, then stop, unless the store dies before; where the message is, if that was answered."""
    answers: list[tuple[int, int]] = []
    brokers: list[Broker] = []

    async def live() -> None:
        clock = SystemClock()
        incarnation = await Incarnation.find(store, clock, SETTINGS.broker)
        brokers.append(Broker(store, clock, InProcessCoordinator(), SETTINGS, incarnation=incarnation))
        await brokers[0].start("http://here")
        answers.append(await publish(brokers[0], b"1", request=request))
        await brokers[0].drain()
        await brokers[0].close()

    task = asyncio.create_task(live())
    while not task.done() and not store.dead:
        await asyncio.sleep(0.001)
    if store.dead:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for broker in brokers:
            with contextlib.suppress(Exception):
                await broker.close()
    else:
        await task
    return answers


class LateStop(ForwardingStore):
    """Keeps the note of a stop on its way, until it is let go."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.late: tuple[str, Data, str] | None = None

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        if key == keys.INCARNATION and b'"stopped": true' in bytes(data):
            self.late = (key, data, etag)
            raise OutcomeUnknown("no answer")
        return await self.inner.replace(key, data, etag=etag)


@pytest.mark.parametrize("clean", [True, False])
async def test_a_note_of_a_stop_that_comes_late_changes_nothing(
    store: MemoryStore, clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker does not wait for it for ever. After the next start it would tell of a broker that runs."""
    monkeypatch.setattr("mq.broker.STOP_NOTE_SECONDS", 0.01)
    slow = LateStop(store)
    async with life(slow) as first:
        await publish(first, b"1")
    assert slow.late is not None
    key, data, etag = slow.late
    async with life(store, clean=clean) as second:
        assert second.id != first.id
        assert await publish(second, b"2") == (1, 0)
        with pytest.raises(EtagMismatch):
            await store.replace(key, data, etag=etag)
    with pytest.raises(EtagMismatch):
        await store.replace(key, data, etag=etag)
    async with life(store) as third:
        assert (third.id == second.id) is clean
        assert await values(third) == [b"0", b"1", b"2"]


async def test_one_that_comes_just_before_a_start_keeps_that_from_starting(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the write of the next one: it does not go on by what was true before."""
    monkeypatch.setattr("mq.broker.STOP_NOTE_SECONDS", 0.01)
    slow = LateStop(store)
    async with life(slow) as first:
        pass
    assert slow.late is not None
    found = await Incarnation.find(store, SystemClock(), SETTINGS.broker)
    key, data, etag = slow.late
    await store.replace(key, data, etag=etag)
    with pytest.raises(StoreTaken, match="start this one again"):
        await found.take()
    async with life(store) as second:
        assert second.id == first.id


class LateRecord(ForwardingStore):
    """Keeps the next write of one key on its way, also when nobody waits for it any more, until it is let go."""

    def __init__(self, inner: MemoryStore, key: str) -> None:
        super().__init__(inner)
        self.sent = asyncio.Event()
        self._key = key
        self._let_go: Callable[[], Awaitable[object]] = self._nothing

    async def _nothing(self) -> None:
        raise AssertionError("nothing was written")

    async def let_go(self) -> None:
        """Have it take effect now, if the store still takes it."""
        await self._let_go()

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        if key == self._key:
            await self._keep(partial(self.inner.create, key, data))
        await self.inner.create(key, data, metadata=metadata)

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        if key == self._key:
            await self._keep(partial(self.inner.replace, key, data, etag=etag))
        return await self.inner.replace(key, data, etag=etag)

    async def _keep(self, write: Callable[[], Awaitable[object]]) -> None:
        if not self.sent.is_set():
            self._let_go = write
            self.sent.set()
            await asyncio.Event().wait()


async def roll(broker: Broker) -> None:
    await broker.executor.give_successors("t", [0], "roll")


async def configure(broker: Broker) -> None:
    await broker.administration.put("t", {"max_segments": 7})


async def delete(broker: Broker) -> None:
    await broker.administration.delete("t")


@pytest.mark.parametrize("change", [roll, configure, delete])
@pytest.mark.parametrize("used", [True, False])
async def test_a_change_of_a_topic_that_comes_after_the_next_start_takes_nothing(
    store: MemoryStore, change: Callable[[Broker], Awaitable[None]], used: bool
) -> None:
    """The broker stopped cleanly while it was on its way, and said so: it has acknowledged nothing by it."""
    late = LateRecord(store, keys.topic("t"))
    async with life(late) as first:
        changing = asyncio.create_task(change(first))
        await late.sent.wait()
    changing.cancel()
    await asyncio.gather(changing, return_exceptions=True)
    async with life(store) as second:
        assert second.id == first.id, "the stop was clean"
        await second.topics.topic("t")
        if used:
            assert await publish(second, b"1") == (0, 1)
        await late.let_go()
        if change is delete:
            # As if it had been asked for now.
            await second.topics.refresh("t")
            async with asyncio.timeout(10):
                while not second.topics["t"].state.deleted:
                    await asyncio.sleep(0.01)
            with pytest.raises(BraidError):
                await publish(second, b"2")
            return
        stored = [await publish(second, b"%d" % number) for number in (2, 3)]
        await second.topics.refresh("t")
        async with asyncio.timeout(10):
            while second.topics["t"].state.transition is not None:
                await asyncio.sleep(0.01)
        stored.append(await publish(second, b"4"))
        assert len(set(stored)) == 3 and stored[-1][0] == (1 if change is roll else 0)
        expected = [b"0", *([b"1"] if used else []), b"2", b"3", b"4"]
        assert await values(second) == expected
    async with life(store) as third:
        assert third.id == first.id
        assert await values(third) == expected


@pytest.mark.parametrize("used", [True, False])
async def test_a_topic_that_comes_after_the_next_start_is_read_before_it_is_written(
    store: MemoryStore, used: bool
) -> None:
    """It belongs to this incarnation, and nothing shows that no process before has written it."""
    late = LateRecord(store, keys.topic("late"))
    async with life(late) as first:
        creating = asyncio.create_task(first.administration.put("late", {}))
        await late.sent.wait()
    creating.cancel()
    await asyncio.gather(creating, return_exceptions=True)
    async with life(store) as second:
        assert second.id == first.id
        await late.let_go()
        if used:
            assert await publish(second, b"0", "late") == (0, 0)
    async with life(store) as third:
        assert await publish(third, b"1", "late") == (0, 1 if used else 0)
        assert await values(third, "late") == ([b"0", b"1"] if used else [b"1"])


async def test_a_transition_that_a_killed_broker_began_late_is_finished(store: MemoryStore) -> None:
    """Its write of the record takes effect when the next broker has read the topic already."""
    async with life(store, clean=False):
        pass
    async with life(store) as broker:
        assert await publish(broker, b"1") == (1, 0)
        begin = begin_replacement(broker.topics["t"].state, [1], lambda _: (broker.id,), "roll", now_us=1)
        assert begin is not None
        await broker.catalogue.change("t", lambda state: begin)
        await broker.topics.refresh("t")
        async with asyncio.timeout(10):
            while broker.topics["t"].state.transition is not None:
                await asyncio.sleep(0.01)
        assert await publish(broker, b"2") == (2, 0)
        assert await values(broker) == [b"0", b"1", b"2"]


class LatePut(ForwardingStore):
    """Its first segment file of the topic `new` is stored once somebody has looked at the names."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self._looked = asyncio.Event()

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        if key.startswith(keys.segment_folder("new", 0)):
            await self._looked.wait()
        await self.inner.create(key, data, metadata=metadata)

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ObjectInfo]:
        async for info in self.inner.list(prefix, after=after, limit=limit):
            yield info
        if prefix == keys.segment_folder("new", 0):
            self._looked.set()


@pytest.mark.parametrize("rolled_up", [2, 6])
async def test_a_name_that_was_rolled_up_by_others_acknowledges_nothing(store: MemoryStore, rolled_up: int) -> None:
    """Of two brokers of one incarnation, one has rolled up what the other has not written yet, and deleted it.

    An owner's first put proves by the record alone, among brokers of a cluster, that its name is not back. Whoever has
    created the topic needs no proof besides, for half of a grace period.
    """
    async with life(LatePut(store)) as one:
        runtime, _ = await one.administration.put("new", {})
        writer = runtime.writers[0]
        ref = runtime.ref(0)
        async with life(MemoryStore()) as other:
            copied, _ = await other.administration.put("new", {})
            for number in range(6):
                await publish(other, b"%d" % number, "new")
            index = await copied.reads.index(0)
            with ThreadPoolExecutor(1) as executor:
                rolled = await roll_up(
                    other.store, other.clock, ref, index.files[:rolled_up], broker=other.id, executor=executor
                )
            names = [rolled.name, *(facts.name for facts in index.files[rolled_up:])]
            for name in names:
                await store.create(ref.key(name), (await other.store.get(ref.key(name))).data)
        # What was rolled up was deleted a grace period later.
        store.time.record(store.time.latest_us + int(SETTINGS.grace * 1e6))
        with pytest.raises(BraidError):
            await publish(one, b"late", "new")
        assert writer.has_stopped
    async with life(store) as after:
        assert await values(after, "new") == [b"%d" % each for each in range(6)]


async def test_what_has_no_owner_is_kept_up(store: MemoryStore) -> None:
    """Its topic may never be used again."""
    async with life(store, clean=False) as killed:
        for number in range(1, 20):
            assert await publish(killed, b"%d" % number) == (0, number)
    async with life(store) as broker:
        while broker.loading.left != 0:
            await asyncio.sleep(0.001)
        await broker.maintenance.round()
        index = await broker.topics["t"].reads.index(0)
        assert next(str(facts.name) for facts in index.files) == f"{0:020d}-{16:020d}.parquet"
        assert await segments(store) == [(0, "open")]
        assert await values(broker) == [b"%d" % each for each in range(20)]
        assert await publish(broker, b"20") == (1, 0)
        assert await values(broker) == [b"%d" % each for each in range(21)]


async def test_who_waits_for_messages_of_a_segment_without_owner_gets_them(store: MemoryStore) -> None:
    async with life(store, clean=False):
        pass
    async with life(store) as broker:
        runtime = await broker.topics.topic("t")
        reader = await broker.reader("t", streaming=True)
        _, positions = await reader.read(reader.earliest(), max_rows=10, max_bytes=1 << 20)
        news = runtime.reads.news()
        await publish(broker, b"1")
        async with asyncio.timeout(1):
            await news
        runs, _ = await reader.read(positions, max_rows=10, max_bytes=1 << 20)
        assert [value for run in runs for value in run.table["value"].to_pylist()] == [b"1"]


async def test_the_cluster_tells_what_is_still_to_be_read() -> None:
    async with http_broker(MemoryStore()) as broker:
        answer: httpx.Response = await broker.client.get("/v1/cluster")
        assert answer.json()["topics_loading"] in (None, 0)
