"""What a segment's owner remembers of its producers. With it, a repeated request is answered and not stored again.

For each producer and slot range there is a window of the last `WINDOW_SEQUENCES` sequences, each with the position of
its messages, which may be in a predecessor. Successors inherit windows. A split gives each child its parent's windows.
A merge keeps the windows of both parents *with their ranges*: one window for the merged range would lose or double
messages that only one parent had.

An hour of silence forgets a producer whole: its id may be used anew. Want of room never does: it drops the windows, and
`ForgottenProducers` keeps up to which sequence the producer's requests are refused.

Everything here follows from the log alone. Even the time is that of the log. So a recovery computes the same windows.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from sys import intern
from typing import Any

import orjson

from filer.errors import CorruptFile
from filer.format.requests import Position, RequestId, StoredRequest
from filer.segment.forgotten_producers import NO_FLOOR, ForgottenProducers
from filer.segment.producer_owners import differ, one_owner
from filer.segment.sequence_window import Found, RangeWindow, SequenceWindow, combine_ranges, tiled
from filer.slots import SLOTS

EXPIRY_US = 3600 * 1_000_000
MAX_PRODUCERS = 4096
MAX_SEQUENCES = 524_288
"""The limit for all producers of a segment together: 16 MiB.

Beyond either limit, the windows of the producers that have been silent longest are dropped early. If such a producer
repeats a request after that, it is refused.
"""
LARGEST_BYTES = 64 * 1024 * 1024
_VERSION = 1


@dataclass(slots=True)
class _Producer:
    """The windows of one producer: its ranges in order, without overlaps.

    Sequences up to `floor` that are in no window are refused: what became of them has been forgotten. `owner` is the
    principal that alone may use it (`filer.segment.producer_owners`).
    """

    seen_us: int
    ranges: list[RangeWindow]
    floor: int = NO_FLOOR
    owner: str = ""

    def __len__(self) -> int:
        return sum(len(each.window) for each in self.ranges)

    @property
    def highest(self) -> int:
        """The highest sequence that may have been stored."""
        return max((self.floor, *(each.window.columns[0][-1] for each in self.ranges if len(each.window))))


class ProducerWindows:
    """The windows of a segment's producers in the slots `[start, stop)`; all slots until the segment's are known."""

    def __init__(self, start: int = 0, stop: int = SLOTS) -> None:
        self.start, self.stop = start, stop
        # Ordered by silence, the longest silent producer first.
        self._producers: dict[str, _Producer] = {}
        self._forgotten = ForgottenProducers()
        self._sequences = 0

    @property
    def empty(self) -> bool:
        """Whether nothing is known of any producer."""
        return not self._producers and not self._forgotten

    def owner_of(self, name: str) -> str:
        """The owner of a producer; empty if it has none."""
        producer = self._producers.get(name)
        return self._forgotten.owner_of(name) if producer is None else producer.owner

    def look_up(self, request: RequestId) -> list[Found]:
        """What is known of a request in each slot range; the ranges tile `[start, stop)`."""
        producer = self._producers.get(request.producer)
        if producer is None:
            is_forgotten = request.sequence <= self._forgotten.floor_of(request.producer)
            return [Found(self.start, self.stop, None, is_forgotten)]
        found = self._find(producer, request)
        if request.sequence > producer.floor:
            return found
        return [each if each.position is not None else each._replace(expired=True) for each in found]

    def _find(self, producer: _Producer, request: RequestId) -> list[Found]:
        if len(producer.ranges) == 1 and producer.ranges[0].slots == (self.start, self.stop):
            return [producer.ranges[0].window.find(self.start, self.stop, request.sequence)]
        return [
            Found(start, stop, None, False) if window is None else window.find(start, stop, request.sequence)
            for start, stop, window in tiled(producer.ranges, self.start, self.stop)
        ]

    def note(self, request: RequestId, position: Position, seen_us: int) -> None:
        """Remember that this segment stored a request's share, at the log's time `seen_us`.

        A request has one share in this segment's slots. If a predecessor stored a part of it, the position there stays:
        the producer got that position first. A producer without an owner gets the request's owner.
        """
        producer = self._producers.pop(request.producer, None)
        if producer is not None and differ(producer.owner, request.owner) and producer.seen_us < seen_us - EXPIRY_US:
            # It was stored, so the former owner's window had expired by then.
            self._sequences -= len(producer)
            producer = None
        if producer is None:
            left = self._forgotten.take(request.producer, request.owner, seen_us - EXPIRY_US)
            producer = _Producer(seen_us, [], *left)
        self._producers[request.producer] = producer
        producer.seen_us = max(producer.seen_us, seen_us)
        if request.owner != producer.owner:
            producer.owner = one_owner((producer.owner, request.owner))
        if len(producer.ranges) != 1 or producer.ranges[0].slots != (self.start, self.stop):
            producer.ranges = [
                RangeWindow(start, stop, SequenceWindow() if window is None else window)
                for start, stop, window in tiled(producer.ranges, self.start, self.stop)
            ]
        for each in producer.ranges:
            self._sequences += each.window.note(request.sequence, position)
        self._make_room()

    def expire(self, now_us: int) -> None:
        """Forget producers that have been silent for an hour at the log's time `now_us`."""
        while self._producers:
            longest_silent = next(iter(self._producers))
            if self._producers[longest_silent].seen_us >= now_us - EXPIRY_US:
                break
            self._drop(longest_silent)
        self._forgotten.expire(now_us - EXPIRY_US)

    def raise_floor(self, producer: str, sequence: int, seen_us: int) -> None:
        """Refuse this producer's sequences up to that one, unless they are in its window.

        Something may have been stored under them that is not known here. It lasts until the producer has been silent
        for an hour after the log's time `seen_us`.
        """
        known = self._producers.get(producer)
        if known is None:
            self._forgotten.add(producer, sequence, seen_us, EXPIRY_US)
        else:
            known.floor = max(known.floor, sequence)

    def refuse_gaps(self) -> None:
        """Refuse every sequence of a known producer that is not in its window and not newer than all that are.

        For windows that were read from a log of which files are missing.
        """
        for producer in self._producers.values():
            producer.floor = producer.highest

    def stored_between(self, segment: int, start: int, end: int) -> list[StoredRequest]:
        """The known requests with messages at offsets `[start, end)` in a segment, in the order of offsets."""
        found = {
            StoredRequest(RequestId(name, sequence, producer.owner), Position(segment, offset, count))
            for name, producer in self._producers.items()
            for each in producer.ranges
            for sequence, where, offset, count in zip(*each.window.columns, strict=True)
            if start <= offset < end and where == segment
        }
        return sorted(found, key=lambda stored: (stored.position, stored.request))

    # -- across transitions --------------------------------------------------------------------------------

    @classmethod
    def combined(cls, known: "Sequence[ProducerWindows]", start: int, stop: int) -> "ProducerWindows":
        """New windows for the slots `[start, stop)` from all `known` ones, which do not change.

        A child of a split gets a part of its parent's ranges; a merged segment gets each parent's own ranges. If two
        know the same sequence in the same slots, the earlier one in `known` counts. If two know a producer under
        different owners, it has none (`CONTESTED`), unless one had been silent for an hour before the other.
        """
        found: dict[str, list[_Producer]] = {}
        for each in known:
            for name, producer in each._producers.items():
                found.setdefault(name, []).append(producer)
        made = cls(start, stop)
        newest = {name: max(sources, key=lambda source: source.seen_us) for name, sources in found.items()}
        for name in sorted(newest, key=lambda name: newest[name].seen_us):
            seen_us = newest[name].seen_us
            sources = [each for each in found[name] if not _is_former(each, newest[name])]
            floor = max(each._floor_of(name) for each in known)
            owner = one_owner(each.owner for each in sources)
            if ranges := combine_ranges([each.ranges for each in sources], start, stop):
                made._producers[name] = producer = _Producer(seen_us, ranges, floor, owner)
                made._sequences += len(producer)
            elif floor != NO_FLOOR:
                made._forgotten.add(name, floor, seen_us, EXPIRY_US, owner)
        if any(each._forgotten for each in known):
            made._forgotten.include((each._forgotten for each in known), EXPIRY_US)
        made._make_room()
        return made

    def _floor_of(self, name: str) -> int:
        producer = self._producers.get(name)
        return self._forgotten.floor_of(name) if producer is None else producer.floor

    def restricted(self, start: int, stop: int) -> "ProducerWindows":
        """The windows for the slots `[start, stop)`."""
        return self.combined([self], start, stop)

    def copy(self) -> "ProducerWindows":
        """An independent copy."""
        made = ProducerWindows(self.start, self.stop)
        for name, producer in self._producers.items():
            ranges = [RangeWindow(each.start, each.stop, each.window.copy()) for each in producer.ranges]
            made._producers[name] = _Producer(producer.seen_us, ranges, producer.floor, producer.owner)
        made._forgotten, made._sequences = self._forgotten.copy(), self._sequences
        return made

    # -- bounds --------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        while len(self._producers) > MAX_PRODUCERS or self._sequences > MAX_SEQUENCES:
            name = next(iter(self._producers))
            producer = self._drop(name)
            self._forgotten.add(name, producer.highest, producer.seen_us, EXPIRY_US, producer.owner)

    def _drop(self, name: str) -> _Producer:
        producer = self._producers.pop(name)
        self._sequences -= len(producer)
        return producer

    # -- on the store --------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """JSON, deflated: producers with their ranges, numbers as differences to the number before."""
        producers = [
            [name, producer.seen_us, [each.to_numbers() for each in producer.ranges]]
            for name, producer in self._producers.items()
        ]
        document: dict[str, Any] = {"version": _VERSION, "range": [self.start, self.stop], "producers": producers}
        # Separate members, and only if needed: earlier versions do not know all of them, and read the rest.
        if floors := {name: each.floor for name, each in self._producers.items() if each.floor != NO_FLOOR}:
            document["floors"] = floors
        if owners := {name: each.owner for name, each in self._producers.items() if each.owner}:
            document["owners"] = owners
        if self._forgotten:
            document["forgotten"] = self._forgotten.to_document()
        return zlib.compress(orjson.dumps(document), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> "ProducerWindows":
        """The windows from the bytes of `to_bytes`. Raises `CorruptFile` for any other bytes."""
        try:
            document = orjson.loads(_inflated(data))
            if document["version"] != _VERSION:
                raise CorruptFile(f"producer windows of version {document['version']}, not {_VERSION}")
            start, stop = document["range"]
            windows = cls(start, stop)
            for name, seen_us, ranges in document["producers"]:
                producer = _Producer(int(seen_us), [RangeWindow.from_numbers(*each) for each in ranges])
                windows._producers[name] = producer
                windows._sequences += len(producer)
            for name, floor in document.get("floors", {}).items():
                windows._producers[name].floor = int(floor)
            for name, owner in document.get("owners", {}).items():
                windows._producers[name].owner = intern(owner)
            if "forgotten" in document:
                windows._forgotten = ForgottenProducers.from_document(document["forgotten"])
        except (zlib.error, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise CorruptFile(f"not producer windows: {error}") from error
        windows._make_room()
        return windows


def _is_former(producer: _Producer, newest: _Producer) -> bool:
    """Whether it had another owner, and had expired before the newest entry of that id."""
    return differ(producer.owner, newest.owner) and producer.seen_us < newest.seen_us - EXPIRY_US


def _inflated(data: bytes) -> Any:
    inflater = zlib.decompressobj()
    inflated = inflater.decompress(data, LARGEST_BYTES)
    if not inflater.eof:
        raise ValueError(f"they are truncated, or larger than {LARGEST_BYTES} bytes")
    return inflated
