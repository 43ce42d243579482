"""A store that stalls is told within two seconds, with its cause, and so is its return."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import pytest

from filer.clock import ManualClock, settle
from filer.errors import BraidError, ObjectExists, OutcomeUnknown, StoreRefused
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import FaultKind, ScriptedFaults
from filer.stores.decorators.instrumented_store import InstrumentedStore
from filer.stores.decorators.store_health import MOST_FAILING, SLOWEST_BYTES_PER_SECOND, USUAL_BYTES, StoreHealth
from filer.stores.decorators.store_metrics import StoreMetrics
from filer.stores.memory_store import MemoryStore

FULL = OutcomeUnknown("'k' below /data: No space left on device (ENOSPC): free some", cause="ENOSPC")


class Setting:
    """A store in memory whose calls fail as told, and what is known of its health."""

    def __init__(self) -> None:
        self.clock, self.faults, self.metrics = ManualClock(), ScriptedFaults(), StoreMetrics()
        self.health = StoreHealth(self.clock)
        self.failing = FailingStore(MemoryStore(clock=self.clock), self.faults, clock=self.clock)
        self.store = InstrumentedStore(self.failing, clock=self.clock, metrics=self.metrics, health=self.health)

    async def put(self, key: str) -> None:
        await self.store.create(key, b"1")

    async def fail_for(self, seconds: float, error: BraidError, *, key: str = "k", pause_seconds: float = 0.5) -> None:
        """What `put_until_known` does."""
        until_seconds = self.clock.monotonic_seconds() + seconds
        while self.clock.monotonic_seconds() < until_seconds:
            self.health.end(self.health.begin("create", key), error)
            await self.clock.advance(pause_seconds)


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    made = Setting()
    watching = asyncio.create_task(made.health.watch())
    yield made
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


async def test_a_put_that_hangs_is_told_within_two_seconds(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    setting.faults.add("create", FaultKind.HANG)
    putting = asyncio.create_task(setting.put("topics/t/1"))
    await settle()
    await setting.clock.advance(1.4)
    assert setting.health.stalls() == [] and lines(caplog, logging.WARNING) == []
    await setting.clock.advance(0.5)
    (told,) = lines(caplog, logging.WARNING)
    assert told.startswith("store_stalled operation=create key=topics/t/1 duration_seconds=1.") and "no answer" in told
    (stall,) = setting.health.stalls()
    assert (stall.operation, stall.key, stall.cause, stall.tries) == ("create", "topics/t/1", "timeout", 0)
    await setting.clock.advance(8)
    setting.failing.release()
    await putting
    assert setting.health.stalls() == []
    await setting.clock.advance(10)
    (back,) = lines(caplog, logging.INFO)
    assert back.startswith("store_recovered duration_seconds=9.")
    assert lines(caplog, logging.WARNING)[1:] == ["put_slow key=topics/t/1 size_bytes=1 duration_seconds=9.9 tries=1"]


async def test_a_put_that_fails_again_and_again_is_told_with_its_cause(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    await setting.fail_for(2, FULL)
    (told,) = lines(caplog, logging.WARNING)
    assert "cause=ENOSPC" in told and "No space left on device (ENOSPC)" in told
    assert setting.health.stalls()[0].cause == "ENOSPC"


async def test_one_failure_is_no_stall(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    await setting.fail_for(0.5, FULL)
    for _ in range(20):
        await setting.clock.advance(0.25)
        assert setting.health.stalls() == []
    assert caplog.records == []


@pytest.mark.parametrize("answer", [None, ObjectExists("taken")], ids=["created", "exists"])
async def test_a_definite_answer_ends_it(
    setting: Setting, answer: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    await setting.fail_for(3, FULL)
    assert len(setting.health.stalls()) == 1
    setting.health.end(setting.health.begin("create", "k"), answer)
    assert setting.health.stalls() == []
    (slow,) = [line for line in lines(caplog, logging.WARNING) if line.startswith("put_slow")]
    assert slow.startswith("put_slow key=k size_bytes=0 duration_seconds=3") and not slow.endswith("tries=1")


async def test_a_large_put_is_slow_later(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    for size_bytes in (USUAL_BYTES, USUAL_BYTES + 4 * SLOWEST_BYTES_PER_SECOND):
        call = setting.health.begin("create", "k", size_bytes)
        await setting.clock.advance(3)
        setting.health.end(call, None)
    told = [line for line in lines(caplog, logging.WARNING) if line.startswith("put_slow")]
    assert told == [f"put_slow key=k size_bytes={USUAL_BYTES} duration_seconds=3 tries=1"]


async def test_what_nobody_tries_any_more_is_forgotten(setting: Setting) -> None:
    await setting.fail_for(3, StoreRefused("no permission", cause="EACCES"))
    assert setting.health.stalls()[0].cause == "EACCES"
    await setting.clock.advance(4)
    assert setting.health.stalls() == []


async def test_a_long_disturbance_is_told_now_and_then(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    await setting.fail_for(600, FULL, pause_seconds=2)
    assert 4 <= len(lines(caplog, logging.WARNING)) <= 8


async def test_a_store_that_is_slow_with_every_put_is_one_disturbance(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for n in range(20):
        call = setting.health.begin("create", f"k{n}")
        await setting.clock.advance(2.5)
        setting.health.end(call, None)
    await setting.clock.advance(6)
    told = [line.partition(" ")[0] for line in lines(caplog, logging.WARNING)]
    assert told.count("store_stalled") <= 4
    assert told.count("put_slow") == 20
    assert len(lines(caplog, logging.INFO)) == 1


async def test_a_new_cause_is_told_at_once(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    await setting.fail_for(2, FULL)
    await setting.fail_for(1, StoreRefused("read-only (EROFS)", cause="EROFS"))
    told = lines(caplog, logging.WARNING)
    assert len(told) == 2 and "ENOSPC" in told[0] and "EROFS" in told[1]


async def test_a_large_put_may_take_longer(setting: Setting) -> None:
    large = setting.health.begin("create", "large", USUAL_BYTES + 16 * 1024 * 1024)
    await setting.clock.advance(5)
    assert setting.health.stalls() == []
    await setting.clock.advance(1)
    assert len(setting.health.stalls()) == 1
    setting.health.end(large, None)


async def test_the_caller_of_a_listing_may_take_its_time(setting: Setting) -> None:
    await setting.put("a/1")
    await setting.put("a/2")
    listing = setting.store.list("a/")
    await anext(listing)
    await setting.clock.advance(60)
    assert setting.health.stalls() == []
    with contextlib.suppress(StopAsyncIteration):
        while True:
            await anext(listing)
    assert setting.health.stalls() == []


async def test_a_cancelled_call_is_no_longer_under_way(setting: Setting) -> None:
    setting.faults.add("head", FaultKind.HANG)
    reading = asyncio.create_task(setting.store.head("k"))
    await settle()
    await setting.clock.advance(3)
    assert len(setting.health.stalls()) == 1
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert setting.health.stalls() == []


async def test_writes_are_named_before_reads(setting: Setting) -> None:
    read, written = setting.health.begin("head", "r"), setting.health.begin("create", "w")
    await setting.clock.advance(3)
    named = setting.health.why()
    assert named is not None and named.operation == "create"
    setting.health.end(written, None)
    named = setting.health.why()
    assert named is not None and named.operation == "head"
    setting.health.end(read, None)
    assert setting.health.why() is None


async def test_memory_is_bounded_while_everything_fails(setting: Setting) -> None:
    for n in range(2 * MOST_FAILING):
        for _ in range(2):
            setting.health.end(setting.health.begin("get", f"k{n}"), FULL)
    await setting.clock.advance(2)
    assert len(setting.health.stalls()) == MOST_FAILING


async def test_errors_are_counted_by_cause(setting: Setting) -> None:
    setting.metrics.record("create", FULL, size_bytes=1, seconds=0)
    setting.metrics.record("create", FULL, size_bytes=1, seconds=0)
    setting.metrics.record("get", OutcomeUnknown("who knows"), size_bytes=0, seconds=0)
    setting.metrics.record("create", ObjectExists("taken"), size_bytes=1, seconds=0)
    assert setting.metrics.errors() == {("create", "ENOSPC"): 2, ("get", "OutcomeUnknown"): 1}
