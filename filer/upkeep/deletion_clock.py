"""The time by which files are deleted: the store's, while this machine's clocks do not contradict it.

Deleting late costs room, deleting early may cost messages. So nothing is deleted while the two differ by more than a
tenth of the grace period, nor for a grace period after the store's time has jumped relative to this machine's. If the
store is a directory of this machine, its time is that of the wall clock. Then both jump together when an operator sets
that clock forward. Files marked before look older by that much, so this process subtracts the leap.
"""

from dataclasses import dataclass

from filer.clock import Clock
from filer.errors import BraidError
from filer.event_log import EventLog
from filer.stores.store import Store

DIFFERENCE_SHARE = 0.1
"""The share of the grace period by which clocks may differ."""

_log = EventLog(__name__)


@dataclass(frozen=True, slots=True)
class Look:
    """One question to the store for its time.

    The first and the second of each pair are from before and after the question. The store's clock shows from `told_us`
    to `told_us + resolution_us`.
    """

    wall_us: tuple[int, int]
    monotonic_us: tuple[int, int]
    told_us: int
    resolution_us: int


def ahead_us(look: Look) -> int:
    """The least by which the store's clock is ahead of the one here; negative if behind, 0 if they may agree."""
    return _nearest_to_zero(look.told_us - look.wall_us[1], look.told_us + look.resolution_us - look.wall_us[0])


def jumped_us(before: Look, after: Look) -> int:
    """The least by which the store's clock has gone more than the monotonic one here; negative for less."""
    first = (before.told_us - before.monotonic_us[1], before.told_us + before.resolution_us - before.monotonic_us[0])
    second = (after.told_us - after.monotonic_us[1], after.told_us + after.resolution_us - after.monotonic_us[0])
    return _nearest_to_zero(second[0] - first[1], second[1] - first[0])


def _nearest_to_zero(low: int, high: int) -> int:
    return low if low > 0 else min(high, 0)


class DeletionClock:
    """Asks the store for its time, and decides by it whether files may be deleted.

    `now_us` is the store's time at the last look, less its leaps; None while nothing may be deleted. By `ahead_seconds`
    the clock here was ahead of the store's; it is negative if it was behind.
    """

    def __init__(self, store: Store, clock: Clock, *, grace_seconds: float) -> None:
        self._store, self._clock = store, clock
        self._grace_us = int(grace_seconds * 1e6)
        self._most_us = int(grace_seconds * DIFFERENCE_SHARE * 1e6)
        self._look: Look | None = None
        self._held_until_us: int | None = None
        self._leapt_us = 0
        self._is_off = False
        # These two are as of the last look.
        self.now_us: int | None = None
        self.ahead_seconds = 0.0

    @property
    def is_paused(self) -> bool:
        """Whether nothing may be deleted, as far as the last look showed."""
        return self._look is not None and self.now_us is None

    @property
    def problem(self) -> str | None:
        """What is wrong with the clock here; None if nothing is."""
        if not self._is_off:
            return None
        direction = "ahead of" if self.ahead_seconds > 0 else "behind"
        return (
            f"the clock of this machine is {abs(self.ahead_seconds):.1f} s {direction} the store's, more than "
            f"{self._most_us / 1e6:g} s (a tenth of the grace period): this broker deletes nothing until that is mended"
        )

    def about_us(self) -> int:
        """About the store's time, without asking it. Ask before anything is deleted."""
        if self._look is None:
            return self._clock.now_us()
        return self._look.told_us + self._monotonic_us() - self._look.monotonic_us[0] - self._leapt_us

    async def look(self) -> None:
        """Ask the store for its time. If it does not answer, nothing may be deleted until it does."""
        wall_us, monotonic_us = self._clock.now_us(), self._monotonic_us()
        try:
            told_us = await self._store.tell_time()
        except BraidError:
            self.now_us = None
            return
        look = Look(
            (wall_us, self._clock.now_us()),
            (monotonic_us, self._monotonic_us()),
            told_us,
            self._store.time.resolution_us,
        )
        jump_us = 0 if self._look is None else jumped_us(self._look, look)
        if abs(jump_us) > self._most_us:
            self._held_until_us = look.monotonic_us[1] + self._grace_us
            if abs(ahead_us(look)) <= self._most_us:
                self._leapt_us = max(self._leapt_us + jump_us, 0)
        self._look = look
        self._judge(look)

    def _judge(self, look: Look) -> None:
        ahead_us_ = ahead_us(look)
        self.ahead_seconds = -ahead_us_ / 1e6
        was_off, self._is_off = self._is_off, abs(ahead_us_) > self._most_us
        if self._is_off and not was_off:
            _log.warning("clock_off", ahead_seconds=self.ahead_seconds, error=self.problem)
        elif was_off and not self._is_off:
            _log.info("clock_recovered")
        holds = self._held_until_us is not None and look.monotonic_us[1] < self._held_until_us
        self.now_us = None if self._is_off or holds else look.told_us - self._leapt_us

    def _monotonic_us(self) -> int:
        return int(self._clock.monotonic_seconds() * 1e6)
