"""By which delivery messages were acked or given back, as long as consumers may repeat a request without an answer."""

from collections.abc import Iterable, Mapping
from typing import Any

from groups.offset_set import OffsetSet

_Generation = dict[tuple[int, int], OffsetSet]
"""Offsets by segment and delivery."""


KEPT_MS = 60_000
"""A failover takes some seconds, and leases may be shorter."""


class RecentDecisions:
    """Acks, or releases, of the last lease time and of `KEPT_MS` at least, and of twice that at most.

    Their time counts from when they are stored: the store may have refused their record for minutes, while consumers
    repeated them. The next record shows when that was, since it was made afterwards. So those of the last record, in
    `_last`, do not age. The others are in two generations; the older one is dropped as a whole. An empty one is None:
    most groups are idle.
    """

    __slots__ = ("_began_ms", "_last", "_newest", "_older")

    def __init__(self) -> None:
        self._began_ms = 0
        self._last: _Generation | None = None
        self._newest: _Generation | None = None
        self._older: _Generation | None = None

    def rotate(self, now_ms: int, lease_ms: int) -> None:
        """Forget older decisions, as a record made at that time follows. Its own decisions are added afterwards."""
        lease_ms = max(lease_ms, KEPT_MS)
        if now_ms - self._began_ms >= 2 * lease_ms:
            self._newest = self._older = None
            self._began_ms = now_ms
        elif now_ms - self._began_ms >= lease_ms:
            self._newest, self._older = None, self._newest
            self._began_ms = now_ms
        self._newest, self._last = _together(self._newest, self._last), None

    def add(self, segment: int, delivery: int, ranges: Iterable[tuple[int, int]]) -> None:
        """Note the messages that were decided about, by delivery."""
        if self._last is None:
            self._last = {}
        self._last.setdefault((segment, delivery), OffsetSet()).add_all(ranges)

    def within(self, segment: int, start: int, stop: int, delivery: int) -> OffsetSet:
        """The offsets of `[start, stop)` that were decided about by that delivery, as far as is known."""
        found = OffsetSet()
        for generation in (self._last, self._newest, self._older):
            known = None if generation is None else generation.get((segment, delivery))
            for first, behind in () if known is None else known.within(start, stop):
                found.add(first, behind)
        return found

    def to_plain(self) -> dict[str, Any]:
        """For a snapshot. Coordinators of earlier versions know two generations, and take the last for new ones."""
        newest = _together(_together(None, self._newest), self._last)
        return {
            "began_ms": self._began_ms,
            "generations": [_to_plain(newest), _to_plain(self._older)],
            "last": _to_plain(self._last),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "RecentDecisions":
        """From a snapshot."""
        recent = cls()
        recent._began_ms = plain["began_ms"]
        recent._newest, recent._older = map(_from_plain, plain["generations"])
        recent._last = _from_plain(plain.get("last", ()))
        return recent


def _together(one: _Generation | None, other: _Generation | None) -> _Generation | None:
    """The offsets in either. Returns the first, or a copy of the second."""
    if other is None:
        return one
    found = {} if one is None else one
    for claim, offsets in other.items():
        found.setdefault(claim, OffsetSet()).add_all(offsets.ranges())
    return found


def _to_plain(generation: _Generation | None) -> list[tuple[int, int, list[int]]]:
    return [(segment, delivery, offsets.to_plain()) for (segment, delivery), offsets in (generation or {}).items()]


def _from_plain(plain: Iterable[tuple[int, int, list[int]]]) -> _Generation | None:
    return {(segment, delivery): OffsetSet.from_plain(bounds) for segment, delivery, bounds in plain} or None
