"""Sends the messages of one key range, in order, with one request in flight."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from braidmq.publish.pending import Pending
from braidmq.publish.row_positions import KeyRange
from filer.clock import Clock

RefreshRoute = Callable[[], Awaitable[None]]
SendBatch = Callable[["SegmentSender", list[Pending], float], Awaitable[None]]


@dataclass(slots=True)
class BatchTiming:
    """When batches go, for all senders of a producer. While `flushes` is above 0, no batch lingers."""

    clock: Clock
    linger_seconds: float
    batch_bytes: int
    flushes: int = 0


class SegmentSender:
    """Collects messages and gives them to `send_batch`, one batch at a time: the next once the last was answered.

    Before each batch it awaits `refresh_route`, which may retire it because its segment has been replaced. The seconds
    that this took go with the batch: they count for the time that a publish may take.

    `segment` and `key_range` say which messages it sends. Without a `key_range` it sends messages without keys, and
    `number` distinguishes it from the other senders of such messages. It starts once the requests in flight of its
    `predecessors`, which send to the same keys, have been answered. After `retire` it takes no further messages and
    ends once its request in flight has been answered.
    """

    def __init__(
        self,
        timing: BatchTiming,
        refresh_route: RefreshRoute,
        send_batch: SendBatch,
        *,
        segment: int | None = None,
        key_range: KeyRange | None = None,
        number: int = 0,
        predecessors: "Sequence[SegmentSender]" = (),
    ) -> None:
        self.segment = segment
        self.key_range = key_range
        self.number = number
        self.waiting_bytes = 0
        self.in_flight: list[Pending] = []
        self._timing = timing
        self._refresh_route = refresh_route
        self._send_batch = send_batch
        self._predecessors = predecessors
        self._waiting: deque[Pending] = deque()
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._retired = False
        self._worker: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has started and not ended yet."""
        return self._worker is not None and not self._worker.done()

    def overlaps(self, key_range: KeyRange) -> bool:
        """Whether it may hold keys of that range."""
        mine = self.key_range
        return mine is not None and mine[0] < key_range[1] and key_range[0] < mine[1]

    def put(self, pending: Pending) -> None:
        """Append messages to those that wait."""
        self._waiting.append(pending)
        self.waiting_bytes += pending.size_bytes
        self.wake()

    def wake(self) -> None:
        """Check again whether a batch should go."""
        self._changed.set()
        if self._worker is None and self._waiting:
            self._worker = asyncio.create_task(self._work(), name="braidmq segment sender")

    def retire(self) -> list[Pending]:
        """Take no further messages, and return those that wait."""
        waiting, self._waiting, self.waiting_bytes = list(self._waiting), deque(), 0
        self._retired = True
        self.wake()
        return waiting

    async def wait_until_idle(self) -> None:
        """Wait until no request is in flight."""
        await self._idle.wait()

    async def stop(self) -> list[Pending]:
        """End at once and return the messages without an answer. Those in flight may or may not be stored."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        return [*self.in_flight, *self.retire()]

    async def _work(self) -> None:
        for sender in self._predecessors:
            await sender.wait_until_idle()
        self._predecessors = ()
        while await self._batch_is_due():
            begun_seconds = self._timing.clock.monotonic_seconds()
            await self._refresh_route()
            if self._retired:
                return
            self.in_flight = self._take_batch()
            self._idle.clear()
            try:
                route_seconds = self._timing.clock.monotonic_seconds() - begun_seconds
                await self._send_batch(self, self.in_flight, route_seconds)
            finally:
                self._idle.set()
            self.in_flight = []

    async def _batch_is_due(self) -> bool:
        """Wait until a batch should go and return True. Return False if this sender was retired meanwhile."""
        while not self._retired:
            self._changed.clear()
            if not self._waiting:
                await self._changed.wait()
                continue
            linger_seconds = self._waiting[0].due_seconds - self._timing.clock.monotonic_seconds()
            if linger_seconds <= 0 or self._must_send():
                return True
            await self._linger(linger_seconds)
        return False

    def _must_send(self) -> bool:
        return self._timing.flushes > 0 or self.waiting_bytes >= self._timing.batch_bytes or self._retired

    async def _linger(self, seconds: float) -> None:
        """Wait for that time, or less if the batch must go earlier."""
        waits = [
            asyncio.create_task(self._timing.clock.sleep(seconds)),
            asyncio.create_task(self._full_or_flushed()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _full_or_flushed(self) -> None:
        while not self._must_send():
            self._changed.clear()
            await self._changed.wait()

    def _take_batch(self) -> list[Pending]:
        """The oldest waiting messages that fit into a batch, at least one."""
        batch: list[Pending] = []
        left_bytes = self._timing.batch_bytes
        while self._waiting and (left_bytes >= self._waiting[0].size_bytes or self._cut_first(left_bytes, not batch)):
            batch.append(pending := self._waiting.popleft())
            left_bytes -= pending.size_bytes
            self.waiting_bytes -= pending.size_bytes
        return batch

    def _cut_first(self, size_bytes: int, at_least_one: bool) -> bool:
        """Cut the messages that wait first, so that the first part fits; False if it would be empty."""
        pending = self._waiting[0]
        fit = pending.rows.rows_within(size_bytes) or int(at_least_one)
        if 0 < fit < len(pending.rows):
            self._waiting.popleft()
            self._waiting.extendleft(reversed(pending.cut(fit)))
        return fit > 0
