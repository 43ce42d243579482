"""Who publishes: the id and the sequences by which brokers tell a repeated request from a new one."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from braidmq.errors import InvalidArgument
from filer.clock import Clock

_MAX_FREE = 1000
_PRODUCER_ID = re.compile(r"[A-Za-z0-9._:-]{1,190}")


class Identity:
    """A producer's id and its sequences, which only grow: one for each request, given when it is made."""

    def __init__(self, producer_id: str, *, first_sequence: int = 1) -> None:
        self.producer_id = producer_id
        self._first_sequence = first_sequence
        self._next = first_sequence

    def next_sequence(self) -> int:
        """A sequence that no request has had yet."""
        sequence = self._next
        self._next += 1
        return sequence

    def aside(self, number: int) -> "Identity":
        """An identity of its own for requests whose order among the others is free."""
        return Identity(f"{self.producer_id}-{number}", first_sequence=self._first_sequence)


class Identities:
    """Identities for calls that come and go, each used by one call at a time.

    Owners remember a producer's last 1,000 sequences. A call that has to repeat a request for long would fall
    behind them if calls at once shared an identity; so there are as many identities as calls at once.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free: list[Identity] = []

    @contextmanager
    def lease(self) -> Iterator[Identity]:
        """An identity for the time of the block."""
        identity = self._free.pop() if self._free else Identity(self._clock.ulid())
        try:
            yield identity
        finally:
            if len(self._free) < _MAX_FREE:
                self._free.append(identity)


def checked_producer_id(producer_id: str) -> str:
    """The id, if it may be one; raises `InvalidArgument`."""
    if not _PRODUCER_ID.fullmatch(producer_id):
        raise InvalidArgument(f"producer_id {producer_id!r:.120} must be 1 to 190 of A-Z a-z 0-9 . _ : -")
    return producer_id
