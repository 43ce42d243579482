"""Which member is to have which segment: as even as the traffic allows, and with as few moves as that takes."""

import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Mapping

BASE_WEIGHT = 0.1
"""The weight of a segment without traffic, as a part of the mean: quiet segments are spread by number."""
WORTHWHILE = 0.2
"""A move has to take at least this part of the mean load from a member. Traffic always changes a little."""


def weights_of(segments: Collection[int], rates: Mapping[int, float]) -> dict[int, float]:
    """The weight of each segment, by the `rates` that are known. An unknown one weighs as much as their mean."""
    known = [rates[segment] for segment in segments if segment in rates]
    mean = sum(known) / len(known) if known else 0.0
    base = BASE_WEIGHT * mean or 1.0
    return {segment: rates.get(segment, mean) + base for segment in segments}


def assign(holders: Mapping[int, str | None], weights: Mapping[int, float], members: Collection[str]) -> dict[int, str]:
    """The member that each segment of `holders` is to have; none if there are no members.

    `holders` are the members that have a segment now, or had it. A member without any segment gets one as long as
    another has two. Otherwise a segment moves only if that is worthwhile.
    """
    if not members:
        return {}
    shares = {member: _Share(member) for member in sorted(members)}
    target = dict[int, str]()
    for segment, holder in holders.items():
        if holder in shares:
            target[segment] = holder
            shares[holder].add(segment, weights[segment])
    heap = [share.order for share in shares.values()]
    heapq.heapify(heap)
    for segment in sorted(holders.keys() - target.keys(), key=lambda each: (-weights[each], each)):
        _, _, member = heap[0]
        target[segment] = member
        shares[member].add(segment, weights[segment])
        heapq.heapreplace(heap, shares[member].order)
    _even_out(shares, target, sum(weights[segment] for segment in target) / len(members))
    return target


class _Share:
    """The segments that a member is to have, by weight."""

    def __init__(self, member: str) -> None:
        self.member, self.load = member, 0.0
        self.by_weight: list[tuple[float, int]] = []

    @property
    def order(self) -> tuple[float, int, str]:
        """The least loaded comes first."""
        return self.load, len(self.by_weight), self.member

    def add(self, segment: int, weight: float) -> None:
        insort(self.by_weight, (weight, segment))
        self.load += weight

    def remove(self, segment: int, weight: float) -> None:
        del self.by_weight[bisect_left(self.by_weight, (weight, segment))]
        self.load -= weight

    def nearest(self, weight: float) -> tuple[float, int]:
        """The segment whose weight is nearest to that."""
        place = bisect_left(self.by_weight, (weight, -1))
        around = self.by_weight[max(place - 1, 0) : place + 1]
        return min(around, key=lambda each: abs(each[0] - weight))


def _even_out(shares: Mapping[str, _Share], target: dict[int, str], mean_load: float) -> None:
    """Move segments from loaded members to the least loaded one. Each move makes loads more even, so it ends."""
    for _ in range(len(target)):
        ordered = sorted(shares.values(), key=lambda share: share.order)
        to = ordered[0]
        for source in reversed(ordered):
            if len(source.by_weight) < 2 or source is to:
                continue
            weight, segment = source.nearest((source.load - to.load) / 2)
            gain = source.load - max(source.load - weight, to.load + weight)
            if not to.by_weight or gain > WORTHWHILE * mean_load:
                source.remove(segment, weight)
                to.add(segment, weight)
                target[segment] = to.member
                break
        else:
            return
