"""A lane: the messages of one key range, in their order, one request in flight."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from braidmq.placement import KeyRange
from braidmq.receipts import Pending
from filer.clock import Clock

Look = Callable[[], Awaitable[None]]
Ship = Callable[["Lane", list[Pending]], Awaitable[None]]


@dataclass(slots=True)
class Pace:
    """When batches go, for all lanes of a producer; while `hurried` is above 0 none lingers."""

    clock: Clock
    linger_seconds: float
    batch_bytes: int
    hurried: int = 0


class Lane:
    """Gathers messages and gives them to `ship` a batch at a time, the next when the last has been answered.

    Before each it awaits `look`, which may find that the lane leads nowhere any more, and retire it.

    `segment` and `key_range` are those of the segment that the lane leads to; where there is no `key_range` it is
    the lane of that `number` for messages without keys. It begins when the requests in flight of the lanes `before`
    it have been answered: they lead to the same keys. A lane that is retired takes nothing more, and ends with its
    request in flight.
    """

    def __init__(
        self,
        pace: Pace,
        look: Look,
        ship: Ship,
        *,
        segment: int | None = None,
        key_range: KeyRange | None = None,
        number: int = 0,
        before: "Sequence[Lane]" = (),
    ) -> None:
        self.segment = segment
        self.key_range = key_range
        self.number = number
        self.waiting_bytes = 0
        self.in_flight: list[Pending] = []
        self._pace = pace
        self._look = look
        self._ship = ship
        self._before = before
        self._waiting: deque[Pending] = deque()
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._retired = False
        self._worker: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has begun and not ended yet."""
        return self._worker is not None and not self._worker.done()

    def overlaps(self, key_range: KeyRange) -> bool:
        """Whether the lane may hold keys of that range."""
        mine = self.key_range
        return mine is not None and mine[0] < key_range[1] and key_range[0] < mine[1]

    def put(self, pending: Pending) -> None:
        """Take a message behind those that wait."""
        self._waiting.append(pending)
        self.waiting_bytes += pending.size_bytes
        self.wake()

    def wake(self) -> None:
        """Look again whether a batch should go."""
        self._more.set()
        if self._worker is None and self._waiting:
            self._worker = asyncio.create_task(self._work(), name="braidmq producer lane")

    def retire(self) -> list[Pending]:
        """Take no more; what waits is the caller's."""
        waiting, self._waiting, self.waiting_bytes = list(self._waiting), deque(), 0
        self._retired = True
        self.wake()
        return waiting

    async def answered(self) -> None:
        """Wait until no request is in flight."""
        await self._idle.wait()

    async def stop(self) -> list[Pending]:
        """End at once; what has no answer, which may or may not be stored where it was in flight."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        return [*self.in_flight, *self.retire()]

    async def _work(self) -> None:
        for lane in self._before:
            await lane.answered()
        self._before = ()
        while await self._gathered():
            await self._look()
            if self._retired:
                return
            self.in_flight = self._take()
            self._idle.clear()
            try:
                await self._ship(self, self.in_flight)
            finally:
                self._idle.set()
            self.in_flight = []

    async def _gathered(self) -> bool:
        """Return once a batch should go; False where the lane has been retired meanwhile."""
        while not self._retired:
            self._more.clear()
            if not self._waiting:
                await self._more.wait()
                continue
            rest = self._waiting[0].due_seconds - self._pace.clock.monotonic_seconds()
            if rest <= 0 or self._must_go():
                return True
            await self._sleep_or_more(rest)
        return False

    def _must_go(self) -> bool:
        return self._pace.hurried > 0 or self.waiting_bytes >= self._pace.batch_bytes or self._retired

    async def _sleep_or_more(self, seconds: float) -> None:
        waits = [
            asyncio.create_task(self._pace.clock.sleep(seconds)),
            asyncio.create_task(self._full_or_hurried()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _full_or_hurried(self) -> None:
        while not self._must_go():
            self._more.clear()
            await self._more.wait()

    def _take(self) -> list[Pending]:
        """The oldest waiting messages that fit into a batch, one at least."""
        batch = [self._waiting.popleft()]
        size_bytes = batch[0].size_bytes
        while self._waiting and size_bytes + self._waiting[0].size_bytes <= self._pace.batch_bytes:
            pending = self._waiting.popleft()
            size_bytes += pending.size_bytes
            batch.append(pending)
        self.waiting_bytes -= size_bytes
        return batch
