"""Which message is next of each key: messages of one key are handed out one after the other (`order: key`)."""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from groups.offset_set import OffsetSet, ranges_of

KEY_BATCH = 100
"""One claim has at most so many messages of a key.

A coordinator that takes over without leases relies on it: of each key, a consumer may have only the first so many. So
it never grows.
"""
MOST_UNFINISHED = 1_000_000
"""A group looks no further ahead than so many messages that are not done."""
_OFFSET_BITS = 45


class _Line:
    """The messages of one key that are not done, in their order; each is a number that grows along the line."""

    __slots__ = ("_head", "_places")

    def __init__(self) -> None:
        self._places = array("q")
        self._head = 0

    def __len__(self) -> int:
        return len(self._places) - self._head

    def extend(self, places: Sequence[int]) -> None:
        self._places.extend(places)

    def index(self, place: int) -> int:
        """How many messages are ahead of it."""
        return bisect_left(self._places, place, self._head) - self._head

    def first(self, count: int) -> "array[int]":
        """So many messages from the head of the line, or all."""
        return self._places[self._head : self._head + count]

    def remove(self, place: int) -> None:
        """Remove a message that is done."""
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

    Messages behind others wait in `parked`, by segment. `_key_of` has the key of all others that have one.
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

    def add(
        self, segment: int, offset: int, keys: Sequence[bytes | str | None], may_wait: OffsetSet
    ) -> list[tuple[int, int]]:
        """Add the messages from `offset` on to the lines of their keys; returns the ranges that wait aside from now on.

        Only the first messages of a line may be handed out. Those behind them wait if `may_wait` has them, so that they
        are not looked at again and again. The messages of a key are added in their order: a segment's from its first to
        its last, successors after predecessors.
        """
        number = self._number(segment, 0)
        places: dict[bytes | str, list[int]] = {}
        for place, key in enumerate(keys, number + offset):
            if key is not None:
                places.setdefault(key, []).append(place)
        behind: list[int] = []
        for key, found in places.items():
            name = hash(key)
            line = self._lines.setdefault(name, _Line())
            near = max(KEY_BATCH - len(line), 0)
            line.extend(found)
            self._key_of.update(dict.fromkeys(found[:near], name))
            self.count += len(found)
            behind += found[near:]
        behind.sort()
        waiting = OffsetSet((start - number, stop - number) for start, stop in ranges_of(behind))
        for start, stop in may_wait.without(offset, offset + len(keys)):
            for each in chain.from_iterable(range(*part) for part in waiting.within(start, stop)):
                self._key_of[number + each] = hash(keys[each - offset])
            waiting.remove(start, stop)
        aside = waiting.ranges()
        self.parked.setdefault(segment, OffsetSet()).add_all(aside)
        return aside

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

    def park(self, segment: int, offsets: Sequence[int]) -> None:
        """Let these wait until all messages ahead of them are done."""
        for offset in offsets:
            self._key_of.pop(self._number(segment, offset), None)
        self.parked.setdefault(segment, OffsetSet()).add_all(ranges_of(offsets))

    def done(self, ranges: Iterable[tuple[int, int, int]]) -> dict[int, list[tuple[int, int]]]:
        """Note that (segment, start, stop) are done; returns those that may be next and wait no more, by segment."""
        changed: set[int] = set()
        for segment, start, stop in ranges:
            number = self._number(segment, 0)
            for place in range(number + start, number + stop):
                name = self._key_of.pop(place, None)
                if name is not None:
                    self._lines[name].remove(place)
                    self.count -= 1
                    changed.add(name)
        found: dict[int, list[int]] = {}
        for name in changed:
            for place in self._next_of(name):
                self._key_of[place] = name
                segment, offset = self._place(place)
                found.setdefault(segment, []).append(offset)
        following = {segment: ranges_of(sorted(offsets)) for segment, offsets in found.items()}
        for segment, aside in following.items():
            self.parked[segment].remove_all(aside)
        return following

    def _next_of(self, name: int) -> Iterator[int]:
        line = self._lines[name]
        if not len(line):
            del self._lines[name]
            return
        for place in line.first(KEY_BATCH):
            segment, offset = self._place(place)
            if offset not in self.parked.get(segment, ()):
                # The message ahead was handed out, rests, or is ready: this one waits for it.
                return
            yield place

    def _number(self, segment: int, offset: int) -> int:
        ordinal = self._ordinals.get(segment)
        if ordinal is None:
            ordinal = self._ordinals[segment] = len(self._segments)
            self._segments.append(segment)
        return ordinal << _OFFSET_BITS | offset

    def _place(self, number: int) -> tuple[int, int]:
        return self._segments[number >> _OFFSET_BITS], number & (1 << _OFFSET_BITS) - 1
