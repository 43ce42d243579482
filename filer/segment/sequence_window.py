"""The window of one producer's last sequences in one slot range, and how such windows split and merge."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from filer.format.requests import Position

WINDOW_SEQUENCES = 1000


class Found(NamedTuple):
    """What is known of a request in the slots `[start, stop)`.

    `position` is None if it is not stored there. `expired`: it is unknown whether it was stored.
    """

    start: int
    stop: int
    position: Position | None
    expired: bool


class SequenceWindow:
    """The newest sequences of a producer in ascending order, with the segment, offset and count of each."""

    __slots__ = ("columns",)

    def __init__(self, columns: "tuple[array[int], ...] | None" = None) -> None:
        self.columns = columns or (array("q"), array("q"), array("q"), array("q"))

    def __len__(self) -> int:
        return len(self.columns[0])

    def find(self, start: int, stop: int, sequence: int) -> Found:
        """What is known of that sequence, for the slots `[start, stop)`."""
        sequences, segments, offsets, counts = self.columns
        index = bisect_left(sequences, sequence)
        if index < len(sequences) and sequences[index] == sequence:
            return Found(start, stop, Position(segments[index], offsets[index], counts[index]), False)
        return Found(start, stop, None, self.is_past(sequence))

    def is_past(self, sequence: int) -> bool:
        """Whether the window is full and begins after that sequence."""
        return len(self) >= WINDOW_SEQUENCES and sequence < self.columns[0][0]

    def note(self, sequence: int, position: Position) -> int:
        """Add a sequence, unless it is known or too old; returns by how many the window has grown, 0 or 1."""
        sequences = self.columns[0]
        index = bisect_left(sequences, sequence)
        if (index < len(sequences) and sequences[index] == sequence) or self.is_past(sequence):
            return 0
        is_full = len(sequences) >= WINDOW_SEQUENCES
        row = (sequence, position.segment, position.offset, position.count)
        for column, number in zip(self.columns, row, strict=True):
            column.insert(index, number)
            if is_full:
                del column[0]
        return 0 if is_full else 1

    def copy(self) -> "SequenceWindow":
        """An independent copy."""
        return SequenceWindow(tuple(column[:] for column in self.columns))


@dataclass(slots=True)
class RangeWindow:
    """A producer's window in the slots `[start, stop)`."""

    start: int
    stop: int
    window: SequenceWindow

    @property
    def slots(self) -> tuple[int, int]:
        """The slot range."""
        return self.start, self.stop

    def to_numbers(self) -> list[int | list[int]]:
        """The range, then each column as differences to the number before."""
        columns = [[after - before for before, after in pairwise((0, *column))] for column in self.window.columns]
        return [self.start, self.stop, *columns]

    @classmethod
    def from_numbers(cls, start: int, stop: int, *differences: list[int]) -> "RangeWindow":
        """The window from the numbers of `to_numbers`. Raises `ValueError` for any other numbers."""
        columns = tuple(array("q", accumulate(each)) for each in differences)
        lengths = {len(column) for column in columns}
        if len(columns) != 4 or len(lengths) != 1 or not 0 < lengths.pop() <= WINDOW_SEQUENCES or not start < stop:
            raise ValueError(f"the window of [{start}, {stop}) is not complete")
        return cls(start, stop, SequenceWindow(columns))


def tiled(ranges: Sequence[RangeWindow], start: int, stop: int) -> Iterator[tuple[int, int, SequenceWindow | None]]:
    """The ranges, and the gaps between them, which have no window: together they tile the slots `[start, stop)`."""
    reached = start
    for each in ranges:
        if each.start > reached:
            yield reached, each.start, None
        yield each.start, each.stop, each.window
        reached = each.stop
    if reached < stop:
        yield reached, stop, None


def combine_ranges(sources: Sequence[Sequence[RangeWindow]], start: int, stop: int) -> list[RangeWindow]:
    """One producer's ranges within `[start, stop)` from all sources; neighbours with equal windows become one.

    If two sources know the same sequence in the same slots, the position in the earlier source counts.
    """
    inside = [each for ranges in sources for each in ranges if each.start < stop and each.stop > start]
    bounds = sorted({min(max(bound, start), stop) for each in inside for bound in (each.start, each.stop)})
    made: list[RangeWindow] = []
    for low, high in pairwise(bounds):
        covering = [each.window for each in inside if each.start <= low and high <= each.stop]
        if not covering:
            continue
        window = _united(covering)
        if made and made[-1].stop == low and made[-1].window.columns == window.columns:
            made[-1].stop = high
        else:
            made.append(RangeWindow(low, high, window))
    return made


def _united(windows: Sequence[SequenceWindow]) -> SequenceWindow:
    """The newest sequences in any of the windows.

    If several have the same sequence, the first window's position counts.
    """
    if len(windows) == 1:
        return windows[0].copy()
    rows: dict[int, tuple[int, ...]] = {}
    for window in reversed(windows):
        rows.update((row[0], row) for row in zip(*window.columns, strict=True))
    newest = [rows[sequence] for sequence in sorted(rows)[-WINDOW_SEQUENCES:]]
    return SequenceWindow(tuple(array("q", column) for column in zip(*newest, strict=True)))
