"""The offsets of a segment that are given up, and which files no longer count because of it.

`mq topic repair --accept-loss` records in topic.json what is lost. From then on those messages are known to be missing:
readers pass them by, and do not wait for their files. That holds even if a file is put back later, since some readers
have passed by, and producers may have sent the messages again. A file that reaches into such a range does not count,
and is never deleted either.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from filer.keys import FileName


@dataclass(frozen=True, slots=True)
class GivenUpRange:
    """The offsets `[start, end)`. If `end` is None: up to the next file, whichever that is.

    That stands for a damaged last file: nothing shows how far it reached.
    """

    start: int
    end: int | None

    def overlaps(self, base: int, end: int) -> bool:
        """Whether a file of the offsets `[base, end)` reaches into the range."""
        return base < (self.start + 1 if self.end is None else self.end) and self.start < max(end, base + 1)


@dataclass(frozen=True, slots=True)
class GivenUpRanges:
    """The ranges of a segment in ascending order; none overlaps another one."""

    ranges: tuple[GivenUpRange, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def at(self, offset: int) -> GivenUpRange | None:
        """The range that holds the offset. A range without an end is known to hold only its first offset."""
        return next((each for each in self.ranges if each.overlaps(offset, offset)), None)

    def next_start(self, offset: int) -> int | None:
        """Where the first range behind the offset begins."""
        return next((each.start for each in self.ranges if each.start > offset), None)

    def end_of(self, found: GivenUpRange, begins: Iterable[int]) -> int | None:
        """Where a range ends, if files begin at `begins`; None if nothing shows it."""
        if found.end is not None:
            return found.end
        following = (*begins, *(each.start for each in self.ranges))
        return min((begin for begin in following if begin > found.start), default=None)

    def behind(self, offset: int, begins: Sequence[int] = ()) -> int:
        """Where the messages go on behind what is given up at an offset, if files begin at `begins`.

        That is the offset itself if nothing is given up there, or if nothing shows how far.
        """
        while (found := self.at(offset)) is not None and (end := self.end_of(found, begins)) is not None:
            offset = end
        return offset

    def masks(self, base: int, end: int) -> bool:
        """Whether a file of the offsets `[base, end)` no longer counts. An empty seal has only its base."""
        return any(each.overlaps(base, end) for each in self.ranges)

    def masks_name(self, name: FileName) -> bool:
        """As `masks`, as far as the name shows it: the name of an owner's file has no end."""
        return self.masks(name.base, name.base if name.end is None else name.end)


NOTHING_GIVEN_UP = GivenUpRanges()
