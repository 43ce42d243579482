"""The memory that one page of a read may take: how much is decoded for it, and how much of that it keeps."""

from typing import Protocol

import pyarrow as pa

from filer.format.row_ends import Ends, Rows, head

SMALL_BYTES = 1024 * 1024
"""Room is taken in steps of at least this size. What decodes to no more is decoded without a look at its footer."""


class NoRoom(Exception):
    """A page had to end before the messages of this segment. They come in the next one."""


class ReadRoom(Protocol):
    """The memory that a read may take. Reads share it."""

    async def take(self, size_bytes: int) -> bool:
        """Take so much more; False if the page has to end before that. Waits only for the first room of a page."""
        ...

    async def enlarge(self) -> bool:
        """After a page that ended before its first message: wait for what it lacked. False if it lacked no room."""
        ...


class Page:
    """The messages found so far for a read from `offset` on, and the room that was taken to decode them."""

    def __init__(self, offset: int, max_rows: int, max_bytes: int, room: ReadRoom | None) -> None:
        self.reached = offset
        self.tables: list[pa.Table] = []
        self.max_rows, self.max_bytes = max_rows, max_bytes
        self._room = room
        self._rows = self._content_bytes = self._used_bytes = self._taken_bytes = 0
        self.ended = False

    @property
    def full(self) -> bool:
        """Whether no further file is to be decoded."""
        return self.ended or self._rows >= self.max_rows or self._content_bytes >= self.max_bytes

    def joined(self) -> pa.Table:
        """All that was found."""
        return pa.concat_tables(self.tables) if len(self.tables) > 1 else self.tables[0]

    def takes(self, rows: int, size_bytes: int) -> bool:
        """Whether the bounds leave room for all of them."""
        return self._rows + rows <= self.max_rows and self._content_bytes + size_bytes <= self.max_bytes

    def first_of(self, table: pa.Table, ends: Ends, start: int) -> Rows:
        """The rows from that one on that the bounds leave room for; of a page at least one."""
        return head(
            table,
            ends,
            start,
            max_rows=self.max_rows - self._rows,
            max_bytes=self.max_bytes - self._content_bytes,
            least_rows=0 if self.tables else 1,
        )

    async def has_room(self, size_bytes: int) -> bool:
        """Whether so much more may be decoded. If not, the page ends here."""
        missing_bytes = self._used_bytes + size_bytes - self._taken_bytes
        if self._room is not None and missing_bytes > 0:
            taken_bytes = max(missing_bytes, SMALL_BYTES)
            if not await self._room.take(taken_bytes):
                self.ended = True
                return False
            self._taken_bytes += taken_bytes
        return True

    @property
    def spare_bytes(self) -> int:
        """How much may be decoded without taking more room."""
        if self._room is None:
            return self.max_bytes - self._content_bytes
        return self._taken_bytes - self._used_bytes

    def add(self, start: int, rows: Rows, *, decoded_bytes: int) -> None:
        """Add the messages from `start` on, and how much was decoded for them. None means that the page is full."""
        self._used_bytes += decoded_bytes
        if not rows.table.num_rows:
            self.ended = True
            return
        self.tables.append(rows.table)
        self.reached = start + rows.table.num_rows
        self._rows += rows.table.num_rows
        self._content_bytes += rows.size_bytes
