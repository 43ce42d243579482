"""Who waits for the audit trail, how long, and what they are told."""

import asyncio

import pytest

from filer.clock import ManualClock
from filer.errors import StoreError
from mq.audit.gathering import Gathering
from mq.audit.records import record_of
from mq.audit.trail import FIRST_REFUSALS, REFUSALS_APART_SECONDS, AuditTrail
from mq.base.errors import AuditFailed
from mq.security.needs import Need

CHANGE = record_of("ann", "::1", Need("manage", "topic", "t"), "PUT /v1/topics/t", 200, request_id="r")
REFUSAL = record_of("", "::1", Need("manage", "topic", "t"), "PUT /v1/topics/t", 401, request_id="r")


class SteeredStore:
    """Takes records when it is told to."""

    def __init__(self) -> None:
        self.batches: list[Gathering] = []
        self.may_store = asyncio.Event()
        self.error: StoreError | None = None

    async def store(self, records: Gathering) -> None:
        self.batches.append(records)
        await self.may_store.wait()
        if self.error is not None:
            raise self.error


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_nobody_is_answered_before_the_store_has_the_record() -> None:
    store = SteeredStore()
    trail = AuditTrail(ManualClock(), store.store)
    asked = [asyncio.create_task(trail.record(CHANGE)) for _ in range(3)]
    await settle()
    assert not any(task.done() for task in asked)
    store.may_store.set()
    await asyncio.gather(*asked)
    assert [len(batch) for batch in store.batches] == [3]


async def test_what_comes_meanwhile_is_stored_next_and_not_taken_for_stored() -> None:
    store = SteeredStore()
    trail = AuditTrail(ManualClock(), store.store)
    first = asyncio.create_task(trail.record(CHANGE))
    await settle()
    second = asyncio.create_task(trail.record(CHANGE))
    await settle()
    assert [len(batch) for batch in store.batches] == [1]
    store.may_store.set()
    store.may_store = asyncio.Event()
    await first
    await settle()
    assert not second.done()
    store.may_store.set()
    await second
    assert len(store.batches) == 2


async def test_a_store_that_fails_is_told_to_those_whose_records_it_had() -> None:
    store = SteeredStore()
    failed: list[int] = []
    trail = AuditTrail(ManualClock(), store.store, failed.append)
    store.error = StoreError("no room")
    store.may_store.set()
    with pytest.raises(AuditFailed, match="no room"):
        await trail.record(CHANGE)
    assert failed == [1]
    store.error = None
    await trail.record(CHANGE)


async def test_the_end_is_told_to_all_who_wait() -> None:
    store = SteeredStore()
    trail = AuditTrail(ManualClock(), store.store)
    first = asyncio.create_task(trail.record(CHANGE))
    await settle()
    second = asyncio.create_task(trail.record(REFUSAL))
    gone = asyncio.create_task(trail.record(REFUSAL))
    await settle()
    gone.cancel()
    await trail.close()
    for waiting in (first, second):
        with pytest.raises(AuditFailed, match="has ended"):
            await waiting


async def test_refusals_alone_are_stored_seldom_once_there_are_many() -> None:
    clock, store = ManualClock(), SteeredStore()
    store.may_store.set()
    trail = AuditTrail(clock, store.store)
    for _ in range(FIRST_REFUSALS):
        await trail.record(REFUSAL)
    assert len(store.batches) == FIRST_REFUSALS
    flood = [asyncio.create_task(trail.record(REFUSAL)) for _ in range(1000)]
    await settle()
    assert not any(task.done() for task in flood)
    await clock.advance(REFUSALS_APART_SECONDS)
    await asyncio.gather(*flood)
    assert len(store.batches) == FIRST_REFUSALS + 1
    assert [count for _, count in store.batches[-1]] == [1000]
    # A change does not wait for them.
    await trail.record(CHANGE)


async def test_a_quiet_time_gives_the_first_ones_back() -> None:
    clock, store = ManualClock(), SteeredStore()
    store.may_store.set()
    trail = AuditTrail(clock, store.store)
    for _ in range(2):
        for _ in range(FIRST_REFUSALS):
            await trail.record(REFUSAL)
        await clock.advance(FIRST_REFUSALS * REFUSALS_APART_SECONDS)
