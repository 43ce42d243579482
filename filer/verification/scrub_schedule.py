"""When the scrub reads which segment, and how fast. Pure.

A segment is due a period after it was read, or after it was opened. So segments stay spread over the period as they
were, and a broker that starts goes on where another one stopped. Overdue segments are read one after the other, the
oldest first, at twice the rate that reads everything once in the period.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from filer.verification.scrub_record import SegmentScrub

LEAST_BYTES_PER_SECOND = 1024 * 1024
"""The rate while little is stored: so even the largest segment is read within hours."""
RATE_FACTOR = 2.0
CHECK_AGAIN_SECONDS = (3600.0, 86_400.0)
"""A segment with a fault is read again after this time, a large one later: the object may have been put back."""
CHECK_AGAIN_FACTOR = 10.0
"""It waits for so many times as long as the reading takes at the lowest rate, within those bounds."""
_MOST_AHEAD_US = 3600 * 1_000_000


@dataclass(frozen=True, slots=True)
class ScrubUnit:
    """A segment of a topic, or its records, and what the scrub knows of it.

    `size_bytes` is the size in its record as long as it was never read.
    """

    topic: str
    opened_us: int
    scrub: SegmentScrub
    size_bytes: int = 0

    def since_us(self, now_us: int) -> int:
        """Everything stored before this has been read. A time that is ahead of ours was noted by a wrong clock."""
        read_us = self.scrub.read_us if self.scrub.read_us <= now_us + _MOST_AHEAD_US else 0
        return max(read_us, self.opened_us)

    def due_us(self, now_us: int, period_seconds: float) -> int:
        """When it is to be read."""
        wait_seconds = min(self._again_seconds(), period_seconds) if self.scrub.found else period_seconds
        return self.since_us(now_us) + int(wait_seconds * 1e6)

    def _again_seconds(self) -> float:
        soonest, latest = CHECK_AGAIN_SECONDS
        return min(max(CHECK_AGAIN_FACTOR * self.read_bytes / LEAST_BYTES_PER_SECOND, soonest), latest)

    @property
    def read_bytes(self) -> int:
        """About how much there is to read."""
        return self.scrub.size_bytes or self.size_bytes


def due(units: Iterable[ScrubUnit], now_us: int, period_seconds: float) -> list[ScrubUnit]:
    """The units to read now, in this order."""
    timed = ((unit.due_us(now_us, period_seconds), unit) for unit in units)
    return [unit for due_us, unit in sorted(timed, key=lambda each: each[0]) if due_us <= now_us]


def bytes_per_second(units: Iterable[ScrubUnit], period_seconds: float, most: float) -> float:
    """How fast to read, at most `most`."""
    needed = RATE_FACTOR * sum(unit.read_bytes for unit in units) / period_seconds
    return min(max(needed, LEAST_BYTES_PER_SECOND), most)


def oldest_seconds(units: Iterable[ScrubUnit], now_us: int) -> float:
    """The longest time for which a unit has not been read; 0 if there is none."""
    return max(((now_us - unit.since_us(now_us)) / 1e6 for unit in units), default=0.0)
