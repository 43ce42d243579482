"""The time that a store reports, beside this machine's own clocks.

A machine's clocks may be stepped, and all of them stand still while a hypervisor has paused it. The store's clock goes
on. So proofs, and files that may be deleted, age by the store's time too (docs/design.md §4).
"""

from dataclasses import dataclass

from filer.clock import Clock


class StoreTime:
    """The latest time that a store has reported, with any answer.

    `latest_us` never falls, and is 0 before the first answer. The store's clock may be up to `resolution_us` ahead of
    what it reports.
    """

    def __init__(self, *, resolution_us: int = 1) -> None:
        self.resolution_us = resolution_us
        self.latest_us = 0

    def record(self, told_us: int) -> None:
        """Record the time in an answer."""
        if told_us > self.latest_us:
            self.latest_us = told_us


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment by this machine's monotonic clock, and by the latest time that the store had reported until then."""

    monotonic_seconds: float
    store_us: int

    def later_of(self, other: "Moment") -> "Moment":
        """The later one of two moments of one process."""
        return Moment(max(self.monotonic_seconds, other.monotonic_seconds), max(self.store_us, other.store_us))


LONG_AGO = Moment(float("-inf"), 0)


def moment(time: StoreTime, clock: Clock) -> Moment:
    """This moment. Any request that is sent from now on reaches the store later."""
    return Moment(clock.monotonic_seconds(), time.latest_us)


def age_seconds(time: StoreTime, clock: Clock, then: Moment) -> float:
    """How long ago a moment was, by the clock that has gone further.

    Right after an answer of the store, this is at least the store's time between the moment and that answer.
    """
    now = moment(time, clock)
    return max(now.monotonic_seconds - then.monotonic_seconds, (now.store_us - then.store_us) / 1e6)
