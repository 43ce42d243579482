"""The iterators over messages and tables: they return one page's messages after the other and know their position."""

from collections.abc import AsyncIterator, Iterator

import pyarrow as pa

from braidmq.message import Message, MessagePage
from braidmq.read.reader import Reader
from braidmq.short_tracebacks import short_tracebacks, shortening

# Objects are made this many at a time: enough to spread the cost per column, few enough for memory.
_SLICE_ROWS = 512


class _Place:
    """Where a reader is within a page: `given` is the message that was returned last; None before the first.

    The reader has yet to go on behind a page that `is_polled`.
    """

    __slots__ = ("given", "is_polled", "made", "next_row", "page")

    def __init__(self, page: MessagePage, *, is_polled: bool = False) -> None:
        self.page, self.is_polled = page, is_polled
        self.given: Message | None = None
        self.made: Iterator[Message] = iter(())
        self.next_row = 0

    def first_of_more(self) -> Message | None:
        """Make the next messages of the page, and return the first of them; None at its end."""
        if self.next_row >= len(self.page):
            return None
        self.made = iter(self.page.messages(self.next_row, _SLICE_ROWS))
        self.next_row += _SLICE_ROWS
        return next(self.made)


class MessageCursor:
    """The position of a reader within a page. Both kinds of client share it."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._place: _Place | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.reader.topic!r})"

    @property
    def marker(self) -> str | None:
        """Where to go on after the last message returned.

        Before the first message, it is the marker that iteration started at; None until the first answer if it started
        at a time, `earliest` or `latest`.
        """
        if self._place is None:
            return self.reader.marker
        return self._place.page.start if self._place.given is None else self._place.given.marker

    def take(self) -> Message | None:
        """Return the next message of the page; None at its end."""
        if (place := self._place) is None:
            return None
        message = next(place.made, None) or place.first_of_more()
        if message is not None:
            place.given = message
        return message

    def begin_polled(self, page: MessagePage) -> None:
        """Go on with the first message of a page that was polled: an interrupt comes before this, or after it."""
        self._place = _Place(page, is_polled=True)

    def settle(self) -> None:
        """Let the reader go on behind the page, if it was polled. Repeating it does nothing."""
        if self._place is not None and self._place.is_polled:
            self.reader.go_behind(self._place.page)
            self._place.is_polled = False

    @shortening
    async def next_page(self) -> bool:
        """Fetch the next page. Return False if there is none. An interrupted call loses nothing."""
        page = await self.reader.next_page()
        self._place = None if page is None else _Place(page)
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
