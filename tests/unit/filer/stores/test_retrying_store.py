from collections.abc import Awaitable, Callable

import pytest

from filer.errors import ObjectNotFound, OutcomeUnknown
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import FaultKind, ScriptedFaults
from filer.stores.decorators.retrying_store import RetryingStore
from filer.stores.memory_store import MemoryStore
from tests.support.instant_clock import InstantClock

CALLS: dict[str, Callable[[RetryingStore], Awaitable[object]]] = {
    "get": lambda store: store.get("a/1", start=1),
    "head": lambda store: store.head("a/1"),
    "list_folders": lambda store: store.list_folders(""),
    "delete": lambda store: store.delete(iter(["a/1", "a/2"])),
}


@pytest.fixture
def faults() -> ScriptedFaults:
    return ScriptedFaults()


@pytest.fixture
def clock() -> InstantClock:
    return InstantClock()


@pytest.fixture
async def store(faults: ScriptedFaults, clock: InstantClock) -> RetryingStore:
    memory = MemoryStore(clock=clock)
    for number in range(5):
        await memory.create(f"a/{number}", str(number).encode())
    return RetryingStore(FailingStore(memory, faults, clock=clock), clock=clock)


@pytest.mark.parametrize("operation", CALLS)
async def test_harmless_calls_are_repeated(
    store: RetryingStore, faults: ScriptedFaults, clock: InstantClock, operation: str
) -> None:
    faults.add(operation, FaultKind.UNAVAILABLE, FaultKind.LOSE_ANSWER, FaultKind.FAIL_BEFORE)
    await CALLS[operation](store)
    assert faults.left == 0
    assert len(clock.naps_seconds) == 3


@pytest.mark.parametrize("operation", CALLS)
async def test_patience_ends(store: RetryingStore, faults: ScriptedFaults, clock: InstantClock, operation: str) -> None:
    faults.add(operation, *[FaultKind.UNAVAILABLE] * 6)
    with pytest.raises(OutcomeUnknown):
        await CALLS[operation](store)
    assert faults.left == 1
    assert len(clock.naps_seconds) == 4


async def test_pauses_grow_to_a_limit(store: RetryingStore, faults: ScriptedFaults, clock: InstantClock) -> None:
    patient = RetryingStore(store.inner, clock=clock, tries=8, first_pause_seconds=0.1, longest_pause_seconds=1)
    faults.add("get", *[FaultKind.UNAVAILABLE] * 7)
    await patient.get("a/1")
    limits = [0.1, 0.2, 0.4, 0.8, 1, 1, 1]
    for pause, limit in zip(clock.naps_seconds, limits, strict=True):
        assert limit / 2 <= pause <= limit


async def test_clear_answers_are_not_questioned(store: RetryingStore, clock: InstantClock) -> None:
    with pytest.raises(ObjectNotFound):
        await store.get("missing")
    assert clock.naps_seconds == []


async def test_writes_are_never_repeated(store: RetryingStore, faults: ScriptedFaults, clock: InstantClock) -> None:
    faults.add("create", FaultKind.FAIL_BEFORE, None)
    faults.add("replace", FaultKind.FAIL_BEFORE, None)
    with pytest.raises(OutcomeUnknown):
        await store.create("new", b"x")
    with pytest.raises(OutcomeUnknown):
        await store.replace("a/1", b"x", etag=(await store.head("a/1")).etag)
    assert clock.naps_seconds == []
    assert faults.left == 2


@pytest.mark.parametrize("limit", [None, 1, 3])
async def test_list_goes_on_where_it_broke(store: RetryingStore, faults: ScriptedFaults, limit: int | None) -> None:
    faults.add("list", FaultKind.UNAVAILABLE, *[FaultKind.LOSE_ANSWER] * 4)
    keys = [info.key async for info in store.list("a/", limit=limit)]
    assert keys == [f"a/{number}" for number in range(5)][:limit]


async def test_list_that_gets_nowhere_ends(store: RetryingStore, faults: ScriptedFaults) -> None:
    faults.add("list", FaultKind.LOSE_ANSWER, *[FaultKind.UNAVAILABLE] * 6)
    seen = []
    with pytest.raises(OutcomeUnknown):
        async for info in store.list("a/"):
            seen.append(info.key)
    assert seen == ["a/0"]
    assert faults.left == 2


LIMITED: dict[str, Callable[[RetryingStore], Awaitable[object]]] = {
    "get": lambda store: store.get("a/1"),
    "head": lambda store: store.head("a/1"),
    "list": lambda store: listed(store),
    "list_folders": lambda store: store.list_folders(""),
}


async def listed(store: RetryingStore) -> list[str]:
    return [info.key async for info in store.list("a/")]


@pytest.mark.parametrize("operation", LIMITED)
async def test_a_store_that_hangs_keeps_no_reader(
    store: RetryingStore, faults: ScriptedFaults, clock: InstantClock, operation: str
) -> None:
    limited = RetryingStore(store.inner, clock=clock, limit_seconds=0.05)
    faults.add(operation, FaultKind.HANG)
    with pytest.raises(OutcomeUnknown, match=rf"{operation} of '?.*no answer within 0.05 s") as raised:
        await LIMITED[operation](limited)
    assert raised.value.cause == "timeout"
    assert clock.naps_seconds == []
    # Once it answers again, all is as before.
    await LIMITED[operation](limited)


async def test_a_listing_has_the_limit_for_each_page(store: RetryingStore, clock: InstantClock) -> None:
    limited = RetryingStore(store.inner, clock=clock, limit_seconds=30)
    assert await listed(limited) == await listed(store) == [f"a/{n}" for n in range(5)]
    assert [info.key async for info in limited.list("a/", after="a/1", limit=2)] == ["a/2", "a/3"]


async def test_a_listing_goes_on_after_a_lost_answer(
    store: RetryingStore, faults: ScriptedFaults, clock: InstantClock
) -> None:
    limited = RetryingStore(store.inner, clock=clock, limit_seconds=30)
    faults.add("list", FaultKind.LOSE_ANSWER, FaultKind.UNAVAILABLE)
    assert await listed(limited) == [f"a/{n}" for n in range(5)]
    assert faults.left == 0
