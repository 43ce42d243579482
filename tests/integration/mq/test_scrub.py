"""The scrub in virtual time: what it reads, how fast, after which restarts, and beside which changes."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count

import pytest

from filer import keys
from filer.clock import ManualClock
from filer.keys import FileName
from filer.segment.next_file import Single
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, recover_index
from filer.segment.snapshot_format import to_snapshot
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Fetched, Store
from filer.topic.catalogue import Catalogue
from filer.verification.scrub_record import RECORDS, read_scrub
from filer.verification.scrub_schedule import CHECK_AGAIN_SECONDS
from leader.membership.coordinator import BrokerInfo, InProcessCoordinator
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.maintenance.scrubber import LONGEST_ROUND_SECONDS, Scrubber
from mq.metrics.metrics import Metrics
from mq.transitions.split_merge_requests import MergeRequest, SplitRequest
from tests.support.inline_executor import InlineExecutor
from tests.support.instant_clock import InstantClock
from tests.support.store.dying_store import DyingStore
from tests.support.topic.segment_files import append, value_of
from tests.support.topic.stored_topic import TOPIC, put_topic, write_sealed

PERIOD_DAYS = 30.0
PERIOD_SECONDS = PERIOD_DAYS * 86_400
MOST_BYTES_PER_SECOND = 65_536
GRACE_SECONDS = 60.0
RETENTION_SECONDS = 600.0
FILES = {0: [3, 2, 2], 1: [4, 1]}


class Members:
    """The brokers that live, as one of them sees them."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)

    def brokers(self) -> list[BrokerInfo]:
        return [BrokerInfo(name, "", "", "") for name in self.names]


@dataclass
class Life:
    """One life of a broker's scrub."""

    scrubber: Scrubber
    metrics: Metrics
    draining: asyncio.Event

    @property
    def found(self) -> dict[str, str]:
        """What it tells, by key."""
        return {each["key"]: each["what"] for each in self.scrubber.findings.shown(TOPIC)}

    async def finish(self) -> None:
        """Rounds until nothing is due."""
        while await self.scrubber.round():
            pass


def life(store: Store, clock: ManualClock, name: str = "b", members: Members | None = None) -> Life:
    metrics, draining = Metrics(), asyncio.Event()
    scrubber = Scrubber(
        broker=name,
        store=store,
        clock=clock,
        catalogue=Catalogue(store, clock),
        coordinator=members or Members(name),  # type: ignore[arg-type]
        metrics=metrics,
        pool=InlineExecutor(),
        draining=draining,
        period_days=PERIOD_DAYS,
        most_bytes_per_second=MOST_BYTES_PER_SECOND,
    )
    return Life(scrubber, metrics, draining)


class WatchedStore(ForwardingStore):
    """Notes when which bytes of segment files are read. Calls `before_get` before each read of one."""

    def __init__(self, inner: Store, clock: ManualClock) -> None:
        super().__init__(inner)
        self._clock = clock
        self.reads: list[tuple[float, str, int]] = []
        self.before_get: Callable[[], Awaitable[None]] | None = None

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        if ".parquet" in key and self.before_get is not None:
            await self.before_get()
        fetched = await self.inner.get(key, start=start, stop=stop)
        if ".parquet" in key:
            self.reads.append((self._clock.monotonic_seconds(), key, len(fetched.data)))
        return fetched

    def times_read(self) -> Counter[str]:
        """How many times each file was read."""
        return Counter(key for _, key, _ in self.reads)


@dataclass
class World:
    """A store in memory with two sealed segments, one with a snapshot, and an open one."""

    clock: InstantClock = field(default_factory=InstantClock)
    keys: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = MemoryStore(clock=self.clock)
        self.watched = WatchedStore(self.store, self.clock)

    async def overwrite(self, key: str, data: bytes) -> None:
        info = await self.store.head(key)
        await self.store.replace(key, data, etag=info.etag)

    async def damage(self, key: str, kind: str) -> bytes:
        """Delete it, cut it, or flip one bit of it. Returns what it was."""
        data, chance = (await self.store.get(key)).data, random.Random(f"{kind} {key}")
        if kind == "deleted":
            await self.store.delete([key])
        elif kind == "cut":
            await self.overwrite(key, data[: chance.randrange(len(data))])
        else:
            changed = bytearray(data)
            changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            await self.overwrite(key, bytes(changed))
        return data


def segment_file(segment: int, base: int) -> str:
    return keys.segment_file(TOPIC, segment, FileName(base))


@pytest.fixture
async def world() -> World:
    made = World()
    ends = {
        segment: await write_sealed(made.store, SegmentRef(TOPIC, segment), counts) for segment, counts in FILES.items()
    }
    index = SegmentIndex()
    for _ in range(3):
        await append(made.store, SegmentRef(TOPIC, 2), index, 2)
    await put_topic(made.store, ends=ends)
    sealed = await recover_index(made.store, SegmentRef(TOPIC, 0))
    await made.store.create(keys.index_snapshot(TOPIC, 0), to_snapshot(sealed))
    made.keys = [info.key async for info in made.store.list(keys.topic_folder(TOPIC))]
    return made


async def test_a_sound_topic_is_read_once_in_each_period_and_nothing_is_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    files = {key for key in world.keys if ".parquet" in key}
    for period in range(1, 4):
        scrub = life(world.watched, world.clock)
        await scrub.finish()
        assert {key for key, times in world.watched.times_read().items() if times} == files
        read = len(world.watched.reads)
        for _ in range(10):
            await world.clock.sleep(PERIOD_SECONDS / 11)
            await scrub.finish()
        assert len(world.watched.reads) == read, f"read again within period {period}"
        await world.clock.sleep(PERIOD_SECONDS / 11 + 1)
        world.watched.reads.clear()
        assert scrub.found == {}
    assert caplog.records == []


# What names cannot show (docs/reliability.md) is left out, and the record: the catalogue tells that one.
DAMAGES = [
    (key, kind)
    for key in (
        keys.index_snapshot(TOPIC, 0),
        *(segment_file(segment, base) for segment, bases in ((0, (0, 3, 5, 7)), (1, (0, 4, 5))) for base in bases),
        *(segment_file(2, base) for base in (0, 2, 4)),
    )
    for kind in ("flipped", "cut", "deleted")
    if not (kind == "deleted" and key in (segment_file(2, 4), keys.index_snapshot(TOPIC, 0)))
]


@pytest.mark.parametrize("kind", ["cut", "deleted"])
async def test_payloads_are_read_too(world: World, kind: str) -> None:
    index = await recover_index(world.store, SegmentRef(TOPIC, 2))
    await append(world.store, SegmentRef(TOPIC, 2), index, 3, uris=["uploads/u", "uploads/v"])
    payloads = [keys.topic_folder(TOPIC) + uri for uri in ("uploads/u", "uploads/v")]
    for key in payloads:
        await world.store.create(key, b"1")
    before = await world.damage(payloads[1], kind)
    scrub = life(world.watched, world.clock)
    await scrub.finish()
    assert scrub.found == {payloads[1]: "missing" if kind == "deleted" else "damaged"}
    await (world.store.create if kind == "deleted" else world.overwrite)(payloads[1], before)
    await world.clock.sleep(CHECK_AGAIN_SECONDS[0] + 1)
    await scrub.finish()
    assert scrub.found == {}


@pytest.mark.parametrize(("key", "kind"), DAMAGES)
async def test_each_damage_is_told_once_and_no_more_once_it_is_mended(
    world: World, caplog: pytest.LogCaptureFixture, key: str, kind: str
) -> None:
    before = await world.damage(key, kind)
    scrub = life(world.watched, world.clock)
    for _ in range(3):
        await scrub.finish()
    assert scrub.found == {key: "missing" if kind == "deleted" else "damaged"}
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert key in told[0]
    what = "missing" if kind == "deleted" else "damaged"
    assert f'braidmq_scrub_findings{{kind="{what}",topic="t"}} 1.0' in b"".join(scrub.metrics.pieces()).decode()
    # Another broker, which has read nothing, tells it as well.
    other = life(world.watched, world.clock, "z", Members("b"))
    await other.finish()
    assert other.found == scrub.found
    caplog.clear()
    if kind == "deleted":
        await world.store.create(key, before)
    else:
        await world.overwrite(key, before)
    await world.clock.sleep(7200)
    await scrub.finish()
    assert scrub.found == {}
    assert [key in record.getMessage() for record in caplog.records] == [True]


async def live_until_all_is_read(world: World) -> int:
    """One round after the other, each by another broker. Returns how many it took."""
    for lives in count(1):
        await life(world.watched, world.clock, f"b{lives}").scrubber.round()
        record = await read_scrub(world.store, TOPIC)
        if all(record.of(segment).read_us for segment in (0, 1, 2)):
            return lives
        assert lives < 100
    raise AssertionError


@pytest.mark.parametrize("base", range(2, 22, 2))
async def test_an_exchanged_file_is_found_wherever_a_reading_was_interrupted(world: World, base: int) -> None:
    """Time passes with each read, so a round ends after a few files."""
    ref, index = SegmentRef(TOPIC, 2), await recover_index(world.store, SegmentRef(TOPIC, 2))
    other, other_index = MemoryStore(), SegmentIndex()
    for _ in range(9):
        await append(world.store, ref, index, 2)
    for _ in range(12):
        await append(other, ref, other_index, 2, padding=b"of another life")
    await world.store.create(keys.index_snapshot(TOPIC, 2), to_snapshot(index))
    await world.overwrite(segment_file(2, base), (await other.get(segment_file(2, base))).data)

    async def pass_time() -> None:
        await world.clock.sleep(LONGEST_ROUND_SECONDS)

    world.watched.before_get = pass_time
    assert await live_until_all_is_read(world) > 5
    scrub = life(world.store, InstantClock(), "z", Members("b"))
    await scrub.finish()
    assert scrub.found == {segment_file(2, base): "damaged", segment_file(2, base + 2): "damaged"}


async def test_no_more_bytes_in_any_time_than_the_rate_allows(world: World) -> None:
    ref, index = SegmentRef(TOPIC, 2), await recover_index(world.store, SegmentRef(TOPIC, 2))
    for _ in range(20):
        await append(world.store, ref, index, 3, padding=random.Random(1).randbytes(100_000))
    await life(world.watched, world.clock).finish()
    reads = world.watched.reads
    assert sum(size_bytes for *_, size_bytes in reads) > 60 * 100_000
    for first in range(len(reads)):
        total = 0
        for at_seconds, _, size_bytes in reads[first:]:
            # The newest read is paid for after it.
            assert total <= MOST_BYTES_PER_SECOND * (at_seconds - reads[first][0]) + 1
            total += size_bytes


async def test_it_goes_on_after_restarts_and_reads_hardly_anything_twice(world: World) -> None:
    ref, index = SegmentRef(TOPIC, 2), await recover_index(world.store, SegmentRef(TOPIC, 2))
    for _ in range(400):
        await append(world.store, ref, index, 1, padding=random.Random(1).randbytes(400_000))
    await world.damage(segment_file(2, 10), "flipped")
    lives = await live_until_all_is_read(world)
    assert lives > 3
    scrub = life(world.store, InstantClock(), "z", Members("b"))
    await scrub.finish()
    assert scrub.found == {segment_file(2, 10): "damaged"}
    wholes = [key for _, key, size_bytes in world.watched.reads if size_bytes > 300_000]
    assert len(wholes) <= 400 + 3 * lives


async def test_killed_at_any_request_it_finds_the_same_in_its_next_life(world: World) -> None:
    await world.damage(segment_file(0, 3), "flipped")
    plain = DyingStore(world.store)
    await life(plain, InstantClock()).finish()
    for request in range(plain.requests):
        for before in (True, False):
            await world.store.delete([keys.scrub_record(TOPIC)])
            dying = DyingStore(world.store).die_at(request, before=before)
            # The pauses of failed work take every exception, as they would take those of a store.
            await life(dying, world.clock).scrubber.round()
            again = life(world.store, world.clock)
            await again.finish()
            assert again.found == {segment_file(0, 3): "damaged"}, (request, before)
            record = await read_scrub(world.store, TOPIC)
            assert [each.segment for each in record.segments] == [RECORDS, 0, 1, 2]


async def test_brokers_share_the_segments(world: World) -> None:
    members = Members("a", "b", "c")
    stores = [WatchedStore(world.store, world.clock) for _ in members.names]
    for name, store in zip(members.names, stores, strict=True):
        await life(store, world.clock, name, members).finish()
    # A broker that began later finds the work done by others; nobody reads the segment of another.
    read = [{key.rpartition("/")[0] for key in store.times_read()} for store in stores]
    assert sum(map(len, read)) == len(set().union(*read)) == 3


async def test_a_damaged_record_of_the_scrub_costs_one_more_reading(world: World) -> None:
    scrub = life(world.watched, world.clock)
    await scrub.finish()
    await world.overwrite(keys.scrub_record(TOPIC), b"{not json")
    world.watched.reads.clear()
    await scrub.finish()
    assert len(world.watched.times_read()) == 10
    world.watched.reads.clear()
    await scrub.finish()
    assert world.watched.reads == []


async def test_a_draining_broker_stops_at_once(world: World) -> None:
    scrub = life(world.watched, world.clock)

    async def drain() -> None:
        scrub.draining.set()

    world.watched.before_get = drain
    await scrub.finish()
    assert len(world.watched.times_read()) <= len(FILES[0]) + 1


@pytest.fixture
async def live() -> AsyncIterator[tuple[Broker, MemoryStore, ManualClock]]:
    """A broker of which only the test begins rounds, with a topic of many small files."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    settings = BrokerSettings(grace=GRACE_SECONDS, rollup_age=30, maintenance_interval=3600, report_interval=3600)
    broker = Broker(store, clock, InProcessCoordinator(), settings)
    await broker.start("http://127.0.0.1:1")
    for task in asyncio.all_tasks():
        if task.get_name() in ("maintenance", "scrub"):
            task.cancel()
    await broker.administration.put(TOPIC, {"segments": 2, "retention": {"seconds": RETENTION_SECONDS}})
    await publish(broker)
    yield broker, store, clock
    await broker.close()


async def publish(broker: Broker) -> None:
    runtime = await broker.topics.topic(TOPIC)
    for number in range(12):
        await runtime.publisher.publish_single(Single(b"%d" % number, value_of(number), None, None), 20)


async def rolled_up(broker: Broker, clock: ManualClock) -> None:
    await clock.advance(31)
    await broker.maintenance.round()
    await clock.advance(GRACE_SECONDS + 1)
    await broker.maintenance.round()


async def split_and_merged(broker: Broker, clock: ManualClock) -> None:
    runtime = await broker.topics.topic(TOPIC)
    first, second, *_ = (segment.id for segment in runtime.state.open_segments)
    await broker.administration.split_or_merge(TOPIC, MergeRequest(first, second))
    await broker.administration.split_or_merge(TOPIC, SplitRequest(runtime.state.open_segments[0].id))
    await publish(broker)


async def expired(broker: Broker, clock: ManualClock) -> None:
    await clock.advance(RETENTION_SECONDS + 1)
    await publish(broker)
    for _ in range(3):
        await broker.maintenance.round()
        await clock.advance(GRACE_SECONDS + 1)


async def deleted(broker: Broker, clock: ManualClock) -> None:
    await broker.administration.delete(TOPIC)
    for _ in range(2):
        await clock.advance(GRACE_SECONDS + 1)
        await broker.maintenance.round()


@pytest.mark.parametrize("change", [rolled_up, split_and_merged, expired, deleted])
@pytest.mark.parametrize("at", [0, 1, 2, 5, 8, 13, 17])
async def test_what_brokers_change_in_the_middle_of_a_reading_is_no_loss(
    live: tuple[Broker, MemoryStore, ManualClock],
    change: Callable[[Broker, ManualClock], Awaitable[None]],
    at: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker, store, clock = live
    # The scrub's own time goes by itself; it is a period later.
    own = InstantClock()
    await own.sleep(PERIOD_SECONDS + 86_400)
    watched = WatchedStore(store, own)
    gets = count()

    async def change_once() -> None:
        if next(gets) == at:
            await change(broker, clock)

    watched.before_get = change_once
    scrub = life(watched, own)
    await scrub.finish()
    assert next(gets) > at, "the change was never made"
    assert scrub.found == {}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    watched.before_get = None
    await own.sleep(PERIOD_SECONDS)
    await scrub.finish()
    assert scrub.found == {}


async def test_what_waits_longest_waits_on_while_a_file_is_read(world: World) -> None:
    """However long that takes: a scrub that hangs is seen by what it has not read."""
    scrub = life(world.watched, world.clock)
    assert scrub.scrubber.oldest_seconds == 0
    await scrub.finish()
    await world.clock.sleep(PERIOD_SECONDS * 1.25)
    seen: list[float] = []

    async def takes_its_time() -> None:
        if not seen:
            await world.clock.sleep(PERIOD_SECONDS)
        seen.append(scrub.scrubber.oldest_seconds)

    world.watched.before_get = takes_its_time
    await scrub.finish()
    assert seen[0] == pytest.approx(PERIOD_SECONDS * 2.25, rel=0.01)
    await scrub.finish()
    assert scrub.scrubber.oldest_seconds < PERIOD_SECONDS
