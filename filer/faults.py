"""What can go wrong with a call to a store, as scripts and as chance with a seed. For tests and simulation."""

import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class FaultKind(Enum):
    """How a call goes wrong."""

    FAIL_BEFORE = "the connection broke before the request arrived"
    LOSE_ANSWER = "the request took effect, its answer was lost"
    CONFLICT = "409: another request for this object is under way"
    UNAVAILABLE = "503: slow down"
    DELAY = "the request takes `seconds` longer"
    HANG = "the request does nothing until it is released, then takes effect"
    HANG_ANSWER = "the request takes effect, its answer waits until it is released"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong; `seconds` is for delays."""

    kind: FaultKind
    seconds: float = 0.0


class FaultPlan(Protocol):
    """Decides which calls go wrong."""

    def draw(self, operation: str, key: str) -> Fault | None:
        """What goes wrong with this call of the `Store` method `operation`; None where nothing does."""
        ...


class ScriptedFaults:
    """Faults for the next calls of named operations, each used once, in order."""

    def __init__(self) -> None:
        self._next: dict[str, deque[tuple[str, Fault | None]]] = {}

    def add(self, operation: str, *faults: FaultKind | Fault | None, key_part: str = "") -> None:
        """The next calls of `operation` meet these, one each; None lets one through.

        A fault waits for a call whose key contains `key_part`, and those added after it wait behind it.
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
        """How many calls are still to meet what was added for them."""
        return sum(len(queue) for queue in self._next.values())


class SeededFaults:
    """Faults by chance: the same seed and the same calls give the same faults.

    `rates` gives each fault's share of the calls, together at most 1; `operations` narrows them down.
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
