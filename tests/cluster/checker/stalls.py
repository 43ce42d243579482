"""How long a fault made producers wait."""

from itertools import pairwise

from tests.cluster.checker.history import Fault, History


def longest_stall_seconds(history: History, fault: Fault, *, topic: str | None = None) -> float:
    """The longest time between two acknowledgements of one producer that the fault fell into; 0 where it saw none.

    An identified producer sends one request again and again until it is acknowledged, so its stall is the time
    that the segments of that request could not be written.
    """
    times: dict[str, list[float]] = {}
    for request in history.requests:
        if topic in (None, request.topic):
            for attempt in request.acknowledgements[:1]:
                times.setdefault(request.producer, []).append(attempt.ended_seconds)
    until = fault.ended_seconds if fault.ended_seconds is not None else float("inf")
    stalls = [
        later - earlier
        for ended in times.values()
        for earlier, later in pairwise(sorted(ended))
        if later >= fault.started_seconds and earlier <= until
    ]
    return max(stalls, default=0.0)
