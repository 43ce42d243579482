"""The iterators over messages and tables: they return one page's messages after the other and know their position."""

from collections.abc import AsyncIterator

import pyarrow as pa

from braidmq.message import Message, MessagePage
from braidmq.read.reader import Reader
from braidmq.short_tracebacks import short_tracebacks, shortening

# Objects are made this many at a time: enough to spread the cost per column, few enough for memory.
_SLICE_ROWS = 512


class MessageCursor:
    """The position of a reader within a page. Both kinds of client share it."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._page: MessagePage | None = None
        self._slice: list[Message] = []
        self._slice_start = 0
        self._next_row = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.reader.topic!r})"

    @property
    def marker(self) -> str | None:
        """Where to go on after the last message returned.

        Before the first message, it is the marker that iteration started at; None until the first answer if it started
        at a time, `earliest` or `latest`.
        """
        if self._page is None or self._next_row >= len(self._page):
            return self.reader.marker
        return self._slice[self._next_row - self._slice_start - 1].marker

    def take(self) -> Message | None:
        """Return the next message of the page; None at its end."""
        if self._page is None or self._next_row >= len(self._page):
            return None
        if self._next_row >= self._slice_start + len(self._slice):
            self._slice_start = self._next_row
            self._slice = self._page.messages(self._next_row, _SLICE_ROWS)
        message = self._slice[self._next_row - self._slice_start]
        self._next_row += 1
        return message

    @shortening
    async def next_page(self) -> bool:
        """Fetch the next page. Return False if there is none. An interrupted call loses nothing."""
        page = await self.reader.next_page()
        self._page, self._slice, self._slice_start, self._next_row = page, [], 0, 0
        return page is not None


class AsyncMessages(MessageCursor, AsyncIterator[Message]):
    """Messages in order; `marker` says where to go on."""

    async def __anext__(self) -> Message:
        while (message := self.take()) is None:
            if not await self.next_page():
                raise StopAsyncIteration
        return message


@short_tracebacks
class AsyncTables(AsyncIterator[pa.Table]):
    """Pages as pyarrow tables; `marker` says where to go on after the last one returned."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic!r})"

    @property
    def topic(self) -> str:
        """The topic that is read."""
        return self._reader.topic

    @property
    def marker(self) -> str | None:
        """Where to go on; None before the first page if iteration started at a time, `earliest` or `latest`."""
        return self._reader.marker

    async def next_table(self) -> pa.Table | None:
        """Return the next page; None at the end."""
        page = await self._reader.next_page()
        return None if page is None else page.table

    async def __anext__(self) -> pa.Table:
        table = await self.next_table()
        if table is None:
            raise StopAsyncIteration
        return table

    async def read_all(self) -> pa.Table:
        """Return all that is left as one table in memory. Without rows it still has the columns of the topic."""
        tables = [each async for each in self]
        schema = self._reader.schema
        if tables:
            return pa.concat_tables(tables)
        return pa.table({}) if schema is None else schema.empty_table()
