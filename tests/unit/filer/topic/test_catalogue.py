import asyncio
from collections.abc import AsyncIterator, Mapping

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filer import keys
from filer.clock import Clock
from filer.errors import CorruptFile, ObjectNotFound, OutcomeUnknown
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import FaultKind, ScriptedFaults
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Data, Fetched, MakeData, ObjectInfo, Store
from filer.stores.store_time import moment
from filer.topic import catalogue as subject
from filer.topic.catalogue import MOST_IN_ONE_RECORD, TRIES, BrokenInvariant, Catalogue
from filer.topic.topic_config import TopicConfig, parse_config
from filer.topic.topic_state import Segment, TopicState
from leader.transitions import new_topic
from tests.support.instant_clock import InstantClock
from tests.support.thoroughness import few_or_many


def state(name: str = "t") -> TopicState:
    return new_topic(name, TopicConfig(), 2, lambda index: ("b",), now_us=0)


def with_bytes(old: TopicState, size_bytes: int) -> TopicState:
    return old.model_copy(update={"config": parse_config({"retention": {"bytes": size_bytes}}, base=old.config)})


@pytest.fixture
def faults() -> ScriptedFaults:
    return ScriptedFaults()


@pytest.fixture
def catalogue(faults: ScriptedFaults) -> Catalogue:
    clock = InstantClock()
    return Catalogue(FailingStore(MemoryStore(clock=clock), faults, clock=clock), clock)


async def test_topics_are_created_once(catalogue: Catalogue) -> None:
    assert await catalogue.read("t") is None
    assert await catalogue.create(state())
    assert not await catalogue.create(with_bytes(state(), 5))
    record = await catalogue.read("t")
    assert record is not None and record.state == state()


class _SlowToAnswer(ForwardingStore):
    """Answers a put ten seconds after it was sent."""

    def __init__(self, inner: Store, clock: Clock) -> None:
        super().__init__(inner)
        self._clock = clock

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        await super().create(key, data, metadata=metadata)
        await self._clock.sleep(10)


async def test_a_topic_counts_as_created_from_before_its_put() -> None:
    """What an owner proves by it may not be younger than it is, however late the answer comes."""
    clock = InstantClock()
    store = _SlowToAnswer(MemoryStore(clock=clock), clock)
    before = moment(store.time, clock)
    assert await Catalogue(store, clock).create(state()) == before
    assert clock.monotonic_seconds() >= before.monotonic_seconds + 10


class _CreatedMeanwhile(ForwardingStore):
    """Another task creates the topic after its record was looked for, and before anything else of it is."""

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        try:
            return await super().get(key, start=start, stop=stop)
        except ObjectNotFound:
            await super().create(key, state().to_json())
            raise


async def test_a_topic_that_is_created_while_it_is_looked_for_is_not_called_lost() -> None:
    clock = InstantClock()
    record = await Catalogue(_CreatedMeanwhile(MemoryStore(clock=clock)), clock).read("t")
    assert record is not None and record.state == state()


async def test_names_in_order(catalogue: Catalogue) -> None:
    for name in ("b", "a", "c"):
        await catalogue.create(state(name))
    assert await catalogue.names() == ["a", "b", "c"]
    assert await catalogue.names(after="a") == ["b", "c"]


async def test_creation_of_unknown_outcome(catalogue: Catalogue, faults: ScriptedFaults) -> None:
    faults.add("create", FaultKind.LOSE_ANSWER)
    assert not await catalogue.create(state())
    assert await catalogue.read("t") is not None
    faults.add("create", FaultKind.FAIL_BEFORE)
    with pytest.raises(OutcomeUnknown):
        await catalogue.create(state("u"))
    assert await catalogue.read("u") is None


async def test_concurrent_changes_all_count(catalogue: Catalogue) -> None:
    await catalogue.create(state())

    async def grow() -> None:
        await catalogue.change("t", lambda old: with_bytes(old, (old.config.retention.bytes or 0) + 1))

    await asyncio.gather(*(grow() for _ in range(8)))
    record = await catalogue.read("t")
    assert record is not None
    assert (record.state.config.retention.bytes, record.state.version) == (8, 9)


@pytest.mark.parametrize("kind", [FaultKind.LOSE_ANSWER, FaultKind.FAIL_BEFORE, FaultKind.CONFLICT])
async def test_changes_of_unknown_outcome_happen_once(
    catalogue: Catalogue, faults: ScriptedFaults, kind: FaultKind
) -> None:
    """`decide` sees its own change where it did take effect."""
    await catalogue.create(state())
    faults.add("replace", kind, kind)
    changed = await catalogue.change("t", lambda old: None if old.config.retention.bytes else with_bytes(old, 7))
    assert changed is not None
    assert (changed.config.retention.bytes, changed.version) == (7, 2)


async def test_a_record_at_hand_is_not_read_again(catalogue: Catalogue, faults: ScriptedFaults) -> None:
    await catalogue.create(state())
    first = await catalogue.change_record("t", lambda old: with_bytes(old, 1))
    faults.add("get", FaultKind.UNAVAILABLE)
    second = await catalogue.change_record("t", lambda old: with_bytes(old, 2), known=first)
    assert second is not None and faults.left == 1
    with pytest.raises(OutcomeUnknown):
        await catalogue.read("t")
    assert await catalogue.read("t") == second


async def test_a_record_at_hand_that_is_out_of_date_changes_nothing(catalogue: Catalogue) -> None:
    """The store says so; then `decide` sees what stands there."""
    await catalogue.create(state())
    old = await catalogue.read("t")
    await catalogue.change("t", lambda newest: with_bytes(newest, 7))
    seen: list[int | None] = []

    def double(newest: TopicState) -> TopicState:
        seen.append(newest.config.retention.bytes)
        return with_bytes(newest, 2 * (newest.config.retention.bytes or 1))

    changed = await catalogue.change_record("t", double, known=old)
    assert changed is not None and (changed.state.config.retention.bytes, changed.state.version) == (14, 3)
    assert seen == [None, 7]
    assert await catalogue.read("t") == changed


async def test_who_wrote_a_record_is_told(catalogue: Catalogue, faults: ScriptedFaults) -> None:
    """Not of a record that was at hand, and not where no answer came: then another may have written the same."""
    await catalogue.create(state())
    ours = await catalogue.change_record("t", lambda old: with_bytes(old, 1))
    assert ours is not None and ours.is_ours
    kept = await catalogue.change_record("t", lambda old: None, known=ours)
    assert kept == ours and not kept.is_ours
    faults.add("replace", FaultKind.LOSE_ANSWER)
    after = await catalogue.change_record("t", lambda old: None if old.version == 3 else with_bytes(old, 2))
    assert after is not None and after.state.version == 3 and not after.is_ours


async def test_nothing_to_change(catalogue: Catalogue) -> None:
    assert await catalogue.change("t", lambda old: old) is None
    await catalogue.create(state())
    assert await catalogue.change("t", lambda old: None) == state()


async def test_a_store_that_stays_silent(catalogue: Catalogue, faults: ScriptedFaults) -> None:
    await catalogue.create(state())
    faults.add("replace", *[FaultKind.UNAVAILABLE] * TRIES)
    with pytest.raises(OutcomeUnknown):
        await catalogue.change("t", lambda old: with_bytes(old, 1))
    assert faults.left == 0


async def test_impossible_states_are_never_written(catalogue: Catalogue) -> None:
    broken = state().model_copy(update={"segments": ()})
    with pytest.raises(BrokenInvariant, match="open_ranges_tile"):
        await catalogue.create(broken)
    await catalogue.create(state())
    with pytest.raises(BrokenInvariant):
        await catalogue.change("t", lambda old: old.model_copy(update={"segments": ()}))
    record = await catalogue.read("t")
    assert record is not None and record.state == state()


class Counted(ForwardingStore):
    """A store that counts what it lists and gives."""

    listed = gets = 0

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        self.gets += 1
        return await super().get(key, start=start, stop=stop)

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ObjectInfo]:
        async for info in self.inner.list(prefix, after=after, limit=limit):
            self.listed += 1
            yield info


def segments(*ids: int, end_offset: int | None = None) -> list[Segment]:
    (template,) = state().segments[:1]
    return [template.model_copy(update={"id": number, "end_offset": end_offset}) for number in ids]


async def history_keys(store: MemoryStore) -> list[str]:
    return [info.key.rpartition("/")[2] async for info in store.list(keys.history_folder("t"))]


async def test_history_is_written_once() -> None:
    store = MemoryStore()
    catalogue = Catalogue(store, InstantClock())
    for end_offset in (1, 2):
        await catalogue.write_history("t", segments(3, 4, end_offset=end_offset))
    assert [s.end_offset for s in await catalogue.read_history("t", after=-1, limit=9)] == [1, 1]
    assert await history_keys(store) == [f"{3:020d}-{4:020d}.json"]


async def test_history_has_all_the_ids_that_its_names_say() -> None:
    store = MemoryStore()
    await Catalogue(store, InstantClock()).write_history("t", segments(2, 0, 1, 7, 5))
    bounds = [keys.history_bounds(name) for name in await history_keys(store)]
    assert bounds == [(0, 2), (5, 5), (7, 7)]


async def test_history_is_read_in_order_a_page_at_a_time() -> None:
    catalogue = Catalogue(MemoryStore(), InstantClock())
    for number in (9, 100, 10**11, 11, 2):
        await catalogue.write_history("t", segments(number))

    async def ids(after: int, limit: int) -> list[int]:
        return [segment.id for segment in await catalogue.read_history("t", after=after, limit=limit)]

    assert await ids(-1, 10) == [2, 9, 11, 100, 10**11]
    assert await ids(-1, 2) == [2, 9]
    assert await ids(9, 2) == [11, 100]
    assert await ids(10, 1) == [11]
    assert await ids(10**11, 10) == []


@given(
    st.lists(st.sets(st.integers(0, 40), min_size=1), max_size=8),
    st.integers(-1, 41),
    st.integers(1, 12),
    st.integers(1, 5),
)
@settings(deadline=None)
def test_a_page_of_history_lacks_nothing(groups: list[set[int]], after: int, limit: int, most_in_one: int) -> None:
    """Whatever left together, and where whoever stopped in between wrote some of it twice, differently cut."""

    async def page() -> list[int]:
        catalogue = Catalogue(MemoryStore(), InstantClock())
        for group in groups:
            await catalogue.write_history("t", segments(*group))
        return [segment.id for segment in await catalogue.read_history("t", after=after, limit=limit)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subject, "MOST_IN_ONE_RECORD", most_in_one)
        found = asyncio.run(page())
    expected = sorted(i for i in set().union(*groups) if i > after)
    assert found[:limit] == expected[:limit]
    assert len(found) < limit + most_in_one


async def test_a_page_of_a_long_history_costs_no_more_than_the_page() -> None:
    """Thousands of segments that left one by one."""
    inner, count = MemoryStore(), few_or_many(10_000, 100_000)
    for number, segment in enumerate(segments(*range(count))):
        data = orjson.dumps({"segments": [segment.model_dump(mode="json")]})
        await inner.create(keys.history("t", number, number), data)
    store = Counted(inner)
    read = await Catalogue(store, InstantClock()).read_history("t", after=7_000, limit=100)
    assert [segment.id for segment in read] == list(range(7_001, 7_101))
    assert store.gets == 100
    assert store.listed <= MOST_IN_ONE_RECORD + 100


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"segments": [{"id": 1}]}', b'{"segments": 1}'])
async def test_history_that_is_none(data: bytes) -> None:
    store = MemoryStore()
    await store.create(keys.history("t", 0, 0), data)
    with pytest.raises(CorruptFile, match="history/"):
        await Catalogue(store, InstantClock()).read_history("t", after=-1, limit=1)
