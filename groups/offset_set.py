"""A set of offsets, kept as ranges."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_NONE = array("q")
"""The bounds of all sets that are empty from the beginning, which is most of them. Never add to it."""
_MANY = 32
"""From so many ranges on, all are put in order at once. One by one, each would move half of the bounds."""


class Part(NamedTuple):
    """A part `[start, stop)` of a range, and whether the set has all of it. Otherwise it has none of it."""

    start: int
    stop: int
    inside: bool


class OffsetSet:
    """Offsets as disjoint ranges `[start, stop)`, in ascending order. 16 bytes a range.

    `_bounds` alternates between starts and stops. So an offset is in the set if the number of bounds up to it is odd.
    """

    __slots__ = ("_bounds", "_count")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._bounds = _NONE
        self._count = 0
        self.add_all(ranges)

    def __len__(self) -> int:
        """How many offsets it has."""
        return self._count

    def __contains__(self, offset: int) -> bool:
        return bisect_right(self._bounds, offset) % 2 == 1

    def __repr__(self) -> str:
        return f"OffsetSet({self.ranges()})"

    @property
    def first(self) -> int | None:
        """The lowest offset; None of an empty set."""
        return self._bounds[0] if self._bounds else None

    @property
    def range_count(self) -> int:
        """How many ranges it has."""
        return len(self._bounds) // 2

    def is_exactly(self, start: int, stop: int) -> bool:
        """Whether it is that one range."""
        return len(self._bounds) == 2 and self._bounds[0] == start and self._bounds[1] == stop

    def next_outside(self, offset: int) -> int:
        """The lowest offset, from that one on, that is not in it."""
        place = bisect_right(self._bounds, offset)
        return self._bounds[place] if place % 2 else offset

    def ranges(self) -> list[tuple[int, int]]:
        """All ranges."""
        bounds = self._bounds
        return list(zip(bounds[::2], bounds[1::2], strict=True))

    def add(self, start: int, stop: int) -> None:
        """Add `[start, stop)`."""
        if start < stop:
            # A range that ends where this begins, or begins where this ends, becomes one range with it.
            low, high = bisect_left(self._bounds, start), bisect_right(self._bounds, stop)
            self._replace(low, high, [*([] if low % 2 else [start]), *([] if high % 2 else [stop])])

    def add_all(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Add many."""
        added = list(ranges)
        if len(added) < _MANY:
            for start, stop in added:
                self.add(start, stop)
            return
        bounds = _in_order(added)
        if bounds and (not self._bounds or bounds[0] > self._bounds[-1]):
            # Behind all others, as most are when a log is replayed.
            if self._bounds:
                self._bounds.extend(bounds)
            else:
                self._bounds = array("q", bounds)
            self._count += sum(bounds[1::2]) - sum(bounds[::2])
        elif bounds:
            self._sweep(bounds, np.logical_or)

    def remove_all(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Take many out, as far as they are in."""
        removed = list(ranges)
        if len(removed) < _MANY:
            for start, stop in removed:
                self.remove(start, stop)
        elif self._bounds and (bounds := _in_order(removed)):
            self._sweep(bounds, np.greater)

    def _sweep(self, bounds: Sequence[int], keeps: "np.ufunc") -> None:
        """Apply `keeps` to whether an offset is in this set and whether it is in those ranges; it decides what stays.

        Works on the bounds of both, and only on the part of the set that those ranges touch.
        """
        low, high = bisect_left(self._bounds, bounds[0]), bisect_right(self._bounds, bounds[-1])
        low, high = low - low % 2, high + high % 2
        mine, others = np.array(self._bounds[low:high], dtype=np.int64), np.array(bounds, dtype=np.int64)
        places = np.concatenate([mine, others])
        places.sort(kind="stable")
        # An offset is in a set if the number of bounds up to it is odd.
        in_mine, in_others = (np.searchsorted(each, places, side="right") % 2 == 1 for each in (mine, others))
        kept = keeps(in_mine, in_others)
        # At a place that both have, the first result is the same as the second.
        changes = np.diff(kept.astype(np.int8), prepend=0) != 0
        kept_places = places[changes]
        self._bounds[low:high] = array("q", kept_places.tobytes())
        self._count += _count(kept_places) - _count(mine)

    def to_plain(self) -> list[int]:
        """Starts and stops by turns, for `from_plain`."""
        return self._bounds.tolist()

    @classmethod
    def from_plain(cls, bounds: Sequence[int]) -> "OffsetSet":
        """The set from the result of `to_plain`. Raises `TypeError` and `ValueError` for anything else."""
        if len(bounds) % 2:
            raise ValueError("a start without a stop")
        made = cls()
        if bounds:
            made._bounds = array("q", bounds)
            made._count = sum(made._bounds[1::2]) - sum(made._bounds[::2])
        return made

    def remove(self, start: int, stop: int) -> None:
        """Take `[start, stop)` out, as far as it is in."""
        if start < stop and self._bounds and start < self._bounds[-1] and stop > self._bounds[0]:
            low, high = bisect_left(self._bounds, start), bisect_right(self._bounds, stop)
            self._replace(low, high, [*([start] if low % 2 else []), *([stop] if high % 2 else [])])

    def _replace(self, low: int, high: int, bounds: list[int]) -> None:
        replaced = self._bounds[low:high]
        # A bound at an even place is a start, which counts down; one at an odd place is a stop.
        sign = 1 if low % 2 else -1
        for bound in replaced:
            self._count -= sign * bound
            sign = -sign
        sign = 1 if low % 2 else -1
        for bound in bounds:
            self._count += sign * bound
            sign = -sign
        if self._bounds:
            self._bounds[low:high] = array("q", bounds)
        else:
            self._bounds = array("q", bounds)

    def parts(self, start: int, stop: int) -> Iterator[Part]:
        """The parts of `[start, stop)` that lie in the set and outside, by turns, in order."""
        if start >= stop:
            return
        low, high = bisect_right(self._bounds, start), bisect_left(self._bounds, stop)
        inside = low % 2 == 1
        for first, behind in pairwise((start, *self._bounds[low:high], stop)):
            yield Part(first, behind, inside)
            inside = not inside

    def within(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The ranges of its offsets in `[start, stop)`."""
        return [(part.start, part.stop) for part in self.parts(start, stop) if part.inside]

    def without(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The ranges of `[start, stop)` that are not in it."""
        return [(part.start, part.stop) for part in self.parts(start, stop) if not part.inside]

    def take(self, most: int) -> list[tuple[int, int]]:
        """Remove and return the lowest offsets, at most `most`."""
        taken: list[tuple[int, int]] = []
        for start, stop in zip(self._bounds[::2], self._bounds[1::2], strict=True):
            if most <= 0:
                break
            stop = min(stop, start + most)
            taken.append((start, stop))
            most -= stop - start
        if taken:
            self.remove(taken[0][0], taken[-1][1])
        return taken


def _count(bounds: "npt.NDArray[np.int64]") -> int:
    return int(bounds[1::2].sum() - bounds[::2].sum())


def _in_order(ranges: Iterable[tuple[int, int]]) -> list[int]:
    """Starts and stops by turns; ranges that touch become one."""
    bounds: list[int] = []
    reached = -1
    for start, stop in sorted(ranges):
        if start > reached:
            if start < stop:
                bounds += (start, stop)
                reached = stop
        elif stop > reached:
            bounds[-1] = reached = stop
    return bounds


def ranges_of(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Offsets in ascending order, as ranges."""
    ranges: list[tuple[int, int]] = []
    start = stop = -1
    for offset in offsets:
        if offset != stop:
            if stop > start:
                ranges.append((start, stop))
            start = offset
        stop = offset + 1
    if stop > start:
        ranges.append((start, stop))
    return ranges
