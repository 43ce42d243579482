"""The records of one group, as its coordinator stores them: one after the other, until they do not count any more."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from filer.errors import BraidError, SegmentMoved, UnreadableObject
from groups.records import Record
from mq.base.errors import NotFound

Append = Callable[[Record], Awaitable[int]]
"""Stores a record of the group; returns its offset once it is acknowledged. Raises if it does not count."""


class GroupRecords:
    """Stores records of a group by `append`. All methods belong to the event loop's thread.

    `on_lost` is called once, with the reason, if records do not count any more: then this broker is not the
    coordinator, and what it knows is worth nothing. `on_end` is called before that, to tell those who wait.
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
        self.lost: BaseException | None = None

    def check(self) -> None:
        """Raises `NotFound` if the group was deleted, `SegmentMoved` if records do not count for another reason."""
        if isinstance(self.lost, NotFound):
            raise self.lost
        if self.lost is not None:
            raise self.moved()

    def moved(self) -> SegmentMoved:
        """What whoever asks is told: to look for the coordinator again."""
        return SegmentMoved(f"group {self._name!r} of topic {self._topic!r} has another coordinator")

    @property
    def told(self) -> BraidError:
        """What those who wait are told when records do not count: what keeps the group from going on, or to ask again.

        Who asks again has the log read again.
        """
        return self.lost if isinstance(self.lost, NotFound | UnreadableObject) else self.moved()

    @contextlib.asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """A context in which no other record of the group is on its way. Raises `SegmentMoved`."""
        async with self._lock:
            if self.lost is not None:
                raise self.moved()
            yield

    async def store(self, record: Record) -> int:
        """Store a record; its offset. If that fails, records do not count any more."""
        try:
            return await self._append(record)
        except BaseException as error:
            self.lose(error)
            raise

    def lose(self, error: BaseException) -> None:
        """Records do not count any more."""
        if self.lost is None:
            self.end(error)
            self._on_lost(error)

    def end(self, error: BaseException) -> None:
        """As `lose`, where whoever made this knows of it."""
        self.lost = error
        self._on_end()
