"""The bounded memory of recent messages: what is accepted and not stored yet, and the newest stored ones.

One budget for both. Pending messages must stay; stored ones are dropped oldest first to make room.
"""

import asyncio
import bisect
from collections import deque

import pyarrow as pa

# What a table of seven columns takes beside its data; for a lone small message it is nearly all.
TABLE_OVERHEAD_BYTES = 8 * 1024
# Stored messages take at most this part of the budget. They serve readers of the tail, who are never far behind;
# holding on to more keeps every request in memory fresh from the system, which was seen to double its cost.
RECENT_SHARE = 16


class Tail:
    """The newest stored messages of one segment, without a gap up to its end."""

    def __init__(self, end: int) -> None:
        self._bases: deque[int] = deque()
        self._tables: deque[pa.Table] = deque()
        self._sizes_bytes: deque[int] = deque()
        self.end = end

    @property
    def start(self) -> int:
        """The first offset held; `end` where nothing is."""
        return self._bases[0] if self._bases else self.end

    def append(self, table: pa.Table, size_bytes: int) -> None:
        """Hold the next file's messages, which take about `size_bytes`."""
        self._bases.append(self.end)
        self._tables.append(table)
        self._sizes_bytes.append(size_bytes)
        self.end += table.num_rows

    def drop_oldest(self) -> None:
        """Forget the oldest file's messages, if any are left."""
        if self._bases:
            self._bases.popleft()
            self._tables.popleft()
            self._sizes_bytes.popleft()

    def read(self, offset: int, *, max_rows: int, max_bytes: int) -> pa.Table | None:
        """Messages from `offset` on, at least one; None where the tail does not hold that offset.

        Files join until about `max_bytes`; the rows of part of a file are taken to be of its average size.
        """
        if not self.start <= offset < self.end:
            return None
        chosen: list[pa.Table] = []
        rows = size_bytes = 0
        position = bisect.bisect_right(self._bases, offset) - 1
        skipped = offset - self._bases[position]
        while position < len(self._tables) and rows < max_rows and size_bytes < max_bytes:
            table = self._tables[position].slice(skipped)
            skipped = 0
            chosen.append(table)
            rows += table.num_rows
            size_bytes += self._sizes_bytes[position] * table.num_rows // self._tables[position].num_rows
            position += 1
        return (pa.concat_tables(chosen) if len(chosen) > 1 else chosen[0]).slice(0, max_rows)

    def between(self, start: int, end: int) -> pa.Table | None:
        """The messages `[start, end)`; None where the tail does not hold all of them."""
        if not self.start <= start < end <= self.end:
            return None
        first = bisect.bisect_right(self._bases, start) - 1
        last = bisect.bisect_left(self._bases, end)
        tables = [self._tables[position] for position in range(first, last)]
        return pa.concat_tables(tables).slice(start - self._bases[first], end - start)


class FrontStore:
    """Accounts for the bytes of all tails and of everything accepted or being received."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.pending_bytes = 0
        self.recent_bytes = 0
        self._waiting_bytes = 0
        self._recent: deque[tuple[Tail, int]] = deque()
        self._released: asyncio.Future[None] | None = None

    def try_reserve(self, size_bytes: int) -> bool:
        """Claim room for a request; False where accepted requests leave none. Recent messages make way."""
        if self.pending_bytes + size_bytes > self.limit_bytes:
            return False
        self.pending_bytes += size_bytes
        if self.pending_bytes + self.recent_bytes > self.limit_bytes:
            self._evict()
        return True

    def grow(self, size_bytes: int) -> None:
        """Count bytes that are there whether there is room or not: acknowledged, and not stored yet; or fewer."""
        self.pending_bytes += size_bytes
        self._evict()
        if size_bytes < 0:
            self.release(0)

    def release(self, size_bytes: int) -> None:
        """Give room back: the request was stored, refused or broken off."""
        self.pending_bytes -= size_bytes
        if self._released is not None:
            self._released.set_result(None)
            self._released = None

    async def room(self, held_bytes: int) -> bool:
        """Wait until some room has been given back, by a request that holds `held_bytes` meanwhile.

        False at once where everything is held by requests that wait here: none of them would ever go on.
        """
        if self._waiting_bytes + held_bytes >= self.pending_bytes:
            return False
        if self._released is None:
            self._released = asyncio.get_running_loop().create_future()
        self._waiting_bytes += held_bytes
        try:
            await asyncio.shield(self._released)
        finally:
            self._waiting_bytes -= held_bytes
        return True

    def keep(self, tail: Tail, table: pa.Table, size_bytes: int) -> None:
        """Hold a stored file's messages in their segment's tail, for as long as there is room."""
        if not table.num_rows:
            return
        held_bytes = size_bytes + TABLE_OVERHEAD_BYTES
        tail.append(table, size_bytes)
        self._recent.append((tail, held_bytes))
        self.recent_bytes += held_bytes
        self._evict()

    def _evict(self) -> None:
        room_bytes = min(self.limit_bytes // RECENT_SHARE, self.limit_bytes - self.pending_bytes)
        while self._recent and self.recent_bytes > room_bytes:
            if len(self._recent) == 1 and self.pending_bytes + self.recent_bytes <= self.limit_bytes:
                return  # however large, the newest file is what readers of the tail wait for
            tail, size_bytes = self._recent.popleft()
            self.recent_bytes -= size_bytes
            tail.drop_oldest()
