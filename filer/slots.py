"""The key space: 65,536 slots, found by CRC-32 of the key (docs/design.md §2).

For whole columns of keys see `format.slot_columns`, which needs Arrow.
"""

import zlib
from collections.abc import Sequence
from itertools import pairwise

SLOTS = 65_536


def slot_of(key: bytes) -> int:
    """The slot of one key."""
    return zlib.crc32(key) & 0xFFFF


def keyless_slot(producer: str, sequence: int) -> int:
    """The slot for messages without a key in a request that may be repeated: each repetition gets the same slot."""
    return slot_of(f"{producer} {sequence}".encode())


def equal_ranges(parts: int) -> list[tuple[int, int]]:
    """All slots cut into that many half-open ranges of nearly equal width."""
    bounds = [part * SLOTS // parts for part in range(parts + 1)]
    return list(pairwise(bounds))


def tile_exactly(ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether the ranges, in any order, cover each slot exactly once and nothing else."""
    ordered = sorted(ranges)
    bounds = [0, *(stop for _, stop in ordered)]
    return bounds[-1] == SLOTS and all(
        start == bound and stop > start for (start, stop), bound in zip(ordered, bounds, strict=False)
    )
