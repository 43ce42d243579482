"""How long calls of one kind took."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

BOUNDS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""From a put to a local directory to a publish that waits for a store without an answer."""


class Durations:
    """Counts calls by how long they took. Belongs to one thread, so that a count is cheap."""

    __slots__ = ("_counts", "sum_seconds")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_SECONDS) + 1)
        self.sum_seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count a call that took so long."""
        self._counts[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self.sum_seconds += seconds

    def cumulated(self) -> Sequence[int]:
        """How many calls took at most as long as each of the bounds, and how many there were."""
        return list(accumulate(self._counts))
