"""The memory that one page of a read may take: how much is decoded for it, and how much of that it keeps."""

from typing import Protocol

import pyarrow as pa

SMALL_BYTES = 1024 * 1024
"""Room is taken in steps of at least this, and what decodes to no more is decoded without a look at its footer."""


class NoRoom(Exception):
    """A page had to end before the messages of this segment. They come in the next one."""


class ReadRoom(Protocol):
    """The memory that a read may take, shared with other reads."""

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
        self._rows = self._content_bytes = self._last_bytes = self._used_bytes = self._taken_bytes = 0
        self.ended = False

    @property
    def full(self) -> bool:
        """Whether no further file is to be decoded."""
        return self.ended or self._rows >= self.max_rows or self._content_bytes >= self.max_bytes

    def joined(self) -> pa.Table:
        """All that was found, within the bounds."""
        if self._content_bytes > self.max_bytes:
            # Before the last table was added, there was less than that.
            left_bytes = self.max_bytes - (self._content_bytes - self._last_bytes)
            least_rows = 1 if len(self.tables) == 1 else 0
            self.tables[-1] = head(self.tables[-1], self.max_rows, left_bytes, least_rows=least_rows)
        return pa.concat_tables(self.tables).slice(0, self.max_rows)

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

    def add(self, start: int, table: pa.Table, *, decoded_bytes: int, content_bytes: int | None = None) -> None:
        """Add the messages from `start` on, for which that much was decoded. They take `content_bytes`, if known."""
        self.tables.append(table)
        self.reached = start + table.num_rows
        self._rows += table.num_rows
        self._last_bytes = table.nbytes if content_bytes is None else content_bytes
        self._content_bytes += self._last_bytes
        self._used_bytes += decoded_bytes


def head(table: pa.Table, max_rows: int, max_bytes: int, *, least_rows: int = 1) -> pa.Table:
    """The first rows: at most `max_rows`, and more than `least_rows` only if they take no more than `max_bytes`.

    May be fewer than would fit: Arrow takes long to tell a slice's size, so this ends once the room is almost full.
    """
    first = table.slice(0, max_rows)
    size_bytes = first.nbytes
    if size_bytes <= max_bytes:
        return first
    enough_bytes = max_bytes - max_bytes // 16
    fits, too_many = least_rows, first.num_rows
    # Most rows are of about the same size, so the first guess is mostly right.
    guess = first.num_rows * (max_bytes - max_bytes // 32) // size_bytes
    while fits + 1 < too_many:
        rows = guess if fits < guess < too_many else (fits + too_many) // 2
        guess = 0
        size_bytes = first.slice(0, rows).nbytes
        if size_bytes > max_bytes:
            too_many = rows
            continue
        fits = rows
        if size_bytes >= enough_bytes:
            break
    return first.slice(0, fits)
