"""Faults of calls to a store, scripted or drawn at random from a seed. For tests and simulation."""

import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class FaultKind(Enum):
    """How a call fails."""

    FAIL_BEFORE = "the connection broke before the request arrived"
    LOSE_ANSWER = "the request took effect, its answer was lost"
    CONFLICT = "409: another request for this object is under way"
    UNAVAILABLE = "503: slow down"
    DELAY = "the request takes `seconds` longer"
    HANG = "the request does nothing until it is released, then takes effect"
    HANG_ANSWER = "the request takes effect, its answer waits until it is released"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; `seconds` counts for a delay only."""

    kind: FaultKind
    seconds: float = 0.0


class FaultPlan(Protocol):
    """Decides which calls fail."""

    def draw(self, operation: str, key: str) -> Fault | None:
        """The fault of this call of the `Store` method `operation`; None if it succeeds."""
        ...


class ScriptedFaults:
    """Faults for the next calls of named operations. Each is used once, in order."""

    def __init__(self) -> None:
        self._next: dict[str, deque[tuple[str, Fault | None]]] = {}

    def add(self, operation: str, *faults: FaultKind | Fault | None, key_part: str = "") -> None:
        """Give each of the next calls of `operation` one of these faults; None lets a call succeed.

        A fault waits for a call whose key contains `key_part`. Faults added later wait behind it.
        """
        queue = self._next.setdefault(operation, deque())
        queue.extend((key_part, Fault(fault) if isinstance(fault, FaultKind) else fault) for fault in faults)

    def draw(self, operation: str, key: str) -> Fault | None:
        """As `FaultPlan.draw`."""
        queue = self._next.get(operation)
        if not queue or queue[0][0] not in key:
            return None
        return queue.popleft()[1]

    @property
    def left(self) -> int:
        """How many faults have been added and not drawn yet."""
        return sum(len(queue) for queue in self._next.values())


class SeededFaults:
    """Random faults: the same seed and the same calls give the same faults.

    `rates` gives each fault's share of the calls, at most 1 in total. Only calls of `operations` fail, if given.
    """

    def __init__(self, seed: int, rates: Mapping[Fault, float], *, operations: frozenset[str] | None = None) -> None:
        self._seed = seed
        self._rates = dict(rates)
        self._operations = operations
        self._draws = 0

    def draw(self, operation: str, key: str) -> Fault | None:
        """As `FaultPlan.draw`."""
        if self._operations is not None and operation not in self._operations:
            return None
        self._draws += 1
        digest = hashlib.blake2b(f"{self._seed}:{self._draws}".encode(), digest_size=8).digest()
        chance = int.from_bytes(digest, "big") / 2**64
        for fault, rate in self._rates.items():
            chance -= rate
            if chance < 0:
                return fault
        return None
