"""A topic.json that is gone, or older than one that was there, is told, and nothing is built on it."""

from collections.abc import AsyncIterator, Sequence

import pytest

from filer import keys
from filer.errors import CorruptFile, DataMissing, UnreadableObject
from filer.keys import FileName
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import FaultKind, ScriptedFaults
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import ObjectInfo
from filer.topic.catalogue import MOST_IN_ONE_RECORD, Catalogue
from filer.topic.known_records import OlderRecord
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import TopicState
from leader.transitions import new_topic
from tests.support.instant_clock import InstantClock

KEY = keys.topic("t")


class Stopped(Exception):
    """The process stops here."""


def state(segments: int = 2, name: str = "t") -> TopicState:
    return new_topic(name, TopicConfig(), segments, lambda index: ("b",), now_us=0)


def grown(old: TopicState) -> TopicState:
    return old.model_copy(update={"next_segment": old.next_segment + 1})


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def catalogue_of(store: MemoryStore) -> Catalogue:
    """As a broker has it that has just started."""
    return Catalogue(store, InstantClock())


async def put(store: MemoryStore, key: str, data: bytes = b"x") -> None:
    await store.delete([key])
    await store.create(key, data)


async def test_a_topic_without_any_object_does_not_exist(store: MemoryStore) -> None:
    await put(store, "topics/tt/index/0.snapshot")
    assert await catalogue_of(store).read("t") is None


@pytest.mark.parametrize(
    "key",
    [
        keys.segment_file("t", 0, FileName(0)),
        keys.index_snapshot("t", 3),
        keys.history("t", 0, 4),
        keys.upload("t", "an-upload"),
    ],
)
async def test_a_record_is_missing_where_the_topic_has_other_objects(store: MemoryStore, key: str) -> None:
    await put(store, key)
    with pytest.raises(DataMissing, match=KEY) as missing:
        await catalogue_of(store).read("t")
    assert missing.value.key == KEY


async def test_a_record_that_was_seen_is_missing_without_any_object(store: MemoryStore) -> None:
    catalogue = catalogue_of(store)
    await catalogue.create(state())
    data = (await store.get(KEY)).data
    await store.delete([KEY])
    with pytest.raises(DataMissing):
        await catalogue.read("t")
    with pytest.raises(DataMissing):
        await catalogue.change("t", grown)
    await store.create(KEY, data)
    assert await catalogue.read("t") is not None


async def test_an_older_record_is_not_taken_by_who_knows_a_newer_one(store: MemoryStore) -> None:
    catalogue = catalogue_of(store)
    await catalogue.create(state())
    older = (await store.get(KEY)).data
    known = await catalogue.change_record("t", grown)
    newest = (await store.get(KEY)).data
    await put(store, KEY, older)
    for record in (None, known):
        with pytest.raises(OlderRecord, match="version 1, but version 2"):
            await catalogue.change_record("t", grown, known=record)
    assert (await store.get(KEY)).data == older
    await put(store, KEY, newest)
    changed = await catalogue.change("t", grown)
    assert changed is not None and changed.version == 3


async def test_what_another_broker_tells_counts(store: MemoryStore) -> None:
    catalogue = catalogue_of(store)
    await catalogue_of(store).create(state())
    catalogue.saw(state().model_copy(update={"version": 5}))
    with pytest.raises(OlderRecord):
        await catalogue.read("t")


async def test_another_record_of_the_same_version_is_not_taken(store: MemoryStore) -> None:
    catalogue = catalogue_of(store)
    await put(store, KEY, state().to_json())
    await catalogue.read("t")
    await put(store, KEY, state(3).to_json())
    with pytest.raises(OlderRecord, match="other content"):
        await catalogue.read("t")


@pytest.mark.parametrize(
    "key",
    [
        keys.segment_file("t", 2, FileName(0)),
        keys.segment_file("t", 10**6, FileName(0)),
        keys.history("t", 2, 2),
        keys.history("t", 0, 2),
        keys.history("t", 40_000, 40_000),
    ],
)
async def test_an_older_record_is_found_by_what_lies_beyond_it(store: MemoryStore, key: str) -> None:
    """By a broker that has never seen a newer one."""
    await put(store, KEY, state(2).to_json())
    await put(store, key)
    with pytest.raises(OlderRecord, match="next segment is 2") as older:
        await catalogue_of(store).read("t")
    assert older.value.key == KEY and isinstance(older.value, CorruptFile)


async def test_a_history_that_begins_long_before_the_next_segment(store: MemoryStore) -> None:
    next_segment = 5 * MOST_IN_ONE_RECORD
    record = state(2).model_copy(update={"next_segment": next_segment})
    await put(store, KEY, record.to_json())
    for first in range(0, next_segment - MOST_IN_ONE_RECORD, MOST_IN_ONE_RECORD):
        await put(store, keys.history("t", first, first + MOST_IN_ONE_RECORD - 1))
    assert await catalogue_of(store).read("t") is not None
    await put(store, keys.history("t", next_segment - MOST_IN_ONE_RECORD + 1, next_segment))
    with pytest.raises(OlderRecord):
        await catalogue_of(store).read("t")


async def test_bulk_loads_and_what_went_before_lie_within_the_record(store: MemoryStore) -> None:
    load = {"id": "l", "first_segment": 20_000, "starts": (0, 9), "reserved_us": 0, "expires_us": 1}
    made = TopicState.model_validate({**state(2).model_dump(), "loads": (load,)})
    await put(store, KEY, made.to_json())
    for segment in (0, 1, 20_000, 20_001):
        await put(store, keys.segment_file("t", segment, FileName(0)))
    assert await catalogue_of(store).read("t") is not None
    await put(store, keys.segment_file("t", 20_002, FileName(0)))
    with pytest.raises(OlderRecord):
        await catalogue_of(store).read("t")


async def test_a_topic_that_goes_on_while_it_is_looked_at_is_not_older(store: MemoryStore) -> None:
    """Another broker opens a segment between the read of the record and the listing of the folders."""
    await put(store, KEY, state(2).to_json())
    catalogue = catalogue_of(store)
    listing = store.list_folders

    async def list_after_a_change(prefix: str) -> list[str]:
        store.list_folders = listing  # type: ignore[method-assign]
        await catalogue_of(store).change("t", grown)
        await put(store, keys.segment_file("t", 2, FileName(0)))
        return list(await listing(prefix))

    store.list_folders = list_after_a_change  # type: ignore[method-assign, assignment]
    record = await catalogue.read("t")
    assert record is not None and record.state.version == 2


async def test_a_record_of_another_topic_is_none_of_this_one(store: MemoryStore) -> None:
    await put(store, KEY, state(name="u").to_json())
    with pytest.raises(CorruptFile, match="another topic"):
        await catalogue_of(store).read("t")


async def test_a_deleted_topic_keeps_its_record(store: MemoryStore) -> None:
    gone = state().model_copy(update={"deleted": True, "segments": (), "next_segment": 9})
    await put(store, KEY, gone.to_json())
    await put(store, keys.segment_file("t", 8, FileName(0)))
    record = await catalogue_of(store).read("t")
    assert record is not None and record.state.deleted


async def test_each_read_is_told(store: MemoryStore) -> None:
    told: list[tuple[str, UnreadableObject | None]] = []
    catalogue = Catalogue(store, InstantClock(), on_read=lambda topic, fault: told.append((topic, fault)))
    await put(store, KEY, b"{")
    with pytest.raises(CorruptFile) as damaged:
        await catalogue.read("t")
    await put(store, KEY, state().to_json())
    await catalogue.read("t")
    assert told == [("t", damaged.value), ("t", None)]


async def marks(store: MemoryStore) -> list[int | None]:
    return [keys.marked_version(info.key) async for info in store.list(keys.version_marks_folder("t"))]


async def test_an_older_record_is_found_by_the_mark_of_a_newer_one(store: MemoryStore) -> None:
    catalogue = catalogue_of(store)
    await catalogue.create(state())
    older = (await store.get(KEY)).data
    await catalogue.change("t", lambda s: s.model_copy(update={"created_us": 7}))
    newest = (await store.get(KEY)).data
    await put(store, KEY, older)
    assert await catalogue_of(store).read("t") is not None, "nothing lies beyond it"
    await catalogue.mark("t", 2)
    with pytest.raises(OlderRecord, match="older than 'topics/t/versions/00000000000000000002'"):
        await catalogue_of(store).read("t")
    await put(store, KEY, newest)
    assert await catalogue_of(store).read("t") is not None


async def test_the_newest_mark_alone_stays(store: MemoryStore) -> None:
    catalogue = catalogue_of(store)
    for version in (1, 2, 5, 4):
        await catalogue.mark("t", version)
    assert await marks(store) == [5]
    await put(store, keys.version_mark("t", 3))
    await catalogue_of(store).mark("t", 5)
    assert await marks(store) == [5]
    await catalogue_of(store).mark("t", 4)
    assert await marks(store) == [5], "a mark never goes back"


class CountingStore(ForwardingStore):
    """Counts listings."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.listings = 0

    def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> AsyncIterator[ObjectInfo]:
        self.listings += 1
        return self.inner.list(prefix, after=after, limit=limit)


@pytest.mark.parametrize(("there", "listings"), [([2], 0), ([], 0), ([1, 2], 1)])
async def test_a_mark_that_was_seen_with_the_record_is_not_looked_for_again(
    store: MemoryStore, there: list[int], listings: int
) -> None:
    await catalogue_of(store).create(state())
    await catalogue_of(store).change("t", grown)
    for version in there:
        await put(store, keys.version_mark("t", version))
    counted = CountingStore(store)
    catalogue = Catalogue(counted, InstantClock())
    await catalogue.read("t")
    before = counted.listings
    await catalogue.mark("t", 2)
    assert counted.listings == before + listings
    assert await marks(store) == [2]
    await catalogue.mark("t", 3)
    assert await marks(store) == [3]


async def test_a_newer_mark_is_found_behind_any_number_of_older_ones(store: MemoryStore) -> None:
    newest = MOST_IN_ONE_RECORD + 1
    await put(store, KEY, state().model_copy(update={"version": newest}).to_json())
    for version in range(1, newest + 1):
        await put(store, keys.version_mark("t", version))
    assert await catalogue_of(store).read("t") is not None
    await put(store, keys.version_mark("t", newest + 1))
    with pytest.raises(OlderRecord):
        await catalogue_of(store).read("t")


async def test_a_mark_that_comes_while_the_record_is_looked_at_is_no_older_record(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = catalogue_of(store)
    await other.create(state())
    list_folders = store.list_folders

    async def overtaken(prefix: str) -> Sequence[str]:
        monkeypatch.setattr(store, "list_folders", list_folders)
        await other.change("t", grown)
        await other.mark("t", 2)
        return await list_folders(prefix)

    monkeypatch.setattr(store, "list_folders", overtaken)
    record = await catalogue_of(store).read("t")
    assert record is not None and record.state.version == 2


@pytest.mark.parametrize("point", ["before create", "after create", "before delete", "after delete"])
async def test_marking_stops_there_and_says_nothing_wrong(store: MemoryStore, point: str) -> None:
    catalogue = catalogue_of(store)
    await catalogue.create(state())
    await catalogue.mark("t", 1)
    await catalogue.change("t", grown)

    def stop(at: str, key: str) -> None:
        if at == point:
            raise Stopped

    stopping = Catalogue(FailingStore(store, ScriptedFaults(), clock=InstantClock(), on_point=stop), InstantClock())
    with pytest.raises(Stopped):
        await stopping.mark("t", 2)
    assert await catalogue_of(store).read("t") is not None
    await catalogue_of(store).mark("t", 2)
    assert await marks(store) == [2]


@pytest.mark.parametrize("kind", [FaultKind.FAIL_BEFORE, FaultKind.LOSE_ANSWER])
async def test_a_mark_whose_put_is_not_answered_is_put_again(store: MemoryStore, kind: FaultKind) -> None:
    faults = ScriptedFaults()
    faults.add("create", kind)
    clock = InstantClock()
    await Catalogue(FailingStore(store, faults, clock=clock), clock).mark("t", 2)
    assert await marks(store) == [2]
