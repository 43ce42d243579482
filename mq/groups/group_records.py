"""The records of one group, as its coordinator stores them: one after the other, until they no longer count."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from filer.errors import BraidError, SegmentMoved, UnreadableObject
from groups.records import Deleted, Record
from mq.base.errors import NotFound

Append = Callable[[Record], Awaitable[int]]
"""Stores a record of the group; returns its offset once it is acknowledged. Raises if it does not count."""
_News = TypeVar("_News", bound=Record)


class GroupRecords:
    """Stores records of a group by `append`. All methods belong to the event loop's thread.

    `on_lost` is called once, with the reason, if records do not count any more: then this broker is not the
    coordinator, and its state is worth nothing. `on_end` is called before that, to fail waiting calls.
    """

    def __init__(
        self,
        topic: str,
        name: str,
        *,
        append: Append,
        on_lost: Callable[[BaseException], None],
        on_end: Callable[[], None],
    ) -> None:
        self._topic, self._name, self._append, self._on_lost, self._on_end = topic, name, append, on_lost, on_end
        self._lock = asyncio.Lock()
        # Decisions made now are part of the next record; another one may be on its way before it.
        self._making: asyncio.Future[None] = _new_future()
        self._storing: asyncio.Future[None] | None = None
        self.lost: BaseException | None = None
        self._ask_again = False

    def check(self) -> None:
        """Raises `NotFound` if the group was deleted, `SegmentMoved` if records do not count for another reason."""
        if isinstance(self.lost, NotFound) and not self._ask_again:
            raise self.lost
        if self.lost is not None:
            raise self.moved()

    def moved(self) -> SegmentMoved:
        """Return the error that sends a caller to look for the coordinator again."""
        return SegmentMoved(f"group {self._name!r} of topic {self._topic!r} has another coordinator")

    @property
    def told(self) -> BraidError:
        """The error for waiting calls when records do not count: what stopped the group, or the request to ask again.

        A caller that asks again makes the log be read again.
        """
        if isinstance(self.lost, NotFound | UnreadableObject) and not self._ask_again:
            return self.lost
        return self.moved()

    @contextlib.asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """A context in which no other record of the group is on its way. Raises `SegmentMoved`."""
        async with self._lock:
            if self.lost is not None:
                raise self.moved()
            yield

    async def store(self, record: Record) -> int:
        """Store a record; returns its offset. If that fails, records do not count any more."""
        try:
            return await self._append(record)
        except BaseException as error:
            self.lose(error)
            raise

    async def store_news(self, take: Callable[[], _News | None], stored: Callable[[_News], None]) -> None:
        """Store the decisions that `take` returns, if any, and apply them with `stored`. Call it `at_rest`.

        Stopped before it is acknowledged, no caller was answered. Stopped after it, the next coordinator knows it, and
        gives a caller that asks again the same answer as this one would have.
        """
        made, self._making = self._making, _new_future()
        self._storing = made
        news = take()
        if news is not None:
            await self.store(news)
            stored(news)
        self._storing = None
        if not made.done():
            made.set_result(None)

    def news_stored(self, *, has_news: bool) -> "asyncio.Future[None]":
        """Return a future that is done when all decisions so far are stored. `has_news`: some are not on their way."""
        return self._making if has_news or self._storing is None else self._storing

    async def delete(
        self, at_ms: int, *, only_if: Callable[[], Awaitable[bool]] | None = None, ask_again: bool = False
    ) -> bool:
        """End the group for ever; with `only_if`, if that holds. Returns whether it is ended now.

        Stopped before that is stored, it is there; stopped after it, no caller finds it. `only_if` is called when no
        other record is on its way: it takes the records before it into account. From then on to the end no caller is
        answered by a record, since there is none before this one. With `ask_again`, a caller that comes meanwhile is
        asked to call again, and then creates another group.
        """
        async with self.at_rest():
            if only_if is not None and not await only_if():
                return False
            self._ask_again = ask_again
            await self.store(Deleted(at=at_ms))
            self.lose(NotFound("group", f"group {self._name!r} of topic {self._topic!r} was deleted"))
            return True

    def lose(self, error: BaseException) -> None:
        """Note that records do not count any more."""
        if self.lost is None:
            self.end(error)
            self._on_lost(error)

    def end(self, error: BaseException) -> None:
        """As `lose`, for a caller that knows of it."""
        self.lost = error
        for future in (self._storing, self._making):
            if future is not None and not future.done():
                future.set_exception(self.told)
                future.exception()
        self._on_end()


def _new_future() -> "asyncio.Future[None]":
    return asyncio.get_running_loop().create_future()
