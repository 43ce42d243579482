"""Parquet's encoding DELTA_BINARY_PACKED of 64-bit numbers, as Arrow writes it.

Offsets rise by one, and all messages of a request have one timestamp. So nearly every block has one difference for all
its numbers, and only the others are packed.
"""

import numpy as np
import numpy.typing as npt

from filer.format.plain.thrift import zigzag
from filer.varint import varint

_BLOCK, _MINI = 256, 64
_HEAD = varint(_BLOCK) + varint(_BLOCK // _MINI)
_NO_BITS = bytes(_BLOCK // _MINI)
"""The widths of a block whose differences are all the same."""


def delta_packed(numbers: npt.NDArray[np.int64]) -> bytes:
    """The encoded numbers, at least one."""
    head = b"".join((_HEAD, varint(len(numbers)), zigzag(int(numbers[0]))))
    deltas = np.diff(numbers)
    if not len(deltas):
        return head
    starts = np.arange(0, len(deltas), _BLOCK)
    least, most = np.minimum.reduceat(deltas, starts), np.maximum.reduceat(deltas, starts)
    if len(starts) == 1 or (least == least[0]).all():
        blocks = [zigzag(int(least[0])) + _NO_BITS] * len(starts)
    else:
        blocks = [zigzag(number) + _NO_BITS for number in least.tolist()]
    for block in np.flatnonzero(least != most).tolist():
        start = block * _BLOCK
        blocks[block] = _packed(deltas[start : start + _BLOCK] - least[block], int(least[block]))
    return head + b"".join(blocks)


def equally_spaced(first: int, step: int, count: int) -> bytes:
    """As `delta_packed`, of `count` numbers from the first one on, each so much more than the one before."""
    head = b"".join((_HEAD, varint(count), zigzag(first)))
    return head + (zigzag(step) + _NO_BITS) * -(-(count - 1) // _BLOCK)


def _packed(above: npt.NDArray[np.int64], least: int) -> bytes:
    """A block of numbers, given as their excess over the least one."""
    widths, packed = bytearray(len(_NO_BITS)), []
    for mini, start in enumerate(range(0, len(above), _MINI)):
        group = above[start : start + _MINI]
        if places := np.flatnonzero(group).tolist():
            numbers = group.tolist()
            width = widths[mini] = max(numbers).bit_length()
            bits = 0
            for place in places:
                bits |= numbers[place] << place * width
            packed.append(bits.to_bytes(width * _MINI // 8, "little"))
    return b"".join((zigzag(least), widths, *packed))
