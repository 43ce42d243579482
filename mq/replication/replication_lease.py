"""Whether the owner of segments may acknowledge messages that only their followers hold (docs/design.md §6)."""

import asyncio
from collections.abc import Awaitable, Callable

from filer.errors import BraidError
from filer.event_log import EventLog
from leader.membership.coordinator import Coordinator

_log = EventLog(__name__)


class ReplicationLease:
    """A broker's right to acknowledge replicated messages of one topic.

    A broker that was out of touch may have been counted as gone together with its followers, and its segments may have
    been sealed at what the store had of them. So being in touch again is not enough. `read_record` must have read the
    topic's record since then. A segment that was open in that record is sealed by no other broker before a follower
    refuses this one. `on_valid` is called when the lease becomes valid.
    """

    def __init__(
        self, coordinator: Coordinator, read_record: Callable[[], Awaitable[None]], *, on_valid: Callable[[], None]
    ) -> None:
        self._coordinator, self._read_record, self._on_valid = coordinator, read_record, on_valid
        self._valid_touches: int | None = None
        self._renewing: asyncio.Task[None] | None = None

    def is_valid(self) -> bool:
        """Whether the broker is in touch and has read the record since. Starts reading it if it has not."""
        if not self._coordinator.in_touch():
            return False
        touches = self._coordinator.touch_count
        if self._valid_touches != touches and self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(touches), name="read the record before answering")
        return self._valid_touches == touches

    async def close(self) -> None:
        """Stop reading the record."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)

    async def _renew(self, touches: int) -> None:
        """`touches` was taken before the read: a read that spans a time out of touch does not make the lease valid."""
        try:
            await self._read_record()
        except BraidError as error:
            # Until the next try messages are acknowledged when they are stored.
            _log.debug("lease_not_renewed", error=error)
            return
        finally:
            self._renewing = None
        self._valid_touches = touches
        self._on_valid()
