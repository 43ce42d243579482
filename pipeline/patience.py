"""Waiting before a call is repeated, a little longer each time, and not for ever."""

import asyncio

from filer.clock import Clock, SystemClock
from pipeline.errors import JobFailed

FIRST_SECONDS = 0.2
LONGEST_SECONDS = 5.0
MOST_SECONDS = 120.0


class Patience:
    """How long one call has been repeated."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._began_seconds = self._clock.monotonic_seconds()
        self._pause_seconds = FIRST_SECONDS

    def wait(self, failure: str) -> None:
        """Sleep; raises `JobFailed` with the last failure where it has been long enough."""
        if self._clock.monotonic_seconds() - self._began_seconds > MOST_SECONDS:
            raise JobFailed(failure)
        asyncio.run(self._clock.sleep(self._pause_seconds))
        self._pause_seconds = min(self._pause_seconds * 2, LONGEST_SECONDS)
