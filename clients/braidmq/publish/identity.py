"""The producer ids and sequences by which brokers recognise a repeated request."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from braidmq.errors import InvalidArgument
from filer.clock import Clock

_MAX_FREE = 1000
_PRODUCER_ID = re.compile(r"[A-Za-z0-9._:-]{1,190}")


class Identity:
    """A producer id and its sequences, which only grow. Each request gets one when it is made."""

    def __init__(self, producer_id: str, *, first_sequence: int = 1) -> None:
        self.producer_id = producer_id
        self._first_sequence = first_sequence
        self._next = first_sequence

    def next_sequence(self) -> int:
        """Return a sequence that no request has had yet."""
        sequence = self._next
        self._next += 1
        return sequence

    def numbered(self, number: int) -> "Identity":
        """Return an identity with an id of its own, for requests that need no order relative to this one's."""
        return Identity(f"{self.producer_id}-{number}", first_sequence=self._first_sequence)


class IdentityPool:
    """Identities for single calls; one call at a time uses each.

    Owners remember a producer's last 1,000 sequences. If concurrent calls shared an identity, a call that repeats a
    request for a long time could fall behind them. So there are as many identities as concurrent calls.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free: list[Identity] = []

    @contextmanager
    def borrow(self) -> Iterator[Identity]:
        """Yield an identity that only this block uses."""
        identity = self._free.pop() if self._free else Identity(self._clock.ulid())
        try:
            yield identity
        finally:
            if len(self._free) < _MAX_FREE:
                self._free.append(identity)


def checked_producer_id(producer_id: str) -> str:
    """Return the id if it is a valid one. Raises `InvalidArgument`."""
    if not _PRODUCER_ID.fullmatch(producer_id):
        raise InvalidArgument(f"producer_id {producer_id!r:.120} must be 1 to 190 of A-Z a-z 0-9 . _ : -")
    return producer_id
