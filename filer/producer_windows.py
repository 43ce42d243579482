"""What a segment's owner remembers of its producers: by it a repeated request is answered and not stored again.

Per producer and slot range the window of the last `WINDOW_SEQUENCES` sequences, each with the position of its messages,
which may lie in a predecessor. Successors inherit windows: a split gives each child its parent's, a merge keeps both
parents' *with their ranges*, as one window for the merged range would lose or double what only one parent had.

Everything here follows from the log alone (time too: it is that of the log), so a recovery comes to the same windows.
"""

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import orjson

from filer.errors import CorruptFile
from filer.requests import Position, RequestId, StoredRequest
from filer.slots import SLOTS

WINDOW_SEQUENCES = 1000
EXPIRY_US = 3600 * 1_000_000
MAX_PRODUCERS = 4096
MAX_SEQUENCES = 524_288
"""Of all producers of a segment together: 16 MiB. Beyond either limit the producers that have been silent longest are
forgotten, early: a request of theirs that is repeated only now is stored a second time."""
LARGEST_BYTES = 64 * 1024 * 1024
_VERSION = 1


class Found(NamedTuple):
    """What is known of a request in the slots `[start, stop)`.

    `position` is None where it is not stored there; `expired`: whether it was cannot be told any more.
    """

    start: int
    stop: int
    position: Position | None
    expired: bool


class _Window:
    """The newest sequences of one producer in one slot range, ascending, with segment, offset and count of each."""

    __slots__ = ("columns",)

    def __init__(self, columns: "tuple[array[int], ...] | None" = None) -> None:
        self.columns = columns or (array("q"), array("q"), array("q"), array("q"))

    def __len__(self) -> int:
        return len(self.columns[0])

    def found(self, start: int, stop: int, sequence: int) -> Found:
        sequences, segments, offsets, counts = self.columns
        place = bisect_left(sequences, sequence)
        if place < len(sequences) and sequences[place] == sequence:
            return Found(start, stop, Position(segments[place], offsets[place], counts[place]), False)
        return Found(start, stop, None, self.is_past(sequence))

    def is_past(self, sequence: int) -> bool:
        """Whether the window is full and begins after that sequence."""
        return len(self) >= WINDOW_SEQUENCES and sequence < self.columns[0][0]

    def note(self, sequence: int, position: Position) -> int:
        """Take a sequence in, unless it is known or too old; by how many the window has grown, 0 or 1."""
        sequences = self.columns[0]
        place = bisect_left(sequences, sequence)
        if (place < len(sequences) and sequences[place] == sequence) or self.is_past(sequence):
            return 0
        is_full = len(sequences) >= WINDOW_SEQUENCES
        row = (sequence, position.segment, position.offset, position.count)
        for column, number in zip(self.columns, row, strict=True):
            column.insert(place, number)
            if is_full:
                del column[0]
        return 0 if is_full else 1

    def copy(self) -> "_Window":
        return _Window(tuple(column[:] for column in self.columns))


@dataclass(slots=True)
class _Range:
    """A producer's window in the slots `[start, stop)`."""

    start: int
    stop: int
    window: _Window

    @property
    def slots(self) -> tuple[int, int]:
        return self.start, self.stop


@dataclass(slots=True)
class _Producer:
    """All that is remembered of one producer: ranges in order, which do not overlap."""

    seen_us: int
    ranges: list[_Range]

    def __len__(self) -> int:
        return sum(len(each.window) for each in self.ranges)


class ProducerWindows:
    """The windows of a segment's producers in the slots `[start, stop)`; the whole key space until those are known."""

    def __init__(self, start: int = 0, stop: int = SLOTS) -> None:
        self.start, self.stop = start, stop
        # The longest silent first.
        self._producers: dict[str, _Producer] = {}
        self._sequences = 0

    @property
    def empty(self) -> bool:
        """Whether nothing is remembered of any producer."""
        return not self._producers

    def look_up(self, request: RequestId) -> list[Found]:
        """What is known of a request, slot range by slot range; the ranges tile `[start, stop)`."""
        producer = self._producers.get(request.producer)
        if producer is None:
            return [Found(self.start, self.stop, None, False)]
        if len(producer.ranges) == 1 and producer.ranges[0].slots == (self.start, self.stop):
            return [producer.ranges[0].window.found(self.start, self.stop, request.sequence)]
        return [
            Found(start, stop, None, False) if window is None else window.found(start, stop, request.sequence)
            for start, stop, window in _tiled(producer.ranges, self.start, self.stop)
        ]

    def note(self, request: RequestId, position: Position, seen_us: int) -> None:
        """Remember that a request's share of this segment was stored, as the log said at `seen_us`.

        That is all there is of it in this segment's slots. Where a predecessor stored a part, that one's position
        stays: it is what the producer was told first.
        """
        producer = self._producers.pop(request.producer, None) or _Producer(seen_us, [])
        self._producers[request.producer] = producer
        producer.seen_us = max(producer.seen_us, seen_us)
        if len(producer.ranges) != 1 or producer.ranges[0].slots != (self.start, self.stop):
            producer.ranges = [
                _Range(start, stop, _Window() if window is None else window)
                for start, stop, window in _tiled(producer.ranges, self.start, self.stop)
            ]
        for each in producer.ranges:
            self._sequences += each.window.note(request.sequence, position)
        self._make_room()

    def expire(self, now_us: int) -> None:
        """Forget producers that have been silent for an hour when the log says `now_us`."""
        while self._producers:
            longest_silent = next(iter(self._producers))
            if self._producers[longest_silent].seen_us >= now_us - EXPIRY_US:
                return
            self._forget(longest_silent)

    def stored_between(self, segment: int, start: int, end: int) -> list[StoredRequest]:
        """The remembered requests whose messages stand at the offsets `[start, end)` of a segment, in their order."""
        found = {
            StoredRequest(RequestId(name, sequence), Position(segment, offset, count))
            for name, producer in self._producers.items()
            for each in producer.ranges
            for sequence, where, offset, count in zip(*each.window.columns, strict=True)
            if start <= offset < end and where == segment
        }
        return sorted(found, key=lambda stored: (stored.position, stored.request))

    # -- across transitions --------------------------------------------------------------------------------

    @classmethod
    def combined(cls, known: "Sequence[ProducerWindows]", start: int, stop: int) -> "ProducerWindows":
        """Windows for the slots `[start, stop)` from all that is known of them, which stays as it is.

        Of one child's predecessor that is a part of its ranges, of the parents of a merge each one's own. Where two
        know the same sequence in the same slots, the earlier in `known` is believed.
        """
        seen: dict[str, int] = {}
        for each in known:
            for name, producer in each._producers.items():
                seen[name] = max(producer.seen_us, seen.get(name, 0))
        made = cls(start, stop)
        for name in sorted(seen, key=lambda name: seen[name]):
            parts = [each._producers[name].ranges for each in known if name in each._producers]
            if ranges := _combined_ranges(parts, start, stop):
                made._producers[name] = producer = _Producer(seen[name], ranges)
                made._sequences += len(producer)
        made._make_room()
        return made

    def restricted(self, start: int, stop: int) -> "ProducerWindows":
        """What is known of the slots `[start, stop)`."""
        return self.combined([self], start, stop)

    def copy(self) -> "ProducerWindows":
        """The windows as they are now, which no later change touches."""
        return self.combined([self], self.start, self.stop)

    # -- bounds --------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        while len(self._producers) > MAX_PRODUCERS or self._sequences > MAX_SEQUENCES:
            self._forget(next(iter(self._producers)))

    def _forget(self, name: str) -> None:
        self._sequences -= len(self._producers.pop(name))

    # -- on the store --------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """JSON, deflated: producers with their ranges, numbers as differences to the one before."""
        producers = [
            [name, producer.seen_us, [[each.start, each.stop, *map(_differences, each.window.columns)] for each in
             producer.ranges]]
            for name, producer in self._producers.items()
        ]  # fmt: skip
        document = {"version": _VERSION, "range": [self.start, self.stop], "producers": producers}
        return zlib.compress(orjson.dumps(document), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> "ProducerWindows":
        """Raises `CorruptFile` where that is not what `to_bytes` gives."""
        try:
            document = orjson.loads(_inflated(data))
            if document["version"] != _VERSION:
                raise CorruptFile(f"producer windows of version {document['version']}, not {_VERSION}")
            start, stop = document["range"]
            windows = cls(start, stop)
            for name, seen_us, ranges in document["producers"]:
                producer = _Producer(int(seen_us), [_range_of(*each) for each in ranges])
                windows._producers[name] = producer
                windows._sequences += len(producer)
        except (zlib.error, ValueError, TypeError, KeyError, OverflowError) as error:
            raise CorruptFile(f"not producer windows: {error}") from error
        windows._make_room()
        return windows


def _tiled(ranges: Sequence[_Range], start: int, stop: int) -> Iterator[tuple[int, int, _Window | None]]:
    """The ranges, and those between them that have no window, so that all slots `[start, stop)` are in one."""
    reached = start
    for each in ranges:
        if each.start > reached:
            yield reached, each.start, None
        yield each.start, each.stop, each.window
        reached = each.stop
    if reached < stop:
        yield reached, stop, None


def _combined_ranges(parts: Sequence[Sequence[_Range]], start: int, stop: int) -> list[_Range]:
    """One producer's ranges within `[start, stop)`; neighbours that know the same become one."""
    inside = [each for ranges in parts for each in ranges if each.start < stop and each.stop > start]
    bounds = sorted({min(max(bound, start), stop) for each in inside for bound in (each.start, each.stop)})
    made: list[_Range] = []
    for low, high in pairwise(bounds):
        covering = [each.window for each in inside if each.start <= low and high <= each.stop]
        if not covering:
            continue
        window = _united(covering)
        if made and made[-1].stop == low and made[-1].window.columns == window.columns:
            made[-1].stop = high
        else:
            made.append(_Range(low, high, window))
    return made


def _united(windows: Sequence[_Window]) -> _Window:
    """The window of all sequences in any of them; of one that several have, the first one's position."""
    if len(windows) == 1:
        return windows[0].copy()
    rows: dict[int, tuple[int, ...]] = {}
    for window in reversed(windows):
        rows.update((row[0], row) for row in zip(*window.columns, strict=True))
    newest = [rows[sequence] for sequence in sorted(rows)[-WINDOW_SEQUENCES:]]
    return _Window(tuple(array("q", column) for column in zip(*newest, strict=True)))


def _differences(column: "array[int]") -> list[int]:
    return [after - before for before, after in pairwise((0, *column))]


def _range_of(start: int, stop: int, *differences: list[int]) -> _Range:
    columns = tuple(array("q", accumulate(each)) for each in differences)
    lengths = {len(column) for column in columns}
    if len(columns) != 4 or len(lengths) != 1 or not 0 < lengths.pop() <= WINDOW_SEQUENCES or not start < stop:
        raise ValueError(f"the window of [{start}, {stop}) is not whole")
    return _Range(start, stop, _Window(columns))


def _inflated(data: bytes) -> Any:
    inflater = zlib.decompressobj()
    inflated = inflater.decompress(data, LARGEST_BYTES)
    if not inflater.eof:
        raise ValueError(f"they are cut off, or larger than {LARGEST_BYTES} bytes")
    return inflated
