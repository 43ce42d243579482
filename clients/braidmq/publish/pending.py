"""The messages of a producer that wait for their acknowledgement."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from braidmq.publish.encoding.row_columns import RowColumns
from braidmq.publish.receipts import Receipts
from braidmq.transport.trace_context import TraceHeaders


@dataclass(slots=True)  # not frozen: that costs a call for each field
class Pending:
    """Messages without an answer, which came together and go to one segment.

    `numbers` says which of the `receipts` are theirs, one for each row. `order` counts what came to the producer;
    `flushes_before` is how many flushes were called before; `trace` is that of the caller that sent them.
    """

    rows: RowColumns
    receipts: Receipts
    numbers: Sequence[int]
    due_seconds: float
    order: int
    flushes_before: int
    trace: TraceHeaders

    @property
    def size_bytes(self) -> int:
        """About how much they take in a request."""
        return self.rows.size_bytes

    def cut(self, row: int) -> tuple["Pending", "Pending"]:
        """The messages before that one, and the others."""
        first, second = self.rows.cut(row)
        return self._with(first, self.numbers[:row]), self._with(second, self.numbers[row:])

    def take(self, rows: Sequence[int]) -> "Pending":
        """Those messages, in that order."""
        return self._with(self.rows.take(rows), [self.numbers[row] for row in rows])

    def _with(self, rows: RowColumns, numbers: Sequence[int]) -> "Pending":
        return Pending(rows, self.receipts, numbers, self.due_seconds, self.order, self.flushes_before, self.trace)


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
        """Whether messages of that size need not wait: they fit, or are the only ones, or the producer is closed."""
        return self._bytes + size_bytes <= self._max_bytes or self._bytes == 0 or self.is_closed

    def add(self, rows: RowColumns, receipts: Receipts, due_seconds: float, trace: TraceHeaders) -> Pending:
        """Count messages as pending, numbered from 0."""
        self._added += 1
        self._bytes += rows.size_bytes
        self._unanswered[self._flushes] += len(rows)
        numbers = range(len(rows))
        return Pending(rows, receipts, numbers, due_seconds, self._added, self._flushes, trace)

    @property
    def unanswered(self) -> int:
        """How many messages have no answer."""
        return sum(self._unanswered.values())

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
        """Remove a batch that has been answered, or has failed: make room, and wake waiting callers."""
        for pending in batch:
            self._bytes -= pending.size_bytes
            self._unanswered[pending.flushes_before] -= len(pending.rows)
            if not self._unanswered[pending.flushes_before]:
                del self._unanswered[pending.flushes_before]
        await self._notify()

    async def abandon(self) -> None:
        """Forget all messages, and wake waiting callers."""
        self._unanswered.clear()
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
