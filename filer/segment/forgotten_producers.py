"""Producers whose windows were dropped for want of room, within the last hour of the log.

A segment that forgot such a producer altogether would take its repeat for a new producer's first request, and store it
twice. So two things stay, both bounded:

- of the last `MAX_EXACT` such producers a hash, the highest sequence, and the owner. A higher sequence is new if it
  comes from the owner; from others it is refused;
- of those before them a bit pattern (a Bloom filter). It shows only that a producer may be one of them, so all of its
  sequences are refused. Its publisher goes on under a new id. One new producer in 50,000 is refused by mistake while
  144,000 are in the pattern, one in 50 with a million.

Either is dropped after an hour of silence, as windows are: a producer's id may be used anew then.
"""

import base64
import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from filer.segment.producer_owners import differ, one_owner

MAX_EXACT = 16_384
PATTERN_BITS = 1 << 23
PATTERN_HASHES = 4
MAX_PATTERNS = 2
NO_FLOOR = -1
ALL_SEQUENCES = 2**63 - 1
"""The floor of a producer that may use no sequence any more."""


@dataclass(slots=True)
class _Pattern:
    """A Bloom filter of producers, and the times at which the first and the last of them were last seen."""

    bits: bytearray
    oldest_us: int
    newest_us: int

    def add(self, hashed: int, seen_us: int) -> None:
        for position in _positions(hashed):
            self.bits[position >> 3] |= 1 << (position & 7)
        self.oldest_us, self.newest_us = min(self.oldest_us, seen_us), max(self.newest_us, seen_us)

    def may_have(self, hashed: int) -> bool:
        return all(self.bits[position >> 3] >> (position & 7) & 1 for position in _positions(hashed))

    def with_all_of(self, other: "_Pattern") -> "_Pattern":
        bits = int.from_bytes(self.bits, "big") | int.from_bytes(other.bits, "big")
        return _Pattern(
            bytearray(bits.to_bytes(len(self.bits), "big")),
            min(self.oldest_us, other.oldest_us),
            max(self.newest_us, other.newest_us),
        )

    def copy(self) -> "_Pattern":
        return _Pattern(self.bits[:], self.oldest_us, self.newest_us)


class ForgottenProducers:
    """What is left of producers without windows: up to which sequence a request of theirs is refused."""

    def __init__(self) -> None:
        # By hash: the highest sequence, when it was last seen, and its owner. The longest silent producer comes first.
        self._exact: dict[int, tuple[int, int, str]] = {}
        self._patterns: list[_Pattern] = []

    def __bool__(self) -> bool:
        return bool(self._exact or self._patterns)

    def add(self, name: str, highest: int, seen_us: int, lifetime_us: int, owner: str = "") -> None:
        """Remember a producer, last seen at that time of the log. Its sequences up to `highest` are refused."""
        self._add(_hash(name), highest, seen_us, owner, lifetime_us)

    def floor_of(self, name: str) -> int:
        """The sequence up to which a producer's requests are refused; `NO_FLOOR` if it was not forgotten."""
        if not self:
            return NO_FLOOR
        hashed = _hash(name)
        if (known := self._exact.get(hashed)) is not None:
            return known[0]
        return ALL_SEQUENCES if any(pattern.may_have(hashed) for pattern in self._patterns) else NO_FLOOR

    def owner_of(self, name: str) -> str:
        """The producer's owner, if it is known exactly; else empty."""
        known = self._exact.get(_hash(name)) if self._exact else None
        return "" if known is None else known[2]

    def take(self, name: str, owner: str, before_us: int) -> tuple[int, str]:
        """As `floor_of` and `owner_of`; from now on the caller remembers the producer, for that owner.

        An entry of another owner, last seen before `before_us`, no longer counts.
        """
        known = self._exact.pop(_hash(name), None) if self._exact else None
        if known is None:
            return self.floor_of(name), ""
        return (NO_FLOOR, "") if differ(known[2], owner) and known[1] < before_us else (known[0], known[2])

    def expire(self, before_us: int) -> None:
        """Drop the producers last seen before that time."""
        while self._exact:
            first = next(iter(self._exact))
            if self._exact[first][1] >= before_us:
                break
            del self._exact[first]
        if self._patterns:
            self._patterns = [pattern for pattern in self._patterns if pattern.newest_us >= before_us]

    def include(self, others: "Iterable[ForgottenProducers]", lifetime_us: int) -> None:
        """Remember the producers of the others too; of a producer in several, the higher sequence counts."""
        sources = [self, *others]
        rows = [(known[1], hashed, known[0], known[2]) for each in sources for hashed, known in each._exact.items()]
        patterns = sorted(
            (pattern.copy() for each in sources for pattern in each._patterns), key=lambda each: each.newest_us
        )
        while len(patterns) > MAX_PATTERNS:
            patterns[:2] = [patterns[0].with_all_of(patterns[1])]
        self._exact, self._patterns = {}, patterns
        for seen_us, hashed, highest, owner in sorted(rows):
            self._add(hashed, highest, seen_us, owner, lifetime_us)

    def copy(self) -> "ForgottenProducers":
        """An independent copy."""
        made = ForgottenProducers()
        made._exact, made._patterns = self._exact.copy(), [pattern.copy() for pattern in self._patterns]
        return made

    def _add(self, hashed: int, highest: int, seen_us: int, owner: str, lifetime_us: int) -> None:
        before = self._exact.pop(hashed, (NO_FLOOR, seen_us, owner))
        of_both = owner if before[1] < seen_us - lifetime_us and owner else one_owner((before[2], owner))
        self._exact[hashed] = (max(before[0], highest), max(before[1], seen_us), of_both)
        while len(self._exact) > MAX_EXACT:
            first = next(iter(self._exact))
            self._blur(first, self._exact.pop(first)[1], lifetime_us)

    def _blur(self, hashed: int, seen_us: int, lifetime_us: int) -> None:
        """Add to the newest pattern; begin another when that one spans the lifetime, so that each can expire."""
        if not self._patterns or seen_us - self._patterns[-1].oldest_us > lifetime_us:
            self._patterns.append(_Pattern(bytearray(PATTERN_BITS // 8), seen_us, seen_us))
            if len(self._patterns) > MAX_PATTERNS:
                self._patterns[:2] = [self._patterns[0].with_all_of(self._patterns[1])]
        self._patterns[-1].add(hashed, seen_us)

    # -- on the store --------------------------------------------------------------------------------------

    def to_document(self) -> dict[str, Any]:
        """A form for JSON: numbers of eight bytes each, little endian, and bits, in base64."""
        return {
            "hashes": _encode(array("Q", self._exact)),
            "highest": _encode(array("q", (highest for highest, _, _ in self._exact.values()))),
            "seen_us": _encode(array("q", (seen_us for _, seen_us, _ in self._exact.values()))),
            # The version before neither writes nor reads it.
            "owners": [owner for _, _, owner in self._exact.values()],
            "patterns": [
                [base64.b64encode(pattern.bits).decode(), pattern.oldest_us, pattern.newest_us]
                for pattern in self._patterns
            ],
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "ForgottenProducers":
        """The producers from the form of `to_document`. Raises `ValueError`, `TypeError`, `KeyError` for any other."""
        made = cls()
        hashes, highest, seen_us = (
            _decode(code, document[name]) for code, name in (("Q", "hashes"), ("q", "highest"), ("q", "seen_us"))
        )
        owners = [str(owner) for owner in document.get("owners", [""] * len(hashes))]
        rows = zip(hashes, zip(highest, seen_us, owners, strict=True), strict=True)
        made._exact = dict(rows)
        for text, oldest_us, newest_us in document["patterns"]:
            bits = bytearray(base64.b64decode(text, validate=True))
            if len(bits) != PATTERN_BITS // 8:
                raise ValueError(f"a pattern of {len(bits)} bytes, not {PATTERN_BITS // 8}")
            made._patterns.append(_Pattern(bits, int(oldest_us), int(newest_us)))
        if len(made._exact) > MAX_EXACT or len(made._patterns) > MAX_PATTERNS:
            raise ValueError("more forgotten producers than are ever kept")
        return made


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def _positions(hashed: int) -> Iterable[int]:
    first, step = hashed & 0xFFFFFFFF, hashed >> 32 | 1
    return ((first + number * step) % PATTERN_BITS for number in range(PATTERN_HASHES))


def _little_endian(numbers: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _encode(numbers: "array[int]") -> str:
    numbers = _little_endian(numbers)
    return base64.b64encode(numbers.tobytes()).decode()


def _decode(code: str, text: str) -> "array[int]":
    numbers = array(code)
    numbers.frombytes(base64.b64decode(text, validate=True))
    return _little_endian(numbers)
