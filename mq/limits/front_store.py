"""The bounded memory for recent messages: accepted ones that are not stored yet, and the newest stored ones.

Both share one budget. Pending messages stay; stored ones are dropped, oldest first, to make room.
"""

import bisect
from collections import deque
from collections.abc import Callable

import pyarrow as pa

from filer.segment.later_table import LaterTable, Rows, table_of, tables_of
from mq.limits.room import Room

# Memory of a table of seven columns beside its data. For a single small message this is nearly all of it.
TABLE_OVERHEAD_BYTES = 8 * 1024
# Stored messages take at most the budget divided by this. They serve readers of the tail, which are never far behind.
# With a larger share every request needed fresh memory from the system, which doubled its measured cost.
RECENT_SHARE = 16
# Each operation of Arrow on a table takes some microseconds for each chunk: beyond a few, chunks are joined.
_FEW_CHUNKS, _MOST_CHUNKS, _SMALL_BYTES = 4, 128, 256 * 1024


class Tail:
    """The newest messages of one segment, without a gap, up to its end."""

    def __init__(self, end: int) -> None:
        self._bases: deque[int] = deque()
        self._tables: deque[Rows] = deque()
        self._sizes_bytes: deque[int] = deque()
        self.end = end

    @property
    def start(self) -> int:
        """The first offset held; `end` if the tail is empty."""
        return self._bases[0] if self._bases else self.end

    def append(self, rows: Rows, size_bytes: int) -> None:
        """Add the next file's messages, which take about `size_bytes`."""
        self._bases.append(self.end)
        self._tables.append(rows)
        self._sizes_bytes.append(size_bytes)
        self.end += rows.num_rows

    def drop_oldest(self) -> None:
        """Drop the oldest file's messages, if there are any."""
        if self._bases:
            self._bases.popleft()
            self._tables.popleft()
            self._sizes_bytes.popleft()

    def read(self, offset: int, *, max_rows: int, max_bytes: int) -> pa.Table | None:
        """Return messages from `offset` on, at least one; None if the tail does not hold that offset.

        Files are joined up to about `max_bytes`, and at most `_MOST_CHUNKS` of them: there may be more messages.
        Each row counts with the average size of its file's rows.
        """
        if not self.start <= offset < self.end:
            return None
        chosen: list[pa.Table] = []
        rows = size_bytes = 0
        position = bisect.bisect_right(self._bases, offset) - 1
        skipped = offset - self._bases[position]
        last = min(len(self._tables), position + _MOST_CHUNKS)
        while position < last and rows < max_rows and size_bytes < max_bytes:
            table = table_of(self._tables[position]).slice(skipped)
            skipped = 0
            chosen.append(table)
            rows += table.num_rows
            size_bytes += self._sizes_bytes[position] * table.num_rows // self._tables[position].num_rows
            position += 1
        if len(chosen) == 1:
            return chosen[0].slice(0, max_rows)
        joined = pa.concat_tables(chosen).slice(0, max_rows)
        return joined.combine_chunks() if len(chosen) > _FEW_CHUNKS and size_bytes < _SMALL_BYTES else joined

    def offset_of_time(self, offset: int, timestamp_us: int) -> int | None:
        """Return the first offset from that one on of that time or later, `end` if there is none; None as in `read`."""
        if not self.start <= offset < self.end:
            return None
        position = bisect.bisect_left(self._tables, timestamp_us, key=_last_timestamp_us)
        if position == len(self._tables):
            return self.end
        stamps = table_of(self._tables[position])["_timestamp"].cast(pa.int64()).to_numpy()
        return max(offset, self._bases[position] + int(stamps.searchsorted(timestamp_us)))

    def between(self, start: int, end: int) -> pa.Table | None:
        """Return the messages at offsets `[start, end)`; None if the tail does not hold all of them."""
        if not self.start <= start < end <= self.end:
            return None
        first = bisect.bisect_right(self._bases, start) - 1
        last = bisect.bisect_left(self._bases, end)
        tables = tables_of([self._tables[position] for position in range(first, last)])
        return pa.concat_tables(tables).slice(start - self._bases[first], end - start)


def _last_timestamp_us(rows: Rows) -> int:
    stamp: int = table_of(rows)["_timestamp"][-1].value
    return stamp


class FrontStore(Room):
    """Counts the bytes of all tails, and of messages that are accepted or being received."""

    def __init__(self, limit_bytes: int, now: Callable[[], float] = lambda: 0.0) -> None:
        super().__init__(limit_bytes, now)
        self.recent_bytes = 0
        self._recent: deque[tuple[Tail, int]] = deque()

    def try_reserve(self, size_bytes: int) -> bool:
        """Reserve room for a request, which drops recent messages; False if pending requests leave none."""
        if self.pending_bytes + size_bytes > self.limit_bytes:
            return False
        self.pending_bytes += size_bytes
        if self.pending_bytes + self.recent_bytes > self.limit_bytes:
            self._evict()
        return True

    def grow(self, size_bytes: int) -> None:
        """Count bytes of messages that are acknowledged and not stored yet, even above the limit.

        Negative numbers subtract.
        """
        self.pending_bytes += size_bytes
        self._evict()
        if size_bytes < 0:
            self.release(0)

    def keep(self, tail: Tail, rows: Rows, size_bytes: int) -> None:
        """Add a stored file's messages to their segment's tail, for as long as there is room."""
        if not rows.num_rows:
            return
        held_bytes = size_bytes + TABLE_OVERHEAD_BYTES
        if isinstance(rows, LaterTable):
            held_bytes += rows.row_bytes * rows.num_rows
        tail.append(rows, size_bytes)
        self._recent.append((tail, held_bytes))
        self.recent_bytes += held_bytes
        self._evict()

    def _evict(self) -> None:
        room_bytes = min(self.limit_bytes // RECENT_SHARE, self.limit_bytes - self.pending_bytes)
        while self._recent and self.recent_bytes > room_bytes:
            if len(self._recent) == 1 and self.pending_bytes + self.recent_bytes <= self.limit_bytes:
                return  # readers of the tail wait for the newest file, however large it is
            tail, size_bytes = self._recent.popleft()
            self.recent_bytes -= size_bytes
            tail.drop_oldest()
