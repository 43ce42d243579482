"""Measures for how long something keeps the event loop from all else."""

from filer.clock import Clock

LOOK_SECONDS = 0.25
LATE_SECONDS = 0.1
"""So late a look may be: that is no block, but work in its turn."""


class LoopWatch:
    """Looks at the clock again and again: it comes late by as long as the event loop was kept from it.

    Whoever is answered by that event loop waits as long. A process that is stopped, or gets no processor, counts too.
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
