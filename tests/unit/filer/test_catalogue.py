import asyncio

import pytest

from filer import keys
from filer.catalogue import TRIES, BrokenInvariant, Catalogue
from filer.errors import CorruptFile, OutcomeUnknown
from filer.failing_store import FailingStore
from filer.faults import FaultKind, ScriptedFaults
from filer.memory_store import MemoryStore
from filer.topic_config import TopicConfig, parse_config
from filer.topic_state import TopicState
from leader.transitions import new_topic
from tests.support.instant_clock import InstantClock


def state(name: str = "t") -> TopicState:
    return new_topic(name, TopicConfig(), 2, lambda place: ("b",), now_us=0)


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


async def test_impossible_shapes_are_never_written(catalogue: Catalogue) -> None:
    broken = state().model_copy(update={"segments": ()})
    with pytest.raises(BrokenInvariant, match="open_ranges_tile"):
        await catalogue.create(broken)
    await catalogue.create(state())
    with pytest.raises(BrokenInvariant):
        await catalogue.change("t", lambda old: old.model_copy(update={"segments": ()}))
    record = await catalogue.read("t")
    assert record is not None and record.state == state()


async def test_history_is_written_once() -> None:
    store = MemoryStore()
    catalogue = Catalogue(store, InstantClock())
    for note in ("first", "second"):
        await catalogue.write_history("t", [{"id": 3, "note": note}, {"id": 5}])
    assert b"first" in (await store.get(keys.history("t", 3, 5))).data


async def test_history_is_read_in_order_a_page_at_a_time() -> None:
    catalogue = Catalogue(MemoryStore(), InstantClock())
    (template,) = state().segments[:1]
    for number in (9, 100, 11, 2):
        await catalogue.write_history("t", [template.model_copy(update={"id": number}).model_dump(mode="json")])

    async def ids(after: int, limit: int) -> list[int]:
        return [segment.id for segment in await catalogue.read_history("t", after=after, limit=limit)]

    assert await ids(-1, 10) == [2, 9, 11, 100]
    assert await ids(-1, 2) == [2, 9]
    assert await ids(9, 2) == [11, 100]
    assert await ids(10, 1) == [11]
    assert await ids(100, 10) == []


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"segments": [{"id": 1}]}', b'{"segments": 1}'])
async def test_history_that_is_none(data: bytes) -> None:
    store = MemoryStore()
    await store.create(keys.history("t", 0, 0), data)
    with pytest.raises(CorruptFile, match="history/"):
        await Catalogue(store, InstantClock()).read_history("t", after=-1, limit=1)
