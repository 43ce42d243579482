import asyncio
from collections import Counter

import pytest

from filer.clock import ManualClock, settle
from filer.errors import ObjectNotFound, OutcomeUnknown
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import Fault, FaultKind, ScriptedFaults, SeededFaults
from filer.stores.memory_store import MemoryStore


@pytest.fixture
def faults() -> ScriptedFaults:
    return ScriptedFaults()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(faults: ScriptedFaults, clock: ManualClock) -> FailingStore:
    return FailingStore(MemoryStore(clock=clock), faults, clock=clock)


@pytest.mark.parametrize("kind", [FaultKind.FAIL_BEFORE, FaultKind.CONFLICT, FaultKind.UNAVAILABLE])
async def test_failure_before_has_no_effect(store: FailingStore, faults: ScriptedFaults, kind: FaultKind) -> None:
    faults.add("create", kind)
    with pytest.raises(OutcomeUnknown, match=kind.value):
        await store.create("key", b"x")
    with pytest.raises(ObjectNotFound):
        await store.get("key")


async def test_lost_answer_has_its_effect(store: FailingStore, faults: ScriptedFaults) -> None:
    faults.add("create", FaultKind.LOSE_ANSWER)
    faults.add("replace", FaultKind.LOSE_ANSWER)
    faults.add("delete", FaultKind.LOSE_ANSWER)
    with pytest.raises(OutcomeUnknown):
        await store.create("key", b"x")
    with pytest.raises(OutcomeUnknown):
        await store.replace("key", b"y", etag=(await store.head("key")).etag)
    assert (await store.get("key")).data == b"y"
    with pytest.raises(OutcomeUnknown):
        await store.delete(["key"])
    with pytest.raises(ObjectNotFound):
        await store.head("key")


async def test_script_is_followed_in_order_and_by_key(store: FailingStore, faults: ScriptedFaults) -> None:
    faults.add("create", None, FaultKind.FAIL_BEFORE)
    faults.add("create", FaultKind.FAIL_BEFORE, key_part="/b")
    await store.create("a/1", b"")
    with pytest.raises(OutcomeUnknown):
        await store.create("a/2", b"")
    await store.create("a/3", b"")
    with pytest.raises(OutcomeUnknown):
        await store.create("a/b", b"")
    assert faults.left == 0


@pytest.mark.parametrize(("kind", "there"), [(FaultKind.HANG, False), (FaultKind.HANG_ANSWER, True)])
async def test_hanging_calls_wait_for_release(
    store: FailingStore, faults: ScriptedFaults, kind: FaultKind, there: bool
) -> None:
    faults.add("create", kind)
    creating = asyncio.create_task(store.create("key", b"x"))
    await settle()
    assert store.hung == 1
    assert [info.key async for info in store.list("")] == (["key"] if there else [])
    store.release()
    await creating
    assert store.hung == 0
    assert (await store.get("key")).data == b"x"


async def test_delay_is_the_clocks(store: FailingStore, faults: ScriptedFaults, clock: ManualClock) -> None:
    faults.add("get", Fault(FaultKind.DELAY, 3))
    await store.create("key", b"x")
    reading = asyncio.create_task(store.get("key"))
    await settle()
    await clock.advance(2.9)
    assert not reading.done()
    await clock.advance(0.2)
    assert reading.done()


async def test_points_are_told_in_order(clock: ManualClock, faults: ScriptedFaults) -> None:
    points: list[tuple[str, str]] = []
    store = FailingStore(MemoryStore(), faults, clock=clock, on_point=lambda point, key: points.append((point, key)))
    faults.add("create", FaultKind.FAIL_BEFORE, FaultKind.LOSE_ANSWER)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            await store.create("key", b"x")
    assert [info.key async for info in store.list("k")] == ["key"]
    assert points == [
        ("before create", "key"),
        ("before create", "key"),
        ("after create", "key"),
        ("before list", "k"),
        ("after list", "k"),
    ]


async def test_point_can_stop_the_call(clock: ManualClock, faults: ScriptedFaults) -> None:
    def stop(point: str, key: str) -> None:
        if point == "after create":
            raise KeyboardInterrupt

    memory = MemoryStore()
    store = FailingStore(memory, faults, clock=clock, on_point=stop)
    with pytest.raises(KeyboardInterrupt):
        await store.create("key", b"x")
    assert (await memory.get("key")).data == b"x"


def draws(seed: int, count: int) -> list[Fault | None]:
    rates = {Fault(FaultKind.LOSE_ANSWER): 0.2, Fault(FaultKind.DELAY, 1): 0.1}
    plan = SeededFaults(seed, rates, operations=frozenset({"create"}))
    assert plan.draw("get", "key") is None
    return [plan.draw("create", "key") for _ in range(count)]


def test_seeded_faults_repeat_and_keep_their_rates() -> None:
    assert draws(1, 200) == draws(1, 200)
    assert draws(1, 200) != draws(2, 200)
    counts = Counter(draws(3, 5000))
    assert counts[Fault(FaultKind.LOSE_ANSWER)] == pytest.approx(1000, rel=0.15)
    assert counts[Fault(FaultKind.DELAY, 1)] == pytest.approx(500, rel=0.15)
    assert counts[None] == pytest.approx(3500, rel=0.05)
