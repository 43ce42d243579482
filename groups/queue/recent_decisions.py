"""Of which delivery messages were acked or given back, for as long as somebody may repeat what was not answered."""

from collections.abc import Iterable, Mapping
from typing import Any

from groups.offset_set import OffsetSet

_Generation = dict[tuple[int, int], OffsetSet]
"""Offsets by segment and delivery."""


KEPT_MS = 60_000
"""A failover takes some seconds, and leases may be shorter."""


class RecentDecisions:
    """Acks, or releases, of the last lease time and of `KEPT_MS` at least, and of twice that at most.

    There are two generations, of which the older one goes. One that is empty is None: most groups are idle.
    """

    __slots__ = ("_began_ms", "_newest", "_older")

    def __init__(self) -> None:
        self._began_ms = 0
        self._newest: _Generation | None = None
        self._older: _Generation | None = None

    def rotate(self, now_ms: int, lease_ms: int) -> None:
        """Forget what is older, by the times of the records."""
        lease_ms = max(lease_ms, KEPT_MS)
        if now_ms - self._began_ms >= 2 * lease_ms:
            self._newest = self._older = None
            self._began_ms = now_ms
        elif now_ms - self._began_ms >= lease_ms:
            self._newest, self._older = None, self._newest
            self._began_ms = now_ms

    def add(self, segment: int, delivery: int, ranges: Iterable[tuple[int, int]]) -> None:
        """Note what was decided of a delivery."""
        if self._newest is None:
            self._newest = {}
        self._newest.setdefault((segment, delivery), OffsetSet()).add_all(ranges)

    def within(self, segment: int, start: int, stop: int, delivery: int) -> OffsetSet:
        """Which of `[start, stop)` were decided of that delivery, as far as it is known."""
        found = OffsetSet()
        for generation in (self._newest, self._older):
            known = None if generation is None else generation.get((segment, delivery))
            for first, behind in () if known is None else known.within(start, stop):
                found.add(first, behind)
        return found

    def to_plain(self) -> dict[str, Any]:
        """For a snapshot."""
        return {
            "began_ms": self._began_ms,
            "generations": [
                [[segment, delivery, offsets.to_plain()] for (segment, delivery), offsets in (generation or {}).items()]
                for generation in (self._newest, self._older)
            ],
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "RecentDecisions":
        """From a snapshot."""
        recent = cls()
        recent._began_ms = plain["began_ms"]
        recent._newest, recent._older = (
            {(segment, delivery): OffsetSet.from_plain(bounds) for segment, delivery, bounds in generation} or None
            for generation in plain["generations"]
        )
        return recent
