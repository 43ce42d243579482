"""Reads under way at a broker. While it drains, no read keeps it from ending."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from mq.base.errors import Draining

# A page of many small files needs as many requests to the store. Most pages are done within this time. For the others,
# the client can go on at another broker, from the same position.
GRACE_SECONDS = 2.0


class Reads:
    """The reads of a broker. Belongs to one event loop."""

    def __init__(self) -> None:
        self._grace_seconds: dict[asyncio.Timeout, float] = {}
        self._ending = False

    @contextlib.asynccontextmanager
    async def cut_off(self, grace_seconds: float | None = None) -> AsyncIterator[None]:
        """A context for one read.

        It is cancelled, and raises `Draining`, `grace_seconds` after `end`, or after its beginning if that was later.
        """
        grace_seconds = GRACE_SECONDS if grace_seconds is None else grace_seconds
        cut = asyncio.timeout(grace_seconds if self._ending else None)
        try:
            async with cut:
                self._grace_seconds[cut] = grace_seconds
                try:
                    yield
                finally:
                    del self._grace_seconds[cut]
        except TimeoutError as error:
            if not cut.expired():
                raise
            raise Draining("this broker is shutting down: read through another, or wait until it is back") from error

    def end(self) -> None:
        """The broker drains: reads under way have their grace time left."""
        if not self._ending:
            self._ending = True
            now_seconds = asyncio.get_running_loop().time()
            for cut, grace_seconds in self._grace_seconds.items():
                cut.reschedule(now_seconds + grace_seconds)
