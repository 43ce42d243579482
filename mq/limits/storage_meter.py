"""What topics have on the store, measured now and then, so that no publish waits for it."""

import asyncio
from collections.abc import Awaitable, Callable

from filer.errors import BraidError
from filer.event_log import EventLog
from mq.base.errors import QuotaExceeded
from mq.security.grants import Pattern

APART_SECONDS = 15.0
"""Between two measurements what this broker has taken counts."""

Measure = Callable[[Pattern], Awaitable[int]]
"""The bytes that topics have on the store."""

_log = EventLog(__name__)


class StorageMeter:
    """The bytes of the topics of one pattern. Who asks has them measured, if that was long ago; nobody waits for it."""

    def __init__(self, topics: Pattern, measure: Measure, now_seconds: Callable[[], float]) -> None:
        self._topics, self._measure, self._now_seconds = topics, measure, now_seconds
        self._measured_bytes = 0
        # All that was taken until now, until the last measurement began, and until the one before it.
        self._taken_bytes = self._last_bytes = self._before_bytes = 0
        self._due_seconds = now_seconds()
        self._measuring: asyncio.Task[None] | None = None

    @property
    def used_bytes(self) -> int:
        """What was measured, and what this broker has taken since the measurement before began.

        What was on its way to the store while it was measured may count twice for a while, but never not at all.
        """
        return self._measured_bytes + self._taken_bytes - self._before_bytes

    def refusal(self, topic: str, limit_bytes: int) -> QuotaExceeded | None:
        """Why nothing may be published to that topic now; None if something may be."""
        if not self._topics.matches(topic):
            return None
        if self._measuring is None and self._now_seconds() >= self._due_seconds:
            self._measuring = asyncio.create_task(self._look(), name="storage of a quota")
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

    def taken(self, topic: str, size_bytes: int) -> None:
        """So much was taken for that topic."""
        if self._topics.matches(topic):
            self._taken_bytes += size_bytes

    def close(self) -> None:
        """Measure no more."""
        if self._measuring is not None:
            self._measuring.cancel()

    async def _look(self) -> None:
        began_bytes = self._taken_bytes
        try:
            self._measured_bytes = await self._measure(self._topics)
            self._before_bytes, self._last_bytes = self._last_bytes, began_bytes
        except BraidError as error:
            # What was measured before counts on, and all that was taken since.
            _log.warning("storage_not_measured", topics=str(self._topics), error=error)
        finally:
            self._due_seconds, self._measuring = self._now_seconds() + APART_SECONDS, None
