"""Whether the owner of segments may answer for what only their followers hold (DESIGN.md §6)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from filer.errors import BraidError
from leader.coordinator import Coordinator

_log = logging.getLogger(__name__)


class Standing:
    """A broker's standing with the others, as far as one topic needs it.

    Who was out of touch may have been counted as gone together with its followers, and its segments sealed at what the
    store had of them. So being in touch again is not enough: `look` has to have read the topic's record since then,
    and what was open in it is sealed by nobody else before a follower refuses. `on_proven` is called when that is so.
    """

    def __init__(
        self, coordinator: Coordinator, look: Callable[[], Awaitable[None]], *, on_proven: Callable[[], None]
    ) -> None:
        self._coordinator, self._look, self._on_proven = coordinator, look, on_proven
        self._proven_at: int | None = None
        self._looking: asyncio.Task[None] | None = None

    def proven(self) -> bool:
        """Whether the broker is in touch, and has looked since it came in touch; begins to look where it has not."""
        if not self._coordinator.in_touch():
            return False
        touches = self._coordinator.touches
        if self._proven_at != touches and self._looking is None:
            self._looking = asyncio.create_task(self._prove(touches), name="read the record before answering")
        return self._proven_at == touches

    async def close(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _prove(self, touches: int) -> None:
        """`touches` was read before, so a look that spans a time out of touch proves nothing."""
        try:
            await self._look()
        except BraidError as error:
            # Until the next try everything is answered when it is stored.
            _log.debug("the record could not be read: %s: %s", type(error).__name__, error)
            return
        finally:
            self._looking = None
        self._proven_at = touches
        self._on_proven()
