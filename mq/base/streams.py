"""How many subscriptions a broker serves, in all and to one address."""

import contextlib
from collections import Counter
from collections.abc import Iterator

from mq.base.errors import TooManyStreams
from mq.base.metrics import Metrics


class Streams:
    """Counts subscriptions, and refuses more than its limits."""

    def __init__(self, most: int, most_per_address: int, metrics: Metrics) -> None:
        self._most, self._most_per_address = most, most_per_address
        self._by_address: Counter[str] = Counter()
        self._gauge = metrics.streams

    @property
    def count(self) -> int:
        """How many are served now."""
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
