"""Whether a broker welcomes requests, and what it cannot do at the moment: the answer of `/readyz`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from filer.stores.decorators.store_health import Stall

Status = Literal["ok", "degraded", "starting", "draining"]
# What only this process or this machine lacks: other brokers on the same store do not suffer from it.
OWN_CAUSES = frozenset({"EMFILE", "ENFILE", "ENOMEM"})
MOST_PROBLEMS = 10


@dataclass(frozen=True, slots=True)
class Readiness:
    """`ready`: send requests here. A `degraded` broker may be ready: its `stalls` are then those of all brokers.

    `clock` is what is wrong with its clock; nothing but deletion depends on that.
    """

    ready: bool
    status: Status
    stalls: Sequence[Stall] = ()
    clock: str | None = None

    def document(self) -> dict[str, Any]:
        """As `/readyz` answers it."""
        return {
            "ready": self.ready,
            "status": self.status,
            "problems": [
                *(_problem(stall) for stall in self.stalls[:MOST_PROBLEMS]),
                *([] if self.clock is None else [{"type": "clock-off", "detail": self.clock}]),
            ],
        }


def readiness(
    *, started: bool, draining: bool, stalls: Sequence[Stall], own_store: bool, clock: str | None = None
) -> Readiness:
    """What to tell a load balancer.

    Where all brokers share the store that stalls, taking them all away would only make it worse: readers of recent
    messages, and publishers of `acks=replicated`, are still served. So such a broker stays ready. One that alone is in
    trouble is not: its store is its own (`own_store`), or the cause lies in its own process.
    """
    if draining or not started:
        return Readiness(False, "draining" if draining else "starting")
    if not stalls:
        return Readiness(True, "ok" if clock is None else "degraded", clock=clock)
    own = own_store or any(stall.cause in OWN_CAUSES for stall in stalls)
    return Readiness(not own, "degraded", stalls, clock)


def _problem(stall: Stall) -> dict[str, Any]:
    return {
        "type": "store-stalled",
        "operation": stall.operation,
        "key": stall.key,
        "seconds": round(stall.seconds, 1),
        "tries": stall.tries,
        "cause": stall.cause,
        "detail": stall.detail,
    }
