"""Messages to be acked, released or extended, and how many of them in one turn."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from groups.queue.leases import Claim

AT_ONCE = 32
"""Ranges that are decided in a turn, unless a claim has more: some 0.7 ms."""


class ToDecide(NamedTuple):
    """Messages `[start, stop)` of a claim; of a scattered one, those in the `ranges`, from start to stop.

    `claim` is None if it is of an incarnation of the group before this one.
    """

    claim: Claim | None
    start: int
    stop: int
    ranges: tuple[tuple[int, int], ...] | None = None

    @property
    def all_ranges(self) -> Sequence[tuple[int, int]]:
        """All ranges, whether it is scattered or not."""
        return ((self.start, self.stop),) if self.ranges is None else self.ranges


Numbered = tuple[int, ToDecide]
"""A part, or a piece of one, with the number of the part."""


def slices(parts: Sequence[Numbered]) -> Iterator[Sequence[Numbered]]:
    """Yield the parts in slices of about `AT_ONCE` ranges."""
    begin = count = 0
    for index, (_, part) in enumerate(parts):
        count += len(part.all_ranges)
        if count >= AT_ONCE:
            yield parts[begin : index + 1]
            begin, count = index + 1, 0
    if begin < len(parts):
        yield parts[begin:]
