"""The size of topics on the store, measured now and then, so that no publish waits for it."""

import asyncio
from collections.abc import Awaitable, Callable

from filer.errors import BraidError
from filer.event_log import EventLog
from mq.base.errors import QuotaExceeded
from mq.security.grants import Pattern

APART_SECONDS = 15.0
"""Between two measurements, the bytes that this broker has taken count."""

_REFUSED, _FAILED = 400, 500

Measure = Callable[[Pattern], Awaitable[int]]
"""Returns the bytes that topics have on the store."""

_log = EventLog(__name__)


class StorageMeter:
    """The bytes of the topics of one pattern. A look measures them if that was long ago, and does not wait for it."""

    def __init__(self, topics: Pattern, measure: Measure, now_seconds: Callable[[], float]) -> None:
        self._topics, self._measure, self._now_seconds = topics, measure, now_seconds
        self._measured_bytes = 0
        # Bytes on their way now; all bytes stored until now; and those stored until the last measurement began.
        self._coming_bytes = self._stored_bytes = self._before_bytes = 0
        self._due_seconds = now_seconds()
        self._measured_seconds: float | None = None
        self._measuring: asyncio.Task[None] | None = None

    @property
    def used_bytes(self) -> int:
        """The measured bytes, those that this broker has stored since that began, and those on their way.

        Bytes that were on their way when the measurement began, or came during it, may count twice until the next one.
        They always count at least once.
        """
        return self._measured_bytes + self._stored_bytes - self._before_bytes + self._coming_bytes

    @property
    def age_seconds(self) -> float | None:
        """How long ago the last finished measurement began; None if there was none."""
        return None if self._measured_seconds is None else self._now_seconds() - self._measured_seconds

    def refusal(self, topic: str, limit_bytes: int) -> QuotaExceeded | None:
        """Return why nothing may be published to that topic now; None if publishes are allowed."""
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
        """Measure, if that was long ago."""
        if self._measuring is None and self._now_seconds() >= self._due_seconds:
            self._measuring = asyncio.create_task(self._look(), name="storage of a quota")

    def taking(self, topic: str, size_bytes: int = 0) -> "Taken | None":
        """Count so much as coming for that topic, until it is settled; None if the topic is none of these."""
        if not self._topics.matches(topic):
            return None
        taken = Taken(self)
        taken.add(size_bytes)
        return taken

    def coming(self, size_bytes: int) -> None:
        """Count so much more as on its way."""
        self._coming_bytes += size_bytes

    def settled(self, size_bytes: int, *, stored: bool) -> None:
        """Count so much as on its way no more."""
        self._coming_bytes -= size_bytes
        if stored:
            self._stored_bytes += size_bytes

    def close(self) -> None:
        """Stop measuring."""
        if self._measuring is not None:
            self._measuring.cancel()

    async def _look(self) -> None:
        before_bytes, began_seconds = self._stored_bytes, self._now_seconds()
        try:
            self._measured_bytes = await self._measure(self._topics)
            self._before_bytes, self._measured_seconds = before_bytes, began_seconds
        except BraidError as error:
            # The last measurement counts on, and all that was stored since.
            _log.warning("storage_not_measured", topics=str(self._topics), error=error)
        finally:
            self._due_seconds, self._measuring = self._now_seconds() + APART_SECONDS, None


class Taken:
    """The bytes of one request, until their outcome is known."""

    __slots__ = ("_meter", "_size_bytes")

    def __init__(self, meter: StorageMeter) -> None:
        self._meter, self._size_bytes = meter, 0

    def add(self, size_bytes: int) -> None:
        """Add so much more of it."""
        self._size_bytes += size_bytes
        self._meter.coming(size_bytes)

    def end(self, *, stored: bool) -> None:
        """Settle it: it is stored, or may be; or nothing of it is. The first call counts."""
        self._meter.settled(self._size_bytes, stored=stored)
        self._size_bytes = 0

    def answered(self, status: int) -> None:
        """Settle it by the status of its answer. After 5xx it may be stored all the same, until that is measured."""
        self.end(stored=not _REFUSED <= status < _FAILED)
