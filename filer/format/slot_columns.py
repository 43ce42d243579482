"""The slots of a column of keys, without a Python object for each."""

import zlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filer.nulls import nulls_of
from filer.slots import slot_of

# Keys of up to this length are hashed column-wise, one byte position after the other, longer keys one by one.
_COLUMNWISE_KEY_BYTES = 64
# If fewer than one key in so many has a byte at a position, only these keys are processed.
_FEW = 8
_LARGE = (pa.large_binary(), pa.large_string())


def _shifted_tables() -> npt.NDArray[np.uint16]:
    """Row k has, for each byte value, what it adds to the low half of a CRC-32 if k bytes follow it.

    CRC-32 (IEEE, reflected polynomial 0xEDB88320) is linear over XOR. The CRC of a message is that of as many zero
    bytes, XORed with one entry for each byte. So each byte of each key is looked up independently of all others.
    """
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1)
    rows = [table]
    for _ in range(_COLUMNWISE_KEY_BYTES - 1):
        rows.append(table[rows[-1] & 0xFF] ^ (rows[-1] >> 8))
    return np.array(rows, dtype=np.uint32).astype(np.uint16)


_TABLES = _shifted_tables()
_OF_ZEROS = np.array([zlib.crc32(bytes(length)) & 0xFFFF for length in range(_COLUMNWISE_KEY_BYTES + 1)], np.uint16)


def slots_of(keys: pa.Array, *, null_slot: int) -> npt.NDArray[np.uint16]:
    """The slot of each key of a (large) binary or string array, computed without a Python object per key.

    Null keys get `null_slot`; any slot is right for them.
    """
    count = len(keys)
    kind: type[np.signedinteger] = np.int64 if keys.type in _LARGE else np.int32
    offsets = np.frombuffer(keys.buffers()[1], kind, count=count + keys.offset + 1)[keys.offset :]
    data = keys.buffers()[2]
    octets = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, np.uint8)
    lengths = np.diff(offsets)
    slots = _OF_ZEROS.take(lengths, mode="clip")
    _add_bytes(slots, octets, offsets[1:], lengths)
    if lengths.max(initial=0) > _COLUMNWISE_KEY_BYTES:
        for row in np.flatnonzero(lengths > _COLUMNWISE_KEY_BYTES):
            slots[row] = slot_of(octets[offsets[row] : offsets[row + 1]].tobytes())
    if keys.null_count:
        slots[nulls_of(keys)] = null_slot
    return slots


def _add_bytes(
    slots: npt.NDArray[np.uint16],
    octets: npt.NDArray[np.uint8],
    ends: npt.NDArray[np.signedinteger],
    lengths: npt.NDArray[np.signedinteger],
) -> None:
    """XOR the entry of each byte into `slots`, in place, from the last byte of each key to its first.

    The slots of keys that are too long for the tables come out wrong; the caller replaces them.
    """
    indexes = ends.astype(np.intp)  # the type that `take` needs: otherwise it converts at every call
    longest = min(int(lengths.max(initial=0)), _COLUMNWISE_KEY_BYTES)
    shortest = int(lengths.min(initial=0))
    for behind in range(longest):
        indexes -= 1
        if behind < shortest:
            slots ^= _entries(behind, octets, indexes)
            continue
        longer = lengths > behind
        if np.count_nonzero(longer) * _FEW < len(longer):
            rows = np.flatnonzero(longer)
            slots[rows] ^= _entries(behind, octets, indexes[rows])
        else:
            # Picking rows out would cost more than looking up some bytes in vain.
            slots ^= _entries(behind, octets, indexes) * longer


def _entries(behind: int, octets: npt.NDArray[np.uint8], indexes: npt.NDArray[np.intp]) -> npt.NDArray[np.uint16]:
    entries: npt.NDArray[np.uint16] = _TABLES[behind].take(octets.take(indexes, mode="clip"), mode="clip")
    return entries
