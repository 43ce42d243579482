"""What topics have on the store, measured now and then, so that no publish waits for it."""

import asyncio
from collections.abc import Awaitable, Callable

from filer.errors import BraidError
from filer.event_log import EventLog
from mq.base.errors import QuotaExceeded
from mq.security.grants import Pattern

APART_SECONDS = 15.0
"""Between two measurements what this broker has taken counts."""

_REFUSED, _FAILED = 400, 500

Measure = Callable[[Pattern], Awaitable[int]]
"""The bytes that topics have on the store."""

_log = EventLog(__name__)


class StorageMeter:
    """The bytes of the topics of one pattern. Who asks has them measured, if that was long ago; nobody waits for it."""

    def __init__(self, topics: Pattern, measure: Measure, now_seconds: Callable[[], float]) -> None:
        self._topics, self._measure, self._now_seconds = topics, measure, now_seconds
        self._measured_bytes = 0
        # What is on its way now, all that was stored until now, and until the last measurement began.
        self._coming_bytes = self._stored_bytes = self._before_bytes = 0
        self._due_seconds = now_seconds()
        self._measured_seconds: float | None = None
        self._measuring: asyncio.Task[None] | None = None

    @property
    def used_bytes(self) -> int:
        """What was measured, what this broker has stored since that began, and what is on its way.

        What was on its way when the measurement began, or came meanwhile, may count twice until the next one, but never
        not at all.
        """
        return self._measured_bytes + self._stored_bytes - self._before_bytes + self._coming_bytes

    @property
    def age_seconds(self) -> float | None:
        """How long ago the last measurement began that came to an end; None if there was none."""
        return None if self._measured_seconds is None else self._now_seconds() - self._measured_seconds

    def refusal(self, topic: str, limit_bytes: int) -> QuotaExceeded | None:
        """Why nothing may be published to that topic now; None if something may be."""
        if not self._topics.matches(topic):
            return None
        self.look_again()
        used_bytes = self.used_bytes
        if used_bytes < limit_bytes:
            return None
        return QuotaExceeded(
            "storage_bytes",
            limit_bytes,
            APART_SECONDS,
            f"the quota of this principal has storage_bytes = {limit_bytes} for the topics '{self._topics}', and they "
            f"have {used_bytes}: delete some, shorten their retention, or ask whoever manages the cluster for more",
            used=used_bytes,
        )

    def look_again(self) -> None:
        """Have it measured, if that was long ago."""
        if self._measuring is None and self._now_seconds() >= self._due_seconds:
            self._measuring = asyncio.create_task(self._look(), name="storage of a quota")

    def taking(self, topic: str, size_bytes: int = 0) -> "Taken | None":
        """So much comes for that topic, which counts until it is settled; None if the topic is none of these."""
        if not self._topics.matches(topic):
            return None
        taken = Taken(self)
        taken.add(size_bytes)
        return taken

    def coming(self, size_bytes: int) -> None:
        """So much more is on its way."""
        self._coming_bytes += size_bytes

    def settled(self, size_bytes: int, *, stored: bool) -> None:
        """So much is on its way no more."""
        self._coming_bytes -= size_bytes
        if stored:
            self._stored_bytes += size_bytes

    def close(self) -> None:
        """Measure no more."""
        if self._measuring is not None:
            self._measuring.cancel()

    async def _look(self) -> None:
        before_bytes, began_seconds = self._stored_bytes, self._now_seconds()
        try:
            self._measured_bytes = await self._measure(self._topics)
            self._before_bytes, self._measured_seconds = before_bytes, began_seconds
        except BraidError as error:
            # What was measured before counts on, and all that was stored since.
            _log.warning("storage_not_measured", topics=str(self._topics), error=error)
        finally:
            self._due_seconds, self._measuring = self._now_seconds() + APART_SECONDS, None


class Taken:
    """What one request brings, until it is known what becomes of it."""

    __slots__ = ("_meter", "_size_bytes")

    def __init__(self, meter: StorageMeter) -> None:
        self._meter, self._size_bytes = meter, 0

    def add(self, size_bytes: int) -> None:
        """So much more of it has come."""
        self._size_bytes += size_bytes
        self._meter.coming(size_bytes)

    def end(self, *, stored: bool) -> None:
        """It is stored, or may be; or nothing of it is. Said twice, the first time counts."""
        self._meter.settled(self._size_bytes, stored=stored)
        self._size_bytes = 0

    def answered(self, status: int) -> None:
        """The request got that answer. Behind 5xx it may be stored all the same, until it is measured."""
        self.end(stored=not _REFUSED <= status < _FAILED)
