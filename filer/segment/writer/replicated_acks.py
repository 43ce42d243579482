"""Acknowledges messages that all followers of a segment hold, before they are stored.

`Acknowledgements` is what the writer uses. `ReplicatedAcks` serves a segment with followers, `StoredAcks` one without.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from filer.errors import OutcomeUnknown
from filer.segment.next_file import Accepted
from filer.segment.writer.pending_request import PendingRequest, Waiter, fail

RECHECK_SECONDS = 0.02


class Replicas(Protocol):
    """The followers of an open segment: they get everything accepted, in order."""

    def attach(self, on_held: Callable[[int], None], on_refused: Callable[[], None]) -> None:
        """Register the two callbacks.

        `on_held` is called with an offset, which only grows: all followers hold everything before it. `on_refused` is
        called once a follower takes no more from this owner, because it has helped to seal the segment.
        """
        ...

    def send(self, accepted: Accepted) -> None:
        """Send the next messages; they begin where the last ones ended."""
        ...

    @property
    def in_step(self) -> bool:
        """Whether every follower took the last messages sent to it; else acknowledgements wait for the store."""
        ...

    def stored(self, end: int) -> None:
        """Report to the followers that the store has everything before `end`: they need not hold it."""
        ...

    def close(self) -> None:
        """Send no more."""
        ...


@dataclass(frozen=True, slots=True)
class Replication:
    """How an owner replicates a segment.

    `may_answer` returns whether the owner may acknowledge what only its followers hold. `on_held` gets the segment and
    the messages that all followers hold and the store does not have yet. `on_unstored` gets the change in the number of
    bytes that are acknowledged and not stored.
    """

    replicas: Replicas
    may_answer: Callable[[], bool]
    on_held: Callable[[int, Sequence[Accepted]], None]
    on_unstored: Callable[[int], None]


class Acknowledgements(Protocol):
    """What followers change about when a request is answered."""

    recheck_seconds: float
    """For how long the answer of `allows_delay` is valid."""
    may_gather: bool
    """Whether single messages may wait together, as one request that grows until its file begins."""

    def accept(self, pending: PendingRequest, waiter: Waiter, *, replicated: bool) -> None:
        """Add a newly accepted request and its first waiter. `replicated`: the waiter need not wait for the store."""
        ...

    def add_waiter(self, pending: PendingRequest, waiter: Waiter, *, replicated: bool) -> None:
        """Add the waiter of a repetition."""
        ...

    def allows_delay(self, pending: Sequence[PendingRequest]) -> bool:
        """Whether these requests are safe with the followers, so that the next file may wait longer."""
        ...

    def answer_held(self) -> None:
        """Answer the waiters that asked for `replicated`, as far as all followers hold their messages."""
        ...

    def stored(self, batch: Sequence[PendingRequest], end: int) -> None:
        """Record that the store has this batch, and so everything before `end`."""
        ...

    def stop(self, waiting: Sequence[PendingRequest], error: Exception) -> Sequence[Accepted]:
        """Fail requests that this owner will not store. Returns those that a successor may still ask it for."""
        ...

    def close(self) -> None:
        """Release the followers."""
        ...


class StoredAcks:
    """The acknowledgements of a segment without followers: every request is answered once it is stored."""

    recheck_seconds = math.inf
    may_gather = True

    def accept(self, pending: PendingRequest, waiter: Waiter, *, replicated: bool) -> None:
        """As `Acknowledgements.accept`."""
        pending.stored_waiters.append(waiter)

    def add_waiter(self, pending: PendingRequest, waiter: Waiter, *, replicated: bool) -> None:
        """As `Acknowledgements.add_waiter`."""
        pending.stored_waiters.append(waiter)

    def allows_delay(self, pending: Sequence[PendingRequest]) -> bool:
        """Never: no other broker holds the messages."""
        return False

    def answer_held(self) -> None:
        """Nothing is held."""

    def stored(self, batch: Sequence[PendingRequest], end: int) -> None:
        """Do nothing: no message was answered early."""

    def stop(self, waiting: Sequence[PendingRequest], error: Exception) -> Sequence[Accepted]:
        """As `Acknowledgements.stop`. None of the messages was acknowledged, so no successor needs them."""
        fail(waiting, error)
        return ()

    def close(self) -> None:
        """There are no followers."""


class ReplicatedAcks:
    """The acknowledgements of a segment with followers.

    `on_refused` is called once a follower takes no more from this owner.
    """

    recheck_seconds = RECHECK_SECONDS
    may_gather = False

    def __init__(self, segment: int, replication: Replication, *, on_refused: Callable[[], None]) -> None:
        self._segment, self._replication = segment, replication
        self._replicas = replication.replicas
        # Accepted requests that are neither with all followers nor on the store, in order.
        self._unheld: deque[PendingRequest] = deque()
        self._held_end = 0
        self._replicas.attach(self._held, on_refused)

    def accept(self, pending: PendingRequest, waiter: Waiter, *, replicated: bool) -> None:
        """As `Acknowledgements.accept`."""
        (pending.replicated_waiters if replicated else pending.stored_waiters).append(waiter)
        self._unheld.append(pending)
        self._replicas.send(pending)

    def add_waiter(self, pending: PendingRequest, waiter: Waiter, *, replicated: bool) -> None:
        """As `Acknowledgements.add_waiter`."""
        (pending.replicated_waiters if replicated else pending.stored_waiters).append(waiter)
        if pending.held:
            self._answer_early(pending)

    def allows_delay(self, pending: Sequence[PendingRequest]) -> bool:
        """Whether followers take the messages, this owner may acknowledge them, and no waiter needs the store."""
        return (
            self._replication.may_answer()
            and self._replicas.in_step
            and not any(request.stored_waiters for request in pending)
        )

    def answer_held(self) -> None:
        """As `Acknowledgements.answer_held`; readers get these messages too.

        This is safe: while we may answer, no other broker seals the segment before a follower refuses us, and a broker
        that seals it then first stores what that follower holds (docs/design.md §6). Stopping in the middle loses
        answers only.
        """
        if not self._unheld or self._unheld[0].end > self._held_end or not self._replication.may_answer():
            return
        held: list[PendingRequest] = []
        while self._unheld and self._unheld[0].end <= self._held_end:
            held.append(self._unheld.popleft())
        self._replication.on_held(self._segment, held)
        for pending in held:
            pending.held = True
            self._answer_early(pending)

    def stored(self, batch: Sequence[PendingRequest], end: int) -> None:
        """As `Acknowledgements.stored`."""
        self._settle(batch)
        while self._unheld and self._unheld[0].end <= end:
            self._unheld.popleft()
        self._replicas.stored(end)

    def stop(self, waiting: Sequence[PendingRequest], error: Exception) -> Sequence[Accepted]:
        """As `Acknowledgements.stop`; returns all of them.

        A stopped owner still holds a copy, as a follower does, and the broker that seals asks for that copy. So a
        follower may yet store a message that this owner fails: a message without an id must not be sent again, and its
        outcome is unknown.
        """
        unknown = OutcomeUnknown(f"{error}; a follower may store the message yet")
        fail([pending for pending in waiting if pending.request is None], unknown)
        fail(waiting, error)
        self._settle(waiting)
        self.close()
        return waiting

    def close(self) -> None:
        """As `Acknowledgements.close`; nothing is answered early from here on."""
        self._unheld.clear()
        self._replicas.close()

    def _held(self, end: int) -> None:
        """All followers hold everything before `end`."""
        self._held_end = end
        self.answer_held()

    def _answer_early(self, pending: PendingRequest) -> None:
        """Answer the waiters that asked for `replicated`: all followers hold the messages."""
        if not self._replication.may_answer() or all(waiter.done() for waiter in pending.replicated_waiters):
            return
        if not pending.answered_early:
            pending.answered_early = True
            self._replication.on_unstored(pending.held_bytes)
        pending.answer(self._segment, pending.replicated_waiters)

    def _settle(self, batch: Sequence[PendingRequest]) -> None:
        """Subtract these from the unstored bytes: they have been stored, or another broker must store them."""
        self._replication.on_unstored(-sum(pending.held_bytes for pending in batch if pending.answered_early))


def acknowledgements(
    segment: int, replication: Replication | None, *, on_refused: Callable[[], None]
) -> Acknowledgements:
    """The acknowledgements of a segment, replicated or not."""
    if replication is None:
        return StoredAcks()
    return ReplicatedAcks(segment, replication, on_refused=on_refused)
