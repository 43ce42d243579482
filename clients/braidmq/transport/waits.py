"""Which calls wait for a broker, since when, and why: a program can report it to its user meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from braidmq.errors import BraidMQError
from filer.clock import Clock


@dataclass(frozen=True, slots=True)
class Waiting:
    """The call that has waited longest: for the broker at `address`, for so many seconds.

    `failure` is why its last try failed; None while its first try has no answer yet.
    """

    address: str
    seconds: float
    failure: BraidMQError | None


class Wait:
    """One call that has no result yet: it waits since `since_seconds`.

    While a broker may hold the answer back, until `held_back_until_seconds`, the call does not count as waiting.
    """

    def __init__(self, clock: Clock, *, held_back_seconds: float) -> None:
        self._clock = clock
        self.since_seconds = self.held_back_until_seconds = clock.monotonic_seconds() + held_back_seconds
        self.address = ""
        self.failure: BraidMQError | None = None

    def tries(self, address: str) -> None:
        """Note where the next try goes."""
        self.address = address

    def sent(self, *, held_back_seconds: float) -> None:
        """Note that a broker has taken the request of this try: it may hold its answer back, whatever failed before."""
        self.held_back_until_seconds = self._clock.monotonic_seconds() + held_back_seconds

    def asks_again(self, *, held_back_seconds: float) -> None:
        """Note that a broker has answered, and is asked the same again: it may hold back this answer too."""
        self.failure = None
        self.since_seconds = self.held_back_until_seconds = self._clock.monotonic_seconds() + held_back_seconds

    def failed(self, failure: BraidMQError) -> None:
        """Note why a try failed. From here on the call waits, also if its answer might have come later."""
        self.failure = failure
        now_seconds = self._clock.monotonic_seconds()
        self.since_seconds, self.held_back_until_seconds = min(self.since_seconds, now_seconds), now_seconds


class Waits:
    """The calls of one client that have no result yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits: set[Wait] = set()

    @contextmanager
    def of_call(self, *, held_back_seconds: float = 0.0, is_awaited: bool = True) -> Iterator[Wait]:
        """Count the block as a call if it `is_awaited`. A broker may hold its answer back without being waited for."""
        wait = Wait(self._clock, held_back_seconds=held_back_seconds)
        if is_awaited:
            self._waits.add(wait)
        try:
            yield wait
        finally:
            self._waits.discard(wait)

    def longest(self) -> Waiting | None:
        """Return the wait of the call that has waited longest; None if no call waits."""
        now_seconds = self._clock.monotonic_seconds()
        waiting = (each for each in self._waits if now_seconds > each.held_back_until_seconds)
        wait = min(waiting, key=lambda each: each.since_seconds, default=None)
        return None if wait is None else Waiting(wait.address, now_seconds - wait.since_seconds, wait.failure)
