"""Who is next of each key: messages of one key are handed out one after the other (`order: key`)."""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from groups.offset_set import OffsetSet

KEY_BATCH = 100
"""One claim has at most so many messages of a key.

A coordinator that takes over without leases relies on it: of each key, only the first so many may be with a consumer.
So it never grows.
"""
MOST_UNFINISHED = 1_000_000
"""A group looks no further ahead than so many messages that are not done."""
_OFFSET_BITS = 45


class Place(NamedTuple):
    """A message."""

    segment: int
    offset: int


class _Line:
    """The messages of one key that are not done, in their order; each is a number that grows along the line."""

    __slots__ = ("_head", "_places")

    def __init__(self) -> None:
        self._places = array("q")
        self._head = 0

    def __len__(self) -> int:
        return len(self._places) - self._head

    def append(self, place: int) -> None:
        self._places.append(place)

    def index(self, place: int) -> int:
        """How many are ahead of it."""
        return bisect_left(self._places, place, self._head) - self._head

    def first(self, count: int) -> "array[int]":
        """So many from the head of the line, or all."""
        return self._places[self._head : self._head + count]

    def remove(self, place: int) -> None:
        """It is done."""
        index = bisect_left(self._places, place, self._head)
        if index == self._head:
            self._head += 1
            if self._head > 64 and self._head * 2 > len(self._places):
                del self._places[: self._head]
                self._head = 0
        elif index < len(self._places) and self._places[index] == place:
            del self._places[index]


class KeyLines:
    """All messages of a group that are not done, in a line for each key. Messages without a key stand in none.

    Whoever stands behind another one waits in `parked`, by segment. Of all others that have a key, `_key_of` tells it.
    """

    def __init__(self) -> None:
        self._lines: dict[int, _Line] = {}
        self._key_of: dict[int, int] = {}
        self._ordinals: dict[int, int] = {}
        self._segments: list[int] = []
        self.parked: dict[int, OffsetSet] = {}
        self.count = 0

    @property
    def has_room(self) -> bool:
        """Whether more messages may be looked at."""
        return self.count < MOST_UNFINISHED

    def add(self, segment: int, offset: int, key: bytes | str | None) -> int | None:
        """A message joins its line; how many are ahead of it, None without a key.

        Those of a key are added in their order: a segment's from its first to its last, successors after predecessors.
        """
        if key is None:
            return None
        place, name = self._number(segment, offset), hash(key)
        line = self._lines.setdefault(name, _Line())
        line.append(place)
        self._key_of[place] = name
        self.count += 1
        return len(line) - 1

    def may_go(self, segment: int, offset: int, gone: "Counter[int]") -> bool:
        """Whether a message may be handed out with those that `gone` counts by key. Then it is counted too."""
        place = self._number(segment, offset)
        name = self._key_of.get(place)
        if name is None:
            return True
        if gone[name] >= KEY_BATCH or self._lines[name].index(place) != gone[name]:
            return False
        gone[name] += 1
        return True

    def park(self, segment: int, offset: int) -> None:
        """It waits until all who stand ahead of it are done."""
        self._key_of.pop(self._number(segment, offset), None)
        self.parked.setdefault(segment, OffsetSet()).add(offset, offset + 1)

    def done(self, segment: int, start: int, stop: int) -> list[Place]:
        """These messages are done; who may be next by that, and waits no more."""
        changed: set[int] = set()
        for offset in range(start, stop):
            place = self._number(segment, offset)
            name = self._key_of.pop(place, None)
            if name is not None:
                self._lines[name].remove(place)
                self.count -= 1
                changed.add(name)
        return [each for name in changed for each in self._next_of(name)]

    def _next_of(self, name: int) -> Iterator[Place]:
        line = self._lines[name]
        if not len(line):
            del self._lines[name]
            return
        for place in line.first(KEY_BATCH):
            segment, offset = self._place(place)
            parked = self.parked.get(segment)
            if parked is None or offset not in parked:
                # Whoever is ahead was handed out, rests, or is ready: it is waited for.
                return
            parked.remove(offset, offset + 1)
            self._key_of[place] = name
            yield Place(segment, offset)

    def may_be_with_a_consumer(self, segment: int, offset: int) -> bool:
        """Whether another coordinator may have handed it out: it is one of the first of its key, or has none."""
        place = self._number(segment, offset)
        name = self._key_of.get(place)
        return name is None or self._lines[name].index(place) < KEY_BATCH

    def _number(self, segment: int, offset: int) -> int:
        ordinal = self._ordinals.get(segment)
        if ordinal is None:
            ordinal = self._ordinals[segment] = len(self._segments)
            self._segments.append(segment)
        return ordinal << _OFFSET_BITS | offset

    def _place(self, number: int) -> Place:
        return Place(self._segments[number >> _OFFSET_BITS], number & (1 << _OFFSET_BITS) - 1)
