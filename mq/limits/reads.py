"""Reads and subscriptions under way at a broker. While it drains, no read keeps it from ending."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator

from mq.base.errors import Draining, TooManyStreams
from mq.metrics.metrics import Metrics

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
        """Begin to drain: reads under way have their grace time left."""
        if not self._ending:
            self._ending = True
            now_seconds = asyncio.get_running_loop().time()
            for cut, grace_seconds in self._grace_seconds.items():
                cut.reschedule(now_seconds + grace_seconds)


class Streams:
    """Counts subscriptions, and refuses more than its limits."""

    def __init__(self, most: int, most_per_address: int, metrics: Metrics) -> None:
        self._most, self._most_per_address = most, most_per_address
        self._by_address: Counter[str] = Counter()
        self._gauge = metrics.requests.streams

    @property
    def count(self) -> int:
        """How many are open now."""
        return self._by_address.total()

    @contextlib.contextmanager
    def counted(self, address: str) -> Iterator[None]:
        """A context for one subscription."""
        self._by_address[address] += 1
        self._gauge.inc()
        try:
            yield
        finally:
            self._gauge.dec()
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def check(self, address: str) -> None:
        """Raise `TooManyStreams` if one more is too many."""
        if self.count >= self._most:
            raise TooManyStreams(f"this broker serves {self._most} subscriptions at most (--max-streams)")
        if self._by_address[address] >= self._most_per_address:
            raise TooManyStreams(
                f"this broker serves {self._most_per_address} subscriptions of one address at most "
                "(--streams-per-address): end one first"
            )
