"""Storing a copy in the owner's stead and sealing: killed at any request, by several at once, with the owner's puts
in between. Everything acknowledged stands once, at its offset."""

import asyncio
from collections.abc import Sequence

import pyarrow as pa
import pytest

from filer.clock import ManualClock, settle
from filer.format.requests import Position, RequestId
from filer.keys import FileName
from filer.segment.next_file import Accepted, rows_of_payloads
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, fetch_footer, seal_at_end
from filer.segment.take_over import beyond, flush_and_seal
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import FaultKind, ScriptedFaults
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Store
from tests.support.instant_clock import InstantClock
from tests.support.segment.segment_owners import GRACE_SECONDS, owner, single, stored_values
from tests.support.store.dying_store import DyingStore, Killed

REF = SegmentRef("events", 0)


def copied(*values: bytes, base: int = 0) -> list[Accepted]:
    """A copy of single messages, each of a request of its own."""
    return [
        Accepted(single(value), base + n, 1, 10, 1000 + base + n, RequestId("p", base + n))
        for n, value in enumerate(values)
    ]


async def seal(
    store: Store, copy: Sequence[Accepted], *, writer: str = "b.1", clock: ManualClock | None = None
) -> SegmentIndex:
    return await flush_and_seal(
        store, clock or InstantClock(), REF, copy, start_offset=0, writer=writer, grace_seconds=GRACE_SECONDS
    )


async def owned(store: Store, *values: bytes) -> None:
    """What the owner had stored, a file each."""
    clock = ManualClock()
    writer = owner(store, clock, REF, SegmentIndex())
    for value in values:
        await writer.append(single(value), 10)
    await writer.close()


async def test_stores_what_lies_beyond_the_end_and_seals() -> None:
    store = MemoryStore()
    await owned(store, b"0", b"1")
    index = await seal(store, copied(b"1", b"2", b"3", base=1))
    assert index.sealed and index.end == 4
    assert await stored_values(store, REF) == [b"0", b"1", b"2", b"3"]
    footer, _ = await fetch_footer(store, REF.key(index.files[-2].name))
    assert (footer.first_timestamp_us, footer.last_timestamp_us) == (1002, 1003)
    assert [stored.position for stored in footer.requests] == [Position(0, 2, 1), Position(0, 3, 1)]


async def test_the_seal_knows_the_requests_it_stored_and_what_was_inherited() -> None:
    store = MemoryStore()
    inherited = ProducerWindows()
    inherited.note(RequestId("before", 1), Position(9, 9, 1), 1000)

    async def inherit() -> ProducerWindows:
        return inherited

    index = await flush_and_seal(
        store, InstantClock(), REF, copied(b"0", b"1"), start_offset=0, writer="b.1", grace_seconds=60, inherit=inherit
    )
    footer, _ = await fetch_footer(store, REF.key(index.files[-1].name))
    windows = ProducerWindows.from_bytes(footer.windows)
    assert windows.look_up(RequestId("p", 1))[0].position == Position(0, 1, 1)
    assert windows.look_up(RequestId("before", 1))[0].position == Position(9, 9, 1)


@pytest.mark.parametrize("copy", [[], copied(b"0"), copied(b"0", b"1")])
async def test_a_copy_of_what_is_stored_adds_nothing(copy: list[Accepted]) -> None:
    store = MemoryStore()
    await owned(store, b"0", b"1")
    assert (await seal(store, copy)).end == 2
    assert await stored_values(store, REF) == [b"0", b"1"]


async def test_what_is_sealed_already_stays_as_it_is() -> None:
    store = MemoryStore()
    await owned(store, b"0")
    await seal_at_end(store, InstantClock(), REF, start_offset=0, writer="a.1", grace_seconds=GRACE_SECONDS)
    assert (await seal(store, copied(b"0", b"1"))).end == 1
    assert await stored_values(store, REF) == [b"0"]


async def test_a_gap_is_never_sealed_over() -> None:
    """The owner said that what comes before is stored. Where the store has lost it, its name stays free."""
    store = MemoryStore()
    await owned(store, b"0", b"1")
    lost = REF.key(FileName(1))
    bytes_of_it = (await store.get(lost)).data
    await store.delete([lost])
    index = await seal(store, copied(b"2", base=2))
    assert (index.end, index.sealed) == (3, True)
    assert [(hole.start, hole.end, hole.name) for hole in index.holes] == [(1, 2, FileName(1))]
    await store.create(lost, bytes_of_it)
    assert await stored_values(store, REF) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_killed_at_any_request_another_finishes(before: bool) -> None:
    """Until a whole run needs no more requests than it was allowed."""
    request, died = 0, True
    while died:
        store = MemoryStore()
        await owned(store, b"0")
        copy = copied(b"1", b"2", base=1)
        dying = DyingStore(store).die_at(request, before=before)
        try:
            await seal(dying, copy)
            died = False
        except Killed:
            request += 1
        assert (await stored_values(store, REF))[:1] == [b"0"]
        assert (await seal(store, copy, writer="c.1")).end == 3
        assert await stored_values(store, REF) == [b"0", b"1", b"2"]
    assert request > 4


@pytest.mark.parametrize("head_start", range(0, 24, 2))
async def test_two_followers_at_once(head_start: int) -> None:
    """One holds more than the other: what both hold, which alone is acknowledged, stands whoever is faster."""
    store = MemoryStore()
    await owned(store, b"0")
    slow_store = FailingStore(store, faults := ScriptedFaults(), clock=(clock := ManualClock()))
    faults.add("create", FaultKind.HANG)
    slow = asyncio.create_task(seal(slow_store, copied(b"1", b"2", b"3", base=1), clock=clock))
    await settle(head_start)
    fast = asyncio.create_task(seal(store, copied(b"0", b"1", b"2"), writer="c.1"))
    await settle()
    slow_store.release()
    first, second = await asyncio.gather(slow, fast)
    assert first.end == second.end and first.end in (3, 4)
    assert await stored_values(store, REF) == [b"0", b"1", b"2", b"3"][: first.end]


@pytest.mark.parametrize("fault", [FaultKind.HANG, FaultKind.HANG_ANSWER])
@pytest.mark.parametrize("late", [True, False])
async def test_the_owners_late_put_comes_in_between(fault: FaultKind, late: bool) -> None:
    """Its bytes or the follower's: the same messages at the same offsets, once."""
    store, clock, faults = MemoryStore(), ManualClock(), ScriptedFaults()
    failing = FailingStore(store, faults, clock=clock)
    writer = owner(failing, clock, REF, SegmentIndex())
    faults.add("create", fault)
    future = writer.append(single(b"0"), 10)
    await settle()
    if not late:
        failing.release()
        await settle()
    assert (await seal(store, copied(b"0", b"1"))).end == 2
    failing.release()
    await settle()
    assert future.done()
    await writer.close()
    assert await stored_values(store, REF) == [b"0", b"1"]


@pytest.mark.parametrize("fault", [FaultKind.LOSE_ANSWER, FaultKind.FAIL_BEFORE, FaultKind.UNAVAILABLE])
@pytest.mark.parametrize("calls", [1, 2, 3])
async def test_an_unknown_put_is_repeated(fault: FaultKind, calls: int) -> None:
    store, clock = MemoryStore(), InstantClock()
    failing = FailingStore(store, faults := ScriptedFaults(), clock=clock)
    faults.add("create", *[fault] * calls)
    assert (await seal(failing, copied(b"0", b"1"), clock=clock)).end == 2
    assert await stored_values(store, REF) == [b"0", b"1"]


async def test_a_sealer_that_loses_a_name_stores_the_rest_after_it() -> None:
    """Another's file has less than its own would have had: the rest was acknowledged as well."""
    store, clock = MemoryStore(), ManualClock()
    failing = FailingStore(store, faults := ScriptedFaults(), clock=clock)
    faults.add("create", FaultKind.HANG)
    task = asyncio.create_task(seal(failing, copied(b"0", b"1", b"2"), clock=clock))
    await settle()
    await owned(store, b"0")
    failing.release()
    assert (await task).end == 3
    assert await stored_values(store, REF) == [b"0", b"1", b"2"]


async def test_after_a_slow_put_only_a_new_recovery_counts() -> None:
    """The name may have been superseded and deleted meanwhile: then what was put is beyond a gap, and put again."""
    store, clock = MemoryStore(), ManualClock()
    await owned(store, b"0")
    failing = FailingStore(store, faults := ScriptedFaults(), clock=clock)
    faults.add("create", FaultKind.HANG)
    task = asyncio.create_task(seal(failing, copied(b"1", base=1), clock=clock))
    await settle()
    await clock.advance(GRACE_SECONDS)
    assert (await seal(store, copied(b"1", b"2", base=1), writer="c.1")).end == 3
    failing.release()
    assert (await task).end == 3
    assert await stored_values(store, REF) == [b"0", b"1", b"2"]


def test_beyond_cuts_a_batch_where_the_log_ends() -> None:
    rows = rows_of_payloads(REF, [single(b"%d" % n) for n in range(4)]).combine_chunks().to_batches()[0]
    copy = [Accepted(rows, 10, 4, 40, 1000), Accepted(single(b"last"), 14, 1, 10, 1000)]
    assert beyond(copy, 15) == []
    assert beyond(copy, 14) == copy[1:]
    assert beyond(copy, 10) == beyond(copy, 3) == copy
    [cut, last] = beyond(copy, 12)
    assert (cut.base, cut.count, cut.end) == (12, 2, 14) and last is copy[1]
    assert isinstance(cut.payload, pa.RecordBatch)
    assert cut.payload["value"].to_pylist() == [b"2", b"3"]
    assert copy[0].payload.num_rows == 4, "the copy itself stays whole"
