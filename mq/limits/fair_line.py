"""Whose turn it is, where each should get about the same time. It knows no event loop: costs come in afterwards."""

import heapq
import itertools
from collections.abc import Hashable
from typing import Generic, TypeVar

W = TypeVar("W")
CREDIT_SECONDS = 0.001
"""Who has not used so much of his share yet goes before those who keep coming back."""
DEBT_SECONDS = 0.001
"""Nobody waits for longer than until each of the others has had about so much, as if the first to come went first: one
connection may carry the requests of many."""
_FEW = 1024


class FairLine(Generic[W]):
    """Those who wait for a turn, by who asks. The one who has had least goes first (start-time fair queueing).

    Time runs here by what turns cost: `_now` is the place at which the newest turn began. Each asker goes on where his
    last turn ended, or at `_now`, if that is later: nobody saves up turns that he did not use, but for the credit.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._ends: dict[Hashable, float] = {}
        self._most_ends = _FEW
        self._waiting: list[tuple[float, int, Hashable, W]] = []
        self._number = itertools.count()

    @property
    def remembered(self) -> int:
        """How many askers are not forgotten yet."""
        return len(self._ends)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, asker: Hashable, waiter: W) -> None:
        """The asker waits for a turn."""
        heapq.heappush(self._waiting, (self._begin(asker), next(self._number), asker, waiter))

    def pop(self) -> tuple[Hashable, W]:
        """Whose turn it is. There has to be someone."""
        while True:
            begin, number, asker, waiter = heapq.heappop(self._waiting)
            end = self._ends.get(asker, begin)
            if end <= begin:
                self._now = max(self._now, begin)
                return asker, waiter
            # It has had a turn for something else since it began to wait for this.
            heapq.heappush(self._waiting, (end, number, asker, waiter))

    def charge(self, asker: Hashable, cost_seconds: float) -> None:
        """A turn of the asker took so long."""
        self._ends[asker] = min(self._begin(asker) + cost_seconds, self._now + DEBT_SECONDS)
        if len(self._ends) > self._most_ends:
            earliest = self._now - CREDIT_SECONDS
            self._ends = {asker: end for asker, end in self._ends.items() if end > earliest}
            self._most_ends = max(_FEW, 2 * len(self._ends))

    def _begin(self, asker: Hashable) -> float:
        earliest = self._now - CREDIT_SECONDS
        return max(self._ends.get(asker, earliest), earliest)
