"""Whether a broker accepts requests, and what it cannot do at the moment: the answer of `/readyz`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from filer.stores.decorators.store_health import Stall

Status = Literal["ok", "degraded", "starting", "draining"]
# Failures of only this process or this machine: other brokers on the same store do not suffer from them.
OWN_CAUSES = frozenset({"EMFILE", "ENFILE", "ENOMEM"})
MOST_PROBLEMS = 10


@dataclass(frozen=True, slots=True)
class Readiness:
    """`ready`: send requests here. A `degraded` broker may be ready: its `stalls` are then those of all brokers.

    `zookeeper` says that it has lost ZooKeeper, and `clock` what is wrong with its clock; that affects deletion only.
    """

    ready: bool
    status: Status
    stalls: Sequence[Stall] = ()
    zookeeper: str | None = None
    clock: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the answer of `/readyz`."""
        return {
            "ready": self.ready,
            "status": self.status,
            "problems": [
                *(_problem(stall) for stall in self.stalls[:MOST_PROBLEMS]),
                *([] if self.zookeeper is None else [zookeeper_problem(self.zookeeper)]),
                *([] if self.clock is None else [{"type": "clock-off", "detail": self.clock}]),
            ],
        }


def readiness(
    *,
    started: bool,
    draining: bool,
    stalls: Sequence[Stall],
    own_store: bool,
    zookeeper: str | None = None,
    clock: str | None = None,
) -> Readiness:
    """Return what a load balancer should know.

    If all brokers share the store that stalls, taking them all out would only make it worse: readers of recent
    messages, and publishers of `acks=replicated`, are still served. So such a broker stays ready. A broker that alone
    is in trouble is not ready: its store is its own (`own_store`), or the cause lies in its own process.

    Nor does a lost ZooKeeper take a broker out. Mostly all of them lose it at once, and each goes on to store and to
    acknowledge: the store fences it. A broker that others have replaced forwards the requests that it gets.
    """
    if draining or not started:
        return Readiness(False, "draining" if draining else "starting")
    if not stalls:
        status: Status = "ok" if zookeeper is None and clock is None else "degraded"
        return Readiness(True, status, zookeeper=zookeeper, clock=clock)
    own = own_store or any(stall.cause in OWN_CAUSES for stall in stalls)
    return Readiness(not own, "degraded", stalls, zookeeper, clock)


def zookeeper_problem(detail: str) -> dict[str, Any]:
    """Return how `/readyz` and `/v1/cluster` show that ZooKeeper is lost."""
    return {"type": "zookeeper-lost", "detail": detail}


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
