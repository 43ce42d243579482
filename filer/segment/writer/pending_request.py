"""A request that an owner has accepted and not stored yet, and the callers that wait for it."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from filer.format.requests import Position
from filer.segment.next_file import Accepted

Waiter = asyncio.Future[list[Position]]


@dataclass(slots=True)
class PendingRequest(Accepted):
    """An accepted request's share of one segment.

    `replicated_waiters` are answered once all followers hold the messages, `stored_waiters` once they are stored. If a
    part of a request with an id was stored before, `known` has the positions of that part, and `payload` has only the
    rest. Repetitions of the request are waiters too; each asks for `replicated` or `stored`.

    `held`: all followers held the messages before they were stored. `answered_early`: a waiter was answered then.
    `abandoned`: all waiters have given up waiting for the store.
    """

    known: Sequence[Position] = ()
    replicated_waiters: list[Waiter] = field(default_factory=list)
    stored_waiters: list[Waiter] = field(default_factory=list)
    held: bool = False
    answered_early: bool = False
    abandoned: bool = False

    @property
    def is_awaited(self) -> bool:
        """Whether a caller waits for its outcome."""
        return any(not waiter.done() for waiter in (*self.replicated_waiters, *self.stored_waiters))

    def answer(self, segment: int, waiters: Iterable[Waiter]) -> None:
        """Give these waiters the positions of the messages."""
        positions = [*self.known, Position(segment, self.base, self.count)]
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(positions)


def fail(requests: Iterable[PendingRequest], error: Exception) -> None:
    """Give all waiters of these requests the error, except those that have an answer."""
    for pending in requests:
        for waiter in (*pending.replicated_waiters, *pending.stored_waiters):
            if not waiter.done():
                waiter.set_exception(error)
                # Mark it as retrieved: the waiter may be gone.
                waiter.exception()
