import pytest

from filer.clock import ManualClock
from filer.errors import StoreRefused
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Data
from mq.cli.diagnosis.checks import _of_what_is_seen, machine_findings, store_findings


async def test_a_good_store_passes_and_keeps_nothing() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    findings = await store_findings(store, clock)
    assert [finding.result for finding in findings] == ["ok"] * 5
    assert [info async for info in store.list("")] == []


class CarelessStore(MemoryStore):
    """Overwrites what exists, as `rclone serve s3` does."""

    async def create(self, key: str, data: Data, *, metadata: object = None) -> None:
        await self.delete([key])
        await super().create(key, data)


async def test_a_store_that_cannot_fence_fails_and_nothing_more_is_asked() -> None:
    clock = ManualClock()
    (finding,) = await store_findings(CarelessStore(clock=clock), clock)
    assert (finding.check, finding.result) == ("conditional writes", "failed")
    assert "does not honour conditional writes" in finding.detail


class WrongClockStore(MemoryStore):
    async def tell_time(self) -> int:
        return await super().tell_time() - 60_000_000


async def test_a_clock_that_differs_is_told() -> None:
    clock = ManualClock()
    findings = {finding.check: finding for finding in await store_findings(WrongClockStore(clock=clock), clock)}
    assert findings["clock"].result == "warning" and "differ by 60 s" in findings["clock"].detail


class LaggingStore(MemoryStore):
    def list(self, prefix: str, *, after: str | None = None, limit: int | None = None):  # type: ignore[no-untyped-def]
        return super().list(prefix, after=prefix + "~", limit=limit)


async def test_a_listing_that_lags_behind_fails() -> None:
    clock = ManualClock()
    findings = {finding.check: finding for finding in await store_findings(LaggingStore(clock=clock), clock)}
    assert findings["1 KiB objects"].result == "failed" and "is not listed" in findings["1 KiB objects"].detail


class RefusingStore(MemoryStore):
    async def create(self, key: str, data: Data, *, metadata: object = None) -> None:
        raise StoreRefused("no such bucket")


async def test_a_store_that_refuses_fails() -> None:
    clock = ManualClock()
    (finding,) = await store_findings(RefusingStore(clock=clock), clock)
    assert (finding.result, finding.detail) == ("failed", "no such bucket")


def test_the_machine() -> None:
    assert {"python", "pyarrow", "braidmq", "open files"} == {finding.check for finding in machine_findings()}


@pytest.mark.parametrize("variable", ["BRAIDMQ_TOKEN", "BRAIDMQ_TOKEN_FILE", "BRAIDMQ_CLIENT_CERT"])
def test_who_shows_a_credential_is_told_that_others_may_see_more(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BRAIDMQ_TOKEN", "BRAIDMQ_TOKEN_FILE", "BRAIDMQ_CLIENT_CERT"):
        monkeypatch.delenv(name, raising=False)
    assert _of_what_is_seen() == ""
    monkeypatch.setenv(variable, "x")
    assert _of_what_is_seen() == ", among the topics that you may observe"
