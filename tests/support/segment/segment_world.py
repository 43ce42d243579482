"""The world of one segment: a store in memory that fails as told, topic.json's answers, and owners of the segment."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from filer.clock import ManualClock
from filer.errors import BraidError
from filer.format.requests import Position, RequestId
from filer.segment.next_file import Accepted
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import Inherit, SegmentRef, nothing_inherited, recover_index, seal_at_end
from filer.segment.take_over import flush_and_seal
from filer.segment.writer.replicated_acks import Replication
from filer.segment.writer.segment_writer import SegmentWriter
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import ScriptedFaults
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Store
from filer.stores.store_time import Moment
from tests.support.segment.segment_owners import GRACE_SECONDS, owner, single, stored_values


class FakeFollowers:
    """Followers that hold as much as the test says; implements `Replicas`.

    `given` are the offsets handed to readers early, `unstored_bytes` what is acknowledged and not stored.
    """

    def __init__(self) -> None:
        self.sent: list[Accepted] = []
        self.stored_ends: list[int] = []
        self.closed = 0
        self.in_step = True
        self.may_answer = True
        self.given: list[int] = []
        self.unstored_bytes = 0
        self.hold: Callable[[int], None]
        self.refuse: Callable[[], None]

    def replication(self) -> Replication:
        return Replication(self, lambda: self.may_answer, self._give, self._grow)

    def attach(self, on_held: Callable[[int], None], on_refused: Callable[[], None]) -> None:
        self.hold, self.refuse = on_held, on_refused

    def send(self, accepted: Accepted) -> None:
        self.sent.append(accepted)

    def stored(self, end: int) -> None:
        self.stored_ends.append(end)

    def close(self) -> None:
        self.closed += 1

    def _give(self, segment: int, held: Sequence[Accepted]) -> None:
        self.given += [offset for each in held for offset in range(each.base, each.end)]

    def _grow(self, size_bytes: int) -> None:
        self.unstored_bytes += size_bytes
        assert self.unstored_bytes >= 0


class SegmentWorld:
    """One segment with its owners; `close` ends them all.

    Owners use `store`, which meets the `faults` and counts calls in `asked`; `memory` is the same store without faults.
    topic.json says that the segment `exists` and whether it is `open`, once `record_is_readable` is set.
    `followers` are those of every owner, where there are any.
    """

    def __init__(self, ref: SegmentRef | None = None, *, followers: FakeFollowers | None = None) -> None:
        self.ref = ref or SegmentRef("events", 0)
        self.clock = ManualClock()
        self.memory = MemoryStore(clock=self.clock)
        # Every broker asks its store something before it owns a segment.
        self.memory.time.record(self.clock.now_us())
        self.faults = ScriptedFaults()
        self.asked: Counter[str] = Counter()
        self.store = FailingStore(self.memory, self.faults, clock=self.clock, on_point=self._count)
        self.exists = True
        self.open: bool | BraidError = False
        self.record_is_readable = asyncio.Event()
        self.record_is_readable.set()
        self.followers = followers
        self.writers: list[SegmentWriter] = []

    # -- owners ----------------------------------------------------------------------------------------------

    def open_writer(
        self,
        index: SegmentIndex | None = None,
        *,
        store: Store | None = None,
        flush_bytes: int = 1 << 20,
        flush_interval_seconds: float = 0.0,
        inherit: Inherit = nothing_inherited,
        awaited: bool = False,
        proven: Moment | None = None,
    ) -> SegmentWriter:
        """An owner that goes on where the index ends: a.1, then b.1, and so on."""
        writer = owner(
            store or self.store,
            self.clock,
            self.ref,
            index or SegmentIndex(),
            broker=f"{chr(ord('a') + len(self.writers))}.1",
            look=self._exists,
            is_open=self._is_open,
            flush_bytes=flush_bytes,
            flush_interval_seconds=flush_interval_seconds,
            inherit=inherit,
            replication=None if self.followers is None else self.followers.replication(),
            awaited=awaited,
            proven=proven,
        )
        self.writers.append(writer)
        return writer

    async def open_next_writer(self) -> SegmentWriter:
        """Another process that takes the segment up where the log ends, on the store without faults."""
        return self.open_writer(await self.recovered(), store=self.memory)

    @property
    def writer(self) -> SegmentWriter:
        """The first owner."""
        return self.writers[0]

    def append(
        self, value: bytes, *, request: RequestId | None = None, replicated: bool | None = None
    ) -> "asyncio.Future[list[Position]]":
        """One message of 10 bytes to the first owner; `replicated` unless told otherwise where there are followers."""
        replicated = self.followers is not None if replicated is None else replicated
        return self.writer.append(single(value), 10, request, replicated=replicated)

    async def close(self) -> None:
        for writer in self.writers:
            await writer.close()
        assert self.followers is None or self.followers.unstored_bytes == 0

    # -- time and the store ----------------------------------------------------------------------------------

    async def pass_seconds(self, seconds: float) -> None:
        """In ten steps, so that retries with growing pauses all happen."""
        for _ in range(10):
            await self.clock.advance(seconds / 10)

    async def recovered(self) -> SegmentIndex:
        return await recover_index(self.memory, self.ref)

    async def values(self) -> list[bytes]:
        """All values of the log, as a fresh broker finds them."""
        return await stored_values(self.memory, self.ref)

    async def seal_at_end(self) -> SegmentIndex:
        """Seal in the owner's stead, on the store with faults."""
        return await seal_at_end(
            self.store, self.clock, self.ref, start_offset=0, writer="z.1", grace_seconds=GRACE_SECONDS
        )

    async def flush_and_seal(self) -> SegmentIndex:
        """Store what the first owner holds in its stead, and seal, on the store without faults."""
        return await flush_and_seal(
            self.memory,
            self.clock,
            self.ref,
            self.writer.unflushed,
            start_offset=0,
            writer="z.1",
            grace_seconds=GRACE_SECONDS,
        )

    # -- topic.json ------------------------------------------------------------------------------------------

    async def _exists(self) -> bool:
        self.asked["exists"] += 1
        return self.exists

    async def _is_open(self) -> bool:
        self.asked["is open"] += 1
        await self.record_is_readable.wait()
        if isinstance(self.open, BraidError):
            raise self.open
        return self.open

    def _count(self, point: str, key: str) -> None:
        if point.startswith("before"):
            self.asked[point.removeprefix("before ")] += 1
