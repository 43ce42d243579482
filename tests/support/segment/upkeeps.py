"""The upkeep of a segment as a broker makes it, over any store and clock."""

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from filer.clock import Clock
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef
from filer.stores.store import Store
from filer.upkeep.deletion_clock import DeletionClock
from filer.upkeep.segment_upkeep import SegmentUpkeep, UpkeepContext
from tests.support.segment.segment_owners import GRACE_SECONDS, still_there

ROLLUP_BYTES = 64 * 1024 * 1024


def upkeep_of(
    store: Store,
    clock: Clock,
    ref: SegmentRef,
    index: SegmentIndex,
    executor: Executor,
    *,
    broker: str = "b",
    grace_seconds: float = GRACE_SECONDS,
    rollup_age_seconds: float = 30,
    exists: Callable[[], Awaitable[bool]] = still_there,
    is_current: Callable[[], Awaitable[bool]] = still_there,
    born_here: bool = False,
) -> SegmentUpkeep:
    context = UpkeepContext(
        store=store,
        clock=clock,
        executor=executor,
        broker=broker,
        grace_seconds=grace_seconds,
        rollup_age_seconds=rollup_age_seconds,
        deletions=DeletionClock(store, clock, grace_seconds=grace_seconds),
    )
    return SegmentUpkeep(context, ref, index, exists=exists, is_current=is_current, born_here=born_here)


async def run_until_idle(upkeep: SegmentUpkeep, *, start_offset: int = 0) -> None:
    """Rounds until there is nothing more to do."""
    while upkeep.has_work(start_offset):
        await upkeep.run(rollup_bytes=ROLLUP_BYTES, start_offset=start_offset)
