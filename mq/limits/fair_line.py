"""The order of turns, if each asker should get about the same time. It has no event loop: costs come in afterwards."""

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

W = TypeVar("W")
CREDIT_SECONDS = 0.001
"""An asker that has not used so much of its share yet goes before those that keep coming back."""
DEBT_SECONDS = 0.001
"""No asker waits for longer than until each of the others has had about so much, as if they came in order of arrival:
one connection may carry the requests of many clients."""
STARVED_SECONDS = 0.004
"""An asker that has waited while others had so much for each waiting one is next. Newcomers have had nothing yet, so
clients that open a connection for each request would otherwise keep all others waiting for ever."""
_FEW = 1024


@dataclass(slots=True)
class _Waiting:
    """A waiting asker: how often it waits, and the cost of all turns when it began, or had its last one."""

    count: int
    since_seconds: float


class FairLine(Generic[W]):
    """Waiting turns, by asker. The asker that has had least goes first (start-time fair queueing).

    Time here is the cost of turns: `_now` is the place at which the newest turn began. Each asker goes on where its
    last turn ended, or at `_now`, if that is later: no asker saves up turns that it did not use, but for the credit.
    """

    def __init__(self) -> None:
        self._now = self._cost_seconds = 0.0
        # The asker that has waited longest comes first.
        self._askers: OrderedDict[Hashable, _Waiting] = OrderedDict()
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
        """Let the asker wait for a turn."""
        if (waiting := self._askers.get(asker)) is not None:
            waiting.count += 1
        else:
            self._askers[asker] = _Waiting(1, self._cost_seconds)
        heapq.heappush(self._waiting, (self._begin(asker), next(self._number), asker, waiter))

    def pop(self) -> tuple[Hashable, W]:
        """Return the next turn: its asker and its waiter. There has to be one."""
        if (starved := self._starved()) is not None:
            return starved
        while True:
            begin, number, asker, waiter = heapq.heappop(self._waiting)
            end = self._ends.get(asker, begin)
            if end <= begin:
                self._now = max(self._now, begin)
                self._has_turn(asker)
                return asker, waiter
            # The asker has had a turn for other work since it began to wait for this.
            heapq.heappush(self._waiting, (end, number, asker, waiter))

    def charge(self, asker: Hashable, cost_seconds: float) -> None:
        """Note that a turn of the asker took so long."""
        self._cost_seconds += cost_seconds
        self._ends[asker] = min(self._begin(asker) + cost_seconds, self._now + DEBT_SECONDS)
        if len(self._ends) > self._most_ends:
            earliest = self._now - CREDIT_SECONDS
            self._ends = {asker: end for asker, end in self._ends.items() if end > earliest}
            self._most_ends = max(_FEW, 2 * len(self._ends))

    def _starved(self) -> tuple[Hashable, W] | None:
        """Return the turn of the asker that has waited longest, if it has waited for too long."""
        asker, waiting = next(iter(self._askers.items()))
        if self._cost_seconds - waiting.since_seconds <= STARVED_SECONDS * len(self._askers):
            return None
        entry = min(each for each in self._waiting if each[2] == asker)
        self._waiting.remove(entry)
        heapq.heapify(self._waiting)
        self._has_turn(asker)
        return asker, entry[3]

    def _has_turn(self, asker: Hashable) -> None:
        waiting = self._askers.pop(asker)
        if waiting.count > 1:
            self._askers[asker] = _Waiting(waiting.count - 1, self._cost_seconds)

    def _begin(self, asker: Hashable) -> float:
        earliest = self._now - CREDIT_SECONDS
        return max(self._ends.get(asker, earliest), earliest)
