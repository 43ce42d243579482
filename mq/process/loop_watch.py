"""Measures how long the event loop is blocked."""

from filer.clock import Clock

LOOK_SECONDS = 0.25
LATE_SECONDS = 0.1
"""A look may be this late: that is no block, but other work in its turn."""


class LoopWatch:
    """Looks at the clock again and again: each look is late by as long as the event loop was blocked.

    Every client of that event loop waits as long. A process that is stopped, or gets no processor, counts too.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self.blocked_seconds = clock, 0.0

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            due_seconds = self._clock.monotonic_seconds() + LOOK_SECONDS
            await self._clock.sleep(LOOK_SECONDS)
            late_seconds = self._clock.monotonic_seconds() - due_seconds
            if late_seconds > LATE_SECONDS:
                self.blocked_seconds += late_seconds
