"""What topics have stored, as quotas go by it: measured aside, and counted on meanwhile."""

import asyncio

import pytest

from filer.errors import StoreError
from mq.base.errors import QuotaExceeded
from mq.limits.storage_meter import APART_SECONDS, StorageMeter, Taken
from mq.security.grants import Pattern, parse_pattern


class Store:
    """What is stored, and the time. While `may_go_on` is not set, a measurement is under way."""

    def __init__(self) -> None:
        self.stored_bytes, self.seconds, self.measured = 0, 100.0, 0
        self.fails = False
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.meter = StorageMeter(parse_pattern("orders-*"), self._measure, lambda: self.seconds)

    async def _measure(self, topics: Pattern) -> int:
        self.measured += 1
        await self.may_go_on.wait()
        if self.fails:
            raise StoreError("no answer")
        return self.stored_bytes

    def taking(self, topic: str, size_bytes: int) -> Taken:
        taken = self.meter.taking(topic, size_bytes)
        assert taken is not None
        return taken

    def keep(self, topic: str, size_bytes: int) -> None:
        """A publish that is stored, after whatever was measured last."""
        self.taking(topic, size_bytes).end(stored=True)

    async def refusal(self, topic: str = "orders-1") -> QuotaExceeded | None:
        """As the meter has it, once the measurement that it may begin is done."""
        found = self.meter.refusal(topic, 100)
        for _ in range(3):
            await asyncio.sleep(0)
        return found


async def test_what_is_taken_counts_at_once_and_what_is_stored_once_it_is_measured() -> None:
    store = Store()
    assert await store.refusal() is None and store.measured == 1
    store.keep("orders-2", 99)
    assert store.meter.taking("bills", 1000) is None
    assert await store.refusal() is None
    store.keep("orders-1", 1)
    told = await store.refusal()
    assert told is not None and (told.limit, told.value, told.used) == ("storage_bytes", 100, 100)
    assert await store.refusal("bills") is None and store.measured == 1, "others are not limited, and nobody measures"
    for stored_bytes in (60, 60):
        store.stored_bytes, store.seconds = stored_bytes, store.seconds + APART_SECONDS
        await store.refusal()
    assert store.meter.used_bytes == 60 and await store.refusal() is None


async def test_what_is_on_its_way_while_it_is_measured_is_not_lost() -> None:
    store = Store()
    taken = store.taking("orders-1", 100)  # and not on the store yet
    assert await store.refusal() is not None and store.meter.used_bytes == 100
    taken.end(stored=True)
    assert store.meter.used_bytes == 100
    store.stored_bytes, store.seconds = 100, store.seconds + APART_SECONDS
    store.may_go_on.clear()
    await store.refusal()
    store.taking("orders-1", 7)
    store.may_go_on.set()
    await store.refusal()
    assert store.meter.used_bytes == 107


async def test_what_was_stored_before_it_is_measured_counts_once() -> None:
    store = Store()
    for kept_bytes in (58, 80, 99):
        store.keep("orders-1", kept_bytes - store.stored_bytes)
        store.stored_bytes, store.seconds = kept_bytes, store.seconds + APART_SECONDS
        await store.refusal()
        assert store.meter.used_bytes == kept_bytes and await store.refusal() is None
    assert store.measured == 3


async def test_what_begins_or_ends_while_it_is_measured_is_never_lost() -> None:
    store = Store()
    ends, stays, fails = (store.taking("orders-1", size_bytes) for size_bytes in (10, 20, 5))
    store.may_go_on.clear()
    await store.refusal()
    ends.end(stored=True)
    fails.end(stored=False)
    store.keep("orders-1", 3)
    store.may_go_on.set()
    await store.refusal()
    assert store.meter.used_bytes == 33, "none of it was there when it was measured"
    stays.end(stored=True)
    store.stored_bytes, store.seconds = 33, store.seconds + APART_SECONDS
    await store.refusal()
    assert store.meter.used_bytes == 33


@pytest.mark.parametrize(("status", "counts"), [(200, True), (503, True), (422, False), (429, False)])
async def test_what_is_refused_does_not_count(status: int, counts: bool) -> None:
    store = Store()
    taken = store.taking("orders-1", 60)
    taken.add(50)
    assert await store.refusal() is not None and store.meter.used_bytes == 110
    taken.answered(status)
    taken.answered(200)
    assert store.meter.used_bytes == 110 * counts


async def test_nobody_waits_and_what_cannot_be_measured_counts_as_before() -> None:
    store = Store()
    store.may_go_on.clear()
    assert await store.refusal() is None and await store.refusal() is None and store.measured == 1
    store.fails = True
    store.may_go_on.set()
    store.keep("orders-1", 100)
    assert await store.refusal() is not None and await store.refusal() is not None and store.measured == 1
    store.meter.close()


@pytest.mark.parametrize(("size_bytes", "start", "end", "kept"), [(0, 0, 0, 0), (100, 0, 10, 100), (100, 5, 10, 50)])
def test_what_has_expired_does_not_count(size_bytes: int, start: int, end: int, kept: int) -> None:
    from mq.topic.stored_bytes import kept_bytes

    assert kept_bytes(size_bytes, start, end) == kept
