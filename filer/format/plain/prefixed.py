"""Texts as Parquet has them (PLAIN): each behind its length, one after the other, in the order of a file.

The texts of a request are ordered and put behind their lengths in one go, for all segments that store them. Segment by
segment, or one step after the other, it takes several times as long.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.signedinteger[Any]]
LENGTH_BYTES = 4
_INLINE_BYTES = 12
"""A view holds a text of up to this size itself."""
_VIEWED_BYTES = 256
"""Texts of this average size are copied once, by views. Shorter ones are copied twice in less time."""
_VIEW_WORDS = 4
"""The 32-bit words of a view: the size, the first bytes, the number of the buffer, and the place in it."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts behind their lengths. The first begins at `ends[0]` of `data`, and text `n` ends at `ends[n + 1]`."""

    data: memoryview
    ends: Numbers

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.ends) - 1

    @property
    def size_bytes(self) -> int:
        """Their size, with their lengths."""
        return int(self.ends[-1]) - int(self.ends[0])

    def between(self, start: int, stop: int) -> "Texts":
        """Some of them."""
        return Texts(self.data, self.ends[start : stop + 1])


def prefixed(texts: pa.Array, order: npt.NDArray[np.int32] | None = None) -> Texts:
    """The texts of a column without a null (binary or string), at least one, in that order; less than 1 GiB of them."""
    rows = len(texts)
    _, starts, data = texts.buffers()
    offsets = np.frombuffer(starts, np.int32, rows + 1, LENGTH_BYTES * texts.offset)
    lengths = np.diff(offsets)
    if int(offsets[-1] - offsets[0]) >= _VIEWED_BYTES * rows and lengths.min() > _INLINE_BYTES:
        joined = _by_views(offsets, lengths, data, order)
    else:
        joined = _by_copies(offsets, lengths, starts, data, texts.offset, order)
    _, ends, joined_data = joined.buffers()
    return Texts(memoryview(joined_data).cast("B"), np.frombuffer(ends, np.int32, 2 * rows + 1)[::2])


def _by_views(
    offsets: npt.NDArray[np.int32],
    lengths: npt.NDArray[np.int32],
    data: pa.Buffer,
    order: npt.NDArray[np.int32] | None,
) -> pa.Array:
    """Lengths and texts by turns, each copied once: views say which bytes come one after the other."""
    begins = offsets[:-1]
    if order is not None:
        begins, lengths = begins[order], lengths[order]
    # A length is a text of four bytes, which a view holds itself. The first bytes of a long text serve only comparisons
    # of views, and there are none here.
    views = np.zeros((len(begins), 2, _VIEW_WORDS), np.int32)
    views[:, 0, 0] = LENGTH_BYTES
    views[:, 0, 1] = lengths
    views[:, 1, 0] = lengths
    views[:, 1, 3] = begins
    both = pa.Array.from_buffers(pa.binary_view(), 2 * len(begins), [None, pa.py_buffer(views), data])
    return both.cast(pa.binary())


def _by_copies(
    offsets: npt.NDArray[np.int32],
    lengths: npt.NDArray[np.int32],
    starts: pa.Buffer,
    data: pa.Buffer | None,
    offset: int,
    order: npt.NDArray[np.int32] | None,
) -> pa.Array:
    """As `_by_views`: first all lengths and all texts, then by turns."""
    rows = len(lengths)
    each = np.arange(0, LENGTH_BYTES * rows + 1, LENGTH_BYTES, dtype=np.int32)
    in_front = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(each), pa.py_buffer(lengths)])
    behind = pa.Array.from_buffers(pa.binary(), rows, [None, starts, data], offset=offset)
    turns = np.empty((rows, 2), np.int32)
    turns[:, 0] = np.arange(rows, dtype=np.int32) if order is None else order
    np.add(turns[:, 0], rows, out=turns[:, 1])
    return pa.concat_arrays([in_front, behind]).take(pa.array(turns.reshape(-1)))
