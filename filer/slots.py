"""The key space: 65,536 slots, found by CRC-32 of the key (DESIGN.md §2)."""

import zlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SLOTS = 65_536
# Keys up to here are hashed column-wise, byte position by byte position; the few longer ones one by one.
_COLUMNWISE_KEY_BYTES = 64


def _crc32_table() -> npt.NDArray[np.uint32]:
    """The byte-wise table of the reflected IEEE polynomial 0xEDB88320 (ISO 3309)."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1)
    return table


_TABLE = _crc32_table()


def slot_of(key: bytes) -> int:
    """The slot of one key."""
    return zlib.crc32(key) & 0xFFFF


def slots_of(keys: pa.Array, *, null_slot: int) -> npt.NDArray[np.uint16]:
    """The slot of each key of a binary or string array, without an object per key.

    Null keys take `null_slot`: any slot will do for them.
    """
    count = len(keys)
    offsets = np.frombuffer(keys.buffers()[1], dtype=np.int32, count=count + keys.offset + 1)[keys.offset :]
    data = keys.buffers()[2]
    octets = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, np.uint8)
    lengths = np.diff(offsets)
    crc = np.full(count, 0xFFFFFFFF, dtype=np.uint32)
    _hash_short(crc, octets, offsets[:-1], lengths)
    slots = ((crc ^ np.uint32(0xFFFFFFFF)) & np.uint32(0xFFFF)).astype(np.uint16)
    for row in np.flatnonzero(lengths > _COLUMNWISE_KEY_BYTES):
        slots[row] = slot_of(octets[offsets[row] : offsets[row + 1]].tobytes())
    if keys.null_count:
        slots[np.asarray(keys.is_null())] = null_slot
    return slots


def _hash_short(
    crc: npt.NDArray[np.uint32],
    octets: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int32],
    lengths: npt.NDArray[np.int32],
) -> None:
    """CRC-32 registers of all keys of up to `_COLUMNWISE_KEY_BYTES`, updated in place."""
    short = lengths <= _COLUMNWISE_KEY_BYTES
    longest = int(lengths[short].max(initial=0))
    shortest = int(lengths.min(initial=0))
    rows: npt.NDArray[np.intp] | slice = slice(None) if short.all() else np.flatnonzero(short)
    for position in range(longest):
        if position >= shortest:
            rows = np.flatnonzero(short & (lengths > position))
        register = crc[rows]
        crc[rows] = _TABLE[(register ^ octets[starts[rows] + position]) & 0xFF] ^ (register >> 8)


def equal_ranges(parts: int) -> list[tuple[int, int]]:
    """The slots cut into that many half-open ranges of (nearly) equal width."""
    bounds = [part * SLOTS // parts for part in range(parts + 1)]
    return list(pairwise(bounds))


def tile_exactly(ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether the ranges, in any order, cover each slot once and nothing else."""
    ordered = sorted(ranges)
    bounds = [0, *(stop for _, stop in ordered)]
    return bounds[-1] == SLOTS and all(
        start == bound and stop > start for (start, stop), bound in zip(ordered, bounds, strict=False)
    )
