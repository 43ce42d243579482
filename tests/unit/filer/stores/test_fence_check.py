from collections.abc import Mapping

import pytest

from filer.errors import EtagMismatch, ObjectExists, OutcomeUnknown, StoreCannotFence, StoreRefused
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import Fault, FaultKind, ScriptedFaults, SeededFaults
from filer.stores.fence_check import check_fencing
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Data
from tests.support.instant_clock import InstantClock


class Overwriting(MemoryStore):
    """Ignores If-None-Match."""

    async def create(self, key: str, data: Data, *, metadata: Mapping[str, str] | None = None) -> None:
        await self.delete([key])
        await super().create(key, data)


class CheckingTooEarly(MemoryStore):
    """Looks, then writes, with time for somebody else in between."""

    async def create(self, key: str, data: Data, *, metadata: Mapping[str, str] | None = None) -> None:
        if key in self._objects:
            raise ObjectExists()
        await InstantClock().sleep(0)
        await self.delete([key])
        await super().create(key, data)


class IgnoringEtags(MemoryStore):
    """Ignores If-Match."""

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        return await super().replace(key, data, etag=(await self.head(key)).etag)


class ReplacingTooEarly(MemoryStore):
    """Compares, then swaps, with time for somebody else in between."""

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        if (await self.head(key)).etag != etag:
            raise EtagMismatch()
        await InstantClock().sleep(0)
        return await super().replace(key, data, etag=(await self.head(key)).etag)


class NeverReplacing(MemoryStore):
    """Finds every ETag wrong."""

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        raise EtagMismatch()


class FencingRacesOnly(MemoryStore):
    """Honours the conditions for the first two writers, and forgets them then."""

    def __init__(self, *, forgets: str) -> None:
        super().__init__()
        self._forgets = forgets
        self._calls = 0

    async def create(self, key: str, data: Data, *, metadata: Mapping[str, str] | None = None) -> None:
        if self._forgotten("create"):
            await self.delete([key])
        await super().create(key, data)

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        current = (await self.head(key)).etag
        return await super().replace(key, data, etag=current if self._forgotten("replace") else etag)

    def _forgotten(self, operation: str) -> bool:
        self._calls += operation == self._forgets
        return operation == self._forgets and self._calls > 2


class WritingTheLosersBytes(MemoryStore):
    """Tells the right writer that it won, and keeps the other's bytes."""

    async def create(self, key: str, data: Data, *, metadata: Mapping[str, str] | None = None) -> None:
        try:
            await super().create(key, data)
        except ObjectExists:
            await self.replace(key, data, etag=(await self.head(key)).etag)
            raise


@pytest.mark.parametrize(
    ("store", "complaint"),
    [
        (Overwriting(), "two writers created it at the same time, and both were told that they did"),
        (CheckingTooEarly(), "two writers created it at the same time, and both were told that they did"),
        (IgnoringEtags(), "two writers replaced the same state of it, and both were told that they did"),
        (ReplacingTooEarly(), "two writers replaced the same state of it, and both were told that they did"),
        (FencingRacesOnly(forgets="create"), "it existed, and could be created again"),
        (FencingRacesOnly(forgets="replace"), "could be replaced with the ETag of an earlier state"),
        (WritingTheLosersBytes(), "could be created once more|both were told"),
        (NeverReplacing(), "could not be replaced with its own ETag"),
    ],
)
async def test_stores_that_cannot_fence_are_refused(store: MemoryStore, complaint: str) -> None:
    with pytest.raises(StoreCannotFence, match=complaint) as raised:
        await check_fencing(store, InstantClock())
    assert "If-None-Match" in str(raised.value)
    assert "memory:///cluster/fence-check/" in str(raised.value)
    assert [info.key async for info in store.list("")] == []


@pytest.mark.parametrize("seed", range(20))
async def test_unclear_answers_do_not_fool_the_check(seed: int) -> None:
    clock = InstantClock()
    rates = {Fault(FaultKind.LOSE_ANSWER): 0.15, Fault(FaultKind.CONFLICT): 0.15}
    faults = SeededFaults(seed, rates, operations=frozenset({"create", "replace"}))
    await check_fencing(FailingStore(MemoryStore(), faults, clock=clock), clock)


async def test_store_that_does_not_answer_is_not_called_unfit() -> None:
    clock = InstantClock()
    faults = ScriptedFaults()
    faults.add("create", *[FaultKind.UNAVAILABLE] * 100)
    with pytest.raises(OutcomeUnknown):
        await check_fencing(FailingStore(MemoryStore(), faults, clock=clock), clock)


async def test_refusal_is_passed_on() -> None:
    class Refusing(MemoryStore):
        async def create(self, key: str, data: Data, *, metadata: Mapping[str, str] | None = None) -> None:
            raise StoreRefused("no such bucket")

    with pytest.raises(StoreRefused, match="no such bucket"):
        await check_fencing(Refusing(), InstantClock())
