"""The messages of a producer that wait for their acknowledgement."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from braidmq.publish.encoding.outgoing import Row
from braidmq.publish.receipts import AsyncReceipt
from braidmq.transport.trace_context import TraceHeaders, trace_headers


@dataclass(slots=True)  # not frozen: that costs a call for each field, and there is one of these for each message
class Pending:
    """A message without an answer.

    `number` counts the producer's messages in order; `flushes_before` is how many flushes were called before it;
    `trace` is that of who sent it.
    """

    row: Row
    size_bytes: int
    receipt: AsyncReceipt
    due_seconds: float
    number: int
    flushes_before: int
    trace: TraceHeaders


class PendingMessages:
    """Counts the messages without an answer: their bytes bound memory, their flushes say when a flush is done."""

    def __init__(self, max_bytes: int) -> None:
        self.is_closed = False
        self._max_bytes = max_bytes
        self._bytes = 0
        self._added = 0
        self._flushes = 0
        self._unanswered: Counter[int] = Counter()
        self._changed = asyncio.Condition()

    def has_room(self, size_bytes: int) -> bool:
        """Whether a message of that size need not wait: it fits, or is the only one, or the producer is closed."""
        return self._bytes + size_bytes <= self._max_bytes or self._bytes == 0 or self.is_closed

    def add(self, row: Row, size_bytes: int, receipt: AsyncReceipt, due_seconds: float) -> Pending:
        """Count a message as pending and return it, numbered."""
        self._added += 1
        self._bytes += size_bytes
        self._unanswered[self._flushes] += 1
        return Pending(row, size_bytes, receipt, due_seconds, self._added, self._flushes, trace_headers())

    def start_flush(self) -> int:
        """Start a flush of all messages so far and return its number."""
        self._flushes += 1
        return self._flushes - 1

    def is_flushed(self, flush: int) -> bool:
        """Whether every message from before that flush has been answered."""
        return all(each > flush for each in self._unanswered)

    async def wait_until(self, reached: Callable[[], bool]) -> None:
        """Wait until `reached`, which is checked whenever messages have been answered."""
        async with self._changed:
            await self._changed.wait_for(reached)

    async def remove(self, batch: Sequence[Pending]) -> None:
        """A batch has been answered, or has failed: make room, and wake those who wait."""
        self._bytes -= sum(pending.size_bytes for pending in batch)
        for flush, count in Counter(pending.flushes_before for pending in batch).items():
            self._unanswered[flush] -= count
            if not self._unanswered[flush]:
                del self._unanswered[flush]
        await self._notify()

    async def abandon(self) -> None:
        """Forget all messages, and wake those who wait."""
        self._unanswered.clear()
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
