"""The messages that are handed out and not over, in the coordinator's memory."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from groups.offset_set import OffsetSet
from groups.records import Leased


class Claim(NamedTuple):
    """Names a claim: a range that begins at `first` was handed out as that delivery."""

    segment: int
    first: int
    delivery: int


class RunOut(NamedTuple):
    """A part of a claim whose lease has run out."""

    claim: Claim
    ranges: list[tuple[int, int]]


@dataclass(slots=True)
class _Lease:
    """The rest of a claim of a `consumer`, and the time until which it is valid (ms of a monotonic clock)."""

    consumer: str
    until_ms: dict[int, OffsetSet] = field(default_factory=dict)


class Leases:
    """All leases of a group. Times are ms of a monotonic clock.

    `held` counts each consumer's messages, by the consumer's name for itself; "" for those without one.
    """

    def __init__(self) -> None:
        self._leases: dict[Claim, _Lease] = {}
        self._ends: list[tuple[int, Claim]] = []
        self.count = 0
        self.held: dict[str, int] = {}

    def add(self, claim: Claim, ranges: Iterable[tuple[int, int]], until_ms: int, consumer: str = "") -> None:
        """Lease these messages of a claim until then. The rest of a known claim stays with its consumer."""
        lease = self._leases.get(claim)
        if lease is None:
            lease = self._leases[claim] = _Lease(consumer)
        if until_ms not in lease.until_ms:
            heapq.heappush(self._ends, (until_ms, claim))
        offsets = lease.until_ms.setdefault(until_ms, OffsetSet())
        before = len(offsets)
        offsets.add_all(ranges)
        self._count(lease, len(offsets) - before)

    def consumer_of(self, claim: Claim) -> str:
        """The consumer that has the rest of a claim; "" if that is not known."""
        lease = self._leases.get(claim)
        return "" if lease is None else lease.consumer

    def take(self, claim: Claim, start: int, stop: int) -> list[tuple[int, int]]:
        """End the lease of `[start, stop)`; returns the ranges of it that this claim had leased."""
        lease = self._leases.get(claim)
        if lease is None:
            return []
        if len(lease.until_ms) == 1 and next(iter(lease.until_ms.values())).is_exactly(start, stop):
            del self._leases[claim]
            self._count(lease, start - stop)
            return [(start, stop)]
        taken: list[tuple[int, int]] = []
        for until_ms, offsets in list(lease.until_ms.items()):
            found = offsets.within(start, stop)
            for first, behind in found:
                offsets.remove(first, behind)
                self._count(lease, first - behind)
            taken += found
            if not offsets:
                del lease.until_ms[until_ms]
        if not lease.until_ms:
            del self._leases[claim]
        return sorted(taken)

    def take_whole(self, claim: Claim, ranges: Sequence[tuple[int, int]]) -> bool:
        """End the lease of a claim if these ranges are all that is left of it; else nothing has changed."""
        lease = self._leases.get(claim)
        if lease is None or len(lease.until_ms) > 1:
            return False
        (offsets,) = lease.until_ms.values()
        if offsets.ranges() != list(ranges):
            return False
        del self._leases[claim]
        self._count(lease, -len(offsets))
        return True

    def running(self, now_ms: int) -> dict[str, int]:
        """The messages with a lease that still runs, by consumer, as `held`: without those that wait for `run_out`."""
        running = dict(self.held)
        next_end_ms = self.next_end_ms()
        if next_end_ms is None or next_end_ms > now_ms:
            return running
        for lease in self._leases.values():
            over = sum(len(offsets) for until_ms, offsets in lease.until_ms.items() if until_ms <= now_ms)
            running[lease.consumer] = running.get(lease.consumer, 0) - over
        return {consumer: count for consumer, count in running.items() if count > 0}

    def next_end_ms(self) -> int | None:
        """When the next lease may run out."""
        while self._ends and not self._is_current(*self._ends[0]):
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def run_out(self, now_ms: int) -> Iterator[RunOut]:
        """End all leases that have run out by now."""
        while self._ends and self._ends[0][0] <= now_ms:
            until_ms, claim = heapq.heappop(self._ends)
            lease = self._leases.get(claim)
            if lease is None or until_ms not in lease.until_ms:
                continue
            offsets = lease.until_ms.pop(until_ms)
            self._count(lease, -len(offsets))
            if not lease.until_ms:
                del self._leases[claim]
            yield RunOut(claim, offsets.ranges())

    def written_down(self, now_ms: int) -> list[Leased]:
        """All of them, for the next coordinator."""
        return [
            Leased(*claim, until_ms - now_ms, offsets.ranges())
            for claim, lease in self._leases.items()
            for until_ms, offsets in lease.until_ms.items()
        ]

    def ranges(self, segment: int) -> list[tuple[int, int]]:
        """The leased messages of a segment."""
        return sorted(
            each
            for claim, lease in self._leases.items()
            if claim.segment == segment
            for offsets in lease.until_ms.values()
            for each in offsets.ranges()
        )

    def _count(self, lease: _Lease, more: int) -> None:
        self.count += more
        held = self.held.get(lease.consumer, 0) + more
        if held:
            self.held[lease.consumer] = held
        else:
            self.held.pop(lease.consumer, None)

    def _is_current(self, until_ms: int, claim: Claim) -> bool:
        lease = self._leases.get(claim)
        return lease is not None and until_ms in lease.until_ms
