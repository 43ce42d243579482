"""What is lost is given up by one change of topic.json: readers of bare stores pass it by, and it never comes back."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from filer import keys
from filer.clock import ManualClock
from filer.errors import BraidError, DataMissing, OutcomeUnknown
from filer.format.segment_file import Footer, encode
from filer.keys import FileName
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import MOST_IN_A_FILE, SegmentRef, recover_index, seal_at_end
from filer.segment.snapshot_format import to_snapshot
from filer.segment.writer.ownership_proof import OwnershipProof, TopicRecordChecks
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Store
from filer.topic.catalogue import Catalogue, TopicRecord
from filer.topic.cluster_record import ClusterRecord, ClusterSettings
from filer.topic.known_records import OlderRecord
from filer.topic.record_check import with_check
from filer.topic.topic_state import TopicState
from filer.upkeep.rollup import roll_up
from filer.verification.giving_up import NotLost, give_up
from filer.verification.losses import Loss, find_losses
from filer.verification.stored_topic import verify_topic
from mq.base.settings import BrokerSettings
from pipeline.topic_files import list_topic
from tests.support.segment.segment_owners import still_there
from tests.support.segment.upkeeps import run_until_idle, upkeep_of
from tests.support.store.dying_store import DyingStore, Killed
from tests.support.topic.segment_files import START_US, append, exists, read_by_index, rows
from tests.support.topic.stored_topic import TOPIC, put_topic, write_sealed

GRACE_SECONDS = 3600.0


class Topic:
    """A topic in memory: segment 0, sealed, of files of 3, 2 and 2 messages; segment 1, open, of 2, 2 and 2."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.catalogue = Catalogue(store, self.clock)

    async def state(self) -> TopicState:
        record = await self.catalogue.read(TOPIC)
        assert record is not None
        return record.state

    async def ref(self, segment: int) -> SegmentRef:
        state = await self.state()
        found = state.segment(segment)
        assert found is not None
        return SegmentRef.of(state, found)

    async def losses(self) -> list[Loss]:
        return [loss async for loss in find_losses(self.store, await self.state())]

    async def repair(self) -> list[tuple[int, int, int | None]]:
        """Give up all that is lost, once it has been so for a while; returns its segments and offsets."""
        await self.clock.advance(GRACE_SECONDS)
        losses = await self.losses()
        await give_up(self.store, self.clock, self.catalogue, TOPIC, losses)
        return [(loss.segment, loss.offset, loss.next_offset) for loss in losses]

    async def read(self, segment: int) -> list[int]:
        """The offsets that a broker reads from the segment's files, from one hole to the next."""
        ref, found, offset = await self.ref(segment), list[int](), 0
        index = await recover_index(self.store, ref)
        while offset < index.end:
            files = index.readable(offset)
            if not files:
                break
            found += range(max(files[0].start, offset), files[0].end)
            offset = files[0].end
        assert await read_by_index(self.store, ref, index) == found
        return found

    async def wrong(self) -> list[str]:
        """The conditions that a check of the whole topic finds, other than ok."""
        return [v.condition async for v in verify_topic(self.store, self.catalogue, TOPIC) if v.condition != "ok"]

    def key(self, segment: int, base: int, end: int | None = None) -> str:
        return keys.segment_file(TOPIC, segment, FileName(base, end))

    async def lose(self, key: str) -> bytes:
        data = (await self.store.get(key)).data
        await self.store.delete([key])
        return data

    async def damage(self, key: str, at: int) -> bytes:
        """Flip a bit of the byte `at`; a negative one counts from the end."""
        data = await self.lose(key)
        changed = bytearray(data)
        changed[at] ^= 4
        await self.store.create(key, bytes(changed))
        return data

    async def put_back(self, key: str, data: bytes) -> None:
        await self.store.delete([key])
        await self.store.create(key, data)


async def store_settings(store: Store) -> None:
    cluster = ClusterRecord(format=1, cluster=BrokerSettings().cluster, id="stored", upload_secret="c2VjcmV0")
    settings = ClusterSettings(cluster=cluster, grace_seconds=GRACE_SECONDS)
    await store.create(keys.CLUSTER_SETTINGS, with_check(settings.model_dump_json().encode()))


async def fill(store: Store) -> None:
    end = await write_sealed(store, SegmentRef(TOPIC, 0), [3, 2, 2])
    index = SegmentIndex()
    for _ in range(3):
        await append(store, SegmentRef(TOPIC, 1), index, 2)
    await put_topic(store, ends={0: end})
    await store_settings(store)


async def topic_in_memory() -> Topic:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    await fill(store)
    return Topic(store, clock)


@pytest.fixture
async def topic() -> Topic:
    return await topic_in_memory()


LOSSES = [
    ((0, 3), "lost", (0, 3, 5), "the middle of a sealed segment"),
    ((0, 0), "lost", (0, 0, 3), "its first file"),
    ((0, 5), "lost", (0, 5, 7), "its last file with messages"),
    ((0, 7), "lost", (0, 7, 7), "its seal"),
    ((0, 3), "row", (0, 3, 5), "damaged rows of a sealed segment"),
    ((0, 3), "footer", (0, 3, 5), "a damaged footer of a sealed segment"),
    ((0, 5), "footer", (0, 5, 7), "a damaged footer before its seal"),
    ((0, 7), "footer", (0, 7, 7), "a damaged seal"),
    ((1, 2), "lost", (1, 2, 4), "the middle of an open segment"),
    ((1, 2), "footer", (1, 2, 4), "a damaged footer in an open segment"),
    ((1, 4), "row", (1, 4, 6), "damaged rows of the last file of an open segment"),
    ((1, 4), "footer", (1, 4, None), "a damaged footer of the last file of an open segment"),
]


async def harm(topic: Topic, segment: int, base: int, kind: str) -> bytes:
    key = topic.key(segment, base)
    return await (topic.lose(key) if kind == "lost" else topic.damage(key, 10 if kind == "row" else -20))


@pytest.mark.parametrize(("file", "kind", "loss", "what"), LOSSES, ids=[each[3] for each in LOSSES])
async def test_what_is_lost_is_given_up_and_never_comes_back(
    topic: Topic, file: tuple[int, int], kind: str, loss: tuple[int, int, int | None], what: str
) -> None:
    segment, start, stop = loss
    before = [await topic.read(each) for each in (0, 1)]
    kept = [o for o in before[segment] if o < start or (stop is not None and o >= stop)]
    data = await harm(topic, *file, kind)
    assert await topic.repair() == [loss]
    assert set(await topic.wrong()) == {"given up"}
    assert await topic.read(segment) == kept
    assert await topic.read(1 - segment) == before[1 - segment]
    # Once more: nothing is left to do, and the record stays.
    version = (await topic.state()).version
    assert await topic.repair() == []
    assert (await topic.state()).version == version
    # Put back, it is not read again; but a seal tells nothing wrong.
    await topic.put_back(topic.key(*file), data)
    assert await topic.read(segment) == kept
    assert await topic.losses() == []
    assert "damaged" not in await topic.wrong() and "missing" not in await topic.wrong()


@pytest.mark.parametrize("kind", ["lost", "footer", "row"])
async def test_the_jobs_pass_it_by(topic: Topic, kind: str) -> None:
    await harm(topic, 0, 3, kind)
    if kind == "lost":
        listed = await list_topic(topic.store, await topic.state())
        assert [(file.start, file.stop) for file in listed[0].files] == [(0, 5), (5, 7)], "names alone do not show it"
    await topic.repair()
    listed = await list_topic(topic.store, await topic.state())
    assert [(file.start, file.stop) for file in listed[0].files if file.start < file.stop] == [(0, 3), (5, 7)]
    # What is lost after that is not passed by.
    await topic.lose(topic.key(0, 5))
    with pytest.raises(DataMissing, match=topic.key(0, 5)):
        await list_topic(topic.store, await topic.state())


async def test_the_segment_goes_on_behind_it(topic: Topic) -> None:
    await harm(topic, 1, 4, "row")
    await topic.repair()
    ref = await topic.ref(1)
    index = await recover_index(topic.store, ref)
    await append(topic.store, ref, index, 2)
    assert await topic.read(1) == [0, 1, 2, 3, 6, 7]
    assert set(await topic.wrong()) == {"given up"}


async def sealed(topic: Topic, segment: int) -> SegmentIndex:
    ref = await topic.ref(segment)
    return await seal_at_end(
        topic.store, topic.clock, ref, start_offset=0, writer="sealer", grace_seconds=GRACE_SECONDS
    )


async def test_a_segment_with_a_damaged_end_can_be_sealed_again(topic: Topic) -> None:
    data = await harm(topic, 1, 4, "footer")
    with pytest.raises(BraidError, match="unknown where the segment ends"):
        await sealed(topic, 1)
    await topic.repair()
    index = await sealed(topic, 1)
    # Nothing shows how far it reached, so the seal is where it cannot have reached.
    assert index.sealed and index.end == 4 + MOST_IN_A_FILE
    assert (await sealed(topic, 1)).end == index.end
    assert await topic.read(1) == [0, 1, 2, 3]
    await topic.put_back(topic.key(1, 4), data)
    assert await topic.read(1) == [0, 1, 2, 3]
    assert (await recover_index(topic.store, await topic.ref(1))).end == index.end


async def test_an_owner_that_was_paused_may_not_store_behind_it_unseen(topic: Topic) -> None:
    """Its last put may be its proof for half a grace period. After that it looks, and finds what became of its file."""
    await harm(topic, 1, 4, "footer")
    losses = await topic.losses()
    with pytest.raises(NotLost, match="run this again in 1800 s"):
        await give_up(topic.store, topic.clock, topic.catalogue, TOPIC, losses)
    ref = await topic.ref(1)
    await topic.repair()
    await sealed(topic, 1)
    # Awake again, it puts its next file by what it knew. Nobody was told of the loss behind that file.
    proof = OwnershipProof(
        topic.store,
        topic.clock,
        ref,
        SegmentIndex(),
        checks=TopicRecordChecks(still_there),
        grace_seconds=GRACE_SECONDS,
    )
    late = Footer(1, 6, 1, "owner/late", START_US, START_US)
    await topic.store.create(ref.key(FileName(6)), bytes(encode(ref.schema.in_file(rows(ref, 6, 1)), late)))
    with pytest.raises(OutcomeUnknown, match="after its segment had been sealed"):
        await proof.has_moved_on(late)


async def test_an_owner_that_lives_goes_on_where_it_was(topic: Topic) -> None:
    """It knows how far its damaged last file reached, and its next file tells the others."""
    ref = await topic.ref(1)
    owned = await recover_index(topic.store, ref)
    await harm(topic, 1, 4, "footer")
    await topic.repair()
    assert owned.give_up((await topic.ref(1)).given_up) and owned.end == 6
    await append(topic.store, ref, owned, 3)
    assert await topic.read(1) == [0, 1, 2, 3, 6, 7, 8]
    assert (await sealed(topic, 1)).end == 9
    assert await topic.read(1) == [0, 1, 2, 3, 6, 7, 8]


async def test_a_snapshot_that_knows_the_file_changes_nothing(topic: Topic) -> None:
    ref = await topic.ref(0)
    snapshot = to_snapshot(await recover_index(topic.store, ref))
    await topic.store.create(keys.index_snapshot(TOPIC, 0), snapshot)
    data = await harm(topic, 0, 3, "row")
    await topic.repair()
    assert await topic.read(0) == [0, 1, 2, 5, 6]
    await topic.put_back(topic.key(0, 3), data)
    assert await topic.read(0) == [0, 1, 2, 5, 6]


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


async def rolled_up(topic: Topic, executor: ThreadPoolExecutor) -> str:
    """Roll up the files of segment 0; returns the key of the roll-up."""
    ref = await topic.ref(0)
    index = await recover_index(topic.store, ref)
    run = [facts for facts in index.files if facts.count]
    rolled = await roll_up(topic.store, topic.clock, ref, run, broker="b", executor=executor, share=1.0)
    return ref.key(rolled.name)


async def test_a_lost_roll_up(topic: Topic, executor: ThreadPoolExecutor) -> None:
    key = await rolled_up(topic, executor)
    await topic.store.delete([topic.key(0, base) for base in (0, 3, 5)])
    data = await topic.lose(key)
    assert await topic.repair() == [(0, 0, 7)]
    assert await topic.read(0) == [] and set(await topic.wrong()) == {"given up"}
    await topic.put_back(key, data)
    assert await topic.read(0) == [] and set(await topic.wrong()) == {"given up"}


async def test_nothing_is_given_up_that_another_file_holds(topic: Topic, executor: ThreadPoolExecutor) -> None:
    """What a roll-up has replaced is there for a grace period."""
    key = await rolled_up(topic, executor)
    data = await topic.damage(key, 10)
    with pytest.raises(DataMissing, match="is still there: nothing is lost"):
        await topic.losses()
    await topic.put_back(key, data)
    assert await topic.losses() == []


async def test_what_a_roll_up_has_replaced_stays_if_it_does_not_count(
    topic: Topic, executor: ThreadPoolExecutor
) -> None:
    """A roll-up of before reaches into what is given up: it does not count, so the files that it replaced must stay."""
    key = await rolled_up(topic, executor)
    rolled = await topic.lose(key)
    lost = await topic.lose(topic.key(0, 3))
    assert await topic.repair() == [(0, 3, 5)]
    await topic.put_back(key, rolled)
    await topic.put_back(topic.key(0, 3), lost)
    assert await topic.read(0) == [0, 1, 2, 5, 6]
    clock, ref = ManualClock(), await topic.ref(0)
    for hours in range(3):
        await clock.advance(hours * GRACE_SECONDS)
        if hours == 2:
            # Nobody reads it any more: a damaged one keeps nobody from the upkeep of the others.
            await topic.damage(key, 10)
        index = await recover_index(topic.store, ref)
        await run_until_idle(upkeep_of(topic.store, clock, ref, index, executor))
    for base in (0, 3, 5):
        assert await exists(topic.store, topic.key(0, base))
    assert await topic.read(0) == [0, 1, 2, 5, 6]


async def test_what_can_be_read_again_is_not_given_up(topic: Topic) -> None:
    data = await harm(topic, 0, 3, "row")
    losses = await topic.losses()
    await topic.put_back(topic.key(0, 3), data)
    with pytest.raises(NotLost, match="can be read by now"):
        await give_up(topic.store, topic.clock, topic.catalogue, TOPIC, losses)
    assert (await topic.state()).version == 1


async def test_a_look_that_took_too_long_gives_nothing_up() -> None:
    topic = await topic_in_memory()
    clock, store = topic.clock, topic.store
    await harm(topic, 0, 3, "lost")
    losses = await topic.losses()

    class Slow(Catalogue):
        async def read(self, topic: str) -> TopicRecord | None:
            await clock.advance(GRACE_SECONDS)
            return await super().read(topic)

    with pytest.raises(NotLost, match="more than half of the grace period"):
        await give_up(store, clock, Slow(store, clock), TOPIC, losses)
    assert (await topic.state()).version == 1


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_killed_at_any_request_it_is_given_up_whole_or_not_at_all(before: bool) -> None:
    request = 0
    while True:
        topic = await topic_in_memory()
        store = topic.store
        await harm(topic, 0, 3, "lost")
        await harm(topic, 1, 2, "footer")
        dying = DyingStore(store).die_at(request, before=before)
        try:
            await Topic(dying, topic.clock).repair()
        except Killed:
            state = await topic.state()
            given_up = [bool(segment.given_up) for segment in state.segments]
            assert given_up in ([True, True], [False, False])
            # Whoever repeats it comes to the same end.
            await topic.repair()
            assert [await topic.read(0), await topic.read(1)] == [[0, 1, 2, 5, 6], [0, 1, 4, 5]]
            assert set(await topic.wrong()) == {"given up"}
            request += 1
            continue
        break
    assert request > 10


async def test_a_topic_json_of_given_up_ranges_keeps_its_check_and_its_history(topic: Topic) -> None:
    await harm(topic, 0, 3, "lost")
    await topic.repair()
    state = await topic.state()
    [given_up] = state.segments[0].given_up
    assert (given_up.offset, given_up.next_offset, given_up.what) == (3, 5, "missing")
    assert given_up.key == topic.key(0, 3) and given_up.since_us > 0
    await topic.catalogue.write_history(TOPIC, [state.segments[0]])
    [kept] = await topic.catalogue.read_history(TOPIC, after=-1, limit=10)
    assert kept.given_up == (given_up,)


@pytest.mark.parametrize("is_current", [True, False])
async def test_a_maintainer_that_knows_of_nothing_deletes_nothing(
    topic: Topic, executor: ThreadPoolExecutor, is_current: bool
) -> None:
    """It has rolled up, and waited for the grace period: only the record tells that its roll-up does not count."""
    ref, clock = await topic.ref(0), topic.clock
    index = await recover_index(topic.store, ref)
    run = [facts for facts in index.files if facts.count]
    rolled = await roll_up(topic.store, clock, ref, run, broker="b", executor=executor, share=1.0)
    index.supersede(rolled, clock.now_us())

    async def looked() -> bool:
        return is_current or (await topic.ref(0)).given_up == ref.given_up

    upkeep = upkeep_of(topic.store, clock, ref, index, executor, is_current=looked)
    await upkeep.run(rollup_bytes=1 << 20, start_offset=0)
    data = await topic.lose(ref.key(rolled.name))
    lost = await topic.lose(topic.key(0, 3))
    assert await topic.repair() == [(0, 3, 5)]
    await topic.put_back(ref.key(rolled.name), data)
    await topic.put_back(topic.key(0, 3), lost)
    for _ in range(4):
        await clock.advance(GRACE_SECONDS)
        await upkeep.run(rollup_bytes=1 << 20, start_offset=0)
    assert await exists(topic.store, topic.key(0, 5)) is not is_current
    if not is_current:
        assert await topic.read(0) == [0, 1, 2, 5, 6]


async def test_an_older_record_does_not_bring_back_what_is_given_up(topic: Topic) -> None:
    before = (await topic.store.get(keys.topic(TOPIC))).data
    await harm(topic, 0, 3, "lost")
    await topic.repair()
    await topic.put_back(keys.topic(TOPIC), before)
    with pytest.raises(OlderRecord, match="older"):
        await Catalogue(topic.store, topic.clock).read(TOPIC)


class _Meddled(Catalogue):
    """Before it marks a version, somebody puts an older record back, and a broker goes on from that."""

    def __init__(self, store: Store, clock: ManualClock, older: TopicState) -> None:
        super().__init__(store, clock)
        self._meddled_store, self._older = store, older

    async def mark(self, topic: str, version: int) -> None:
        key = keys.topic(topic)
        etag = (await self._meddled_store.head(key)).etag
        state = self._older.model_copy(update={"version": version + 1})
        await self._meddled_store.replace(key, state.to_json(), etag=etag)
        await super().mark(topic, version)


async def test_an_older_record_that_is_put_back_meanwhile_is_told(topic: Topic) -> None:
    older = await topic.state()
    await harm(topic, 0, 3, "lost")
    losses = await topic.losses()
    with pytest.raises(OutcomeUnknown, match="does not say any more what is given up"):
        await give_up(topic.store, topic.clock, _Meddled(topic.store, topic.clock, older), TOPIC, losses)
    await topic.repair()
    assert await topic.read(0) == [0, 1, 2, 5, 6]
