"""Columns without values. Most messages lack most columns, and a column of a million nulls takes up to 20 MB."""

import mmap
from functools import lru_cache

import pyarrow as pa

MOST_SHARED = 1_000_000
"""More nulls than these are made anew."""
_FEW = 1024


def null_column(count: int, kind: pa.DataType) -> pa.Array:
    """A column of nulls. All share the same zeros, which take no memory of their own."""
    if count > MOST_SHARED:
        return pa.nulls(count, kind)
    # Arrow takes long to make one of a nested type.
    return _few(kind).slice(0, count) if count <= _FEW else _nulls(count, kind)


@lru_cache
def _few(kind: pa.DataType) -> pa.Array:
    return _nulls(_FEW, kind)


@lru_cache(maxsize=1)
def _zeros() -> pa.Buffer:
    """Pages that are never written: for all of them the system has a single page of zeros."""
    return pa.py_buffer(memoryview(mmap.mmap(-1, 8 * (MOST_SHARED + 1))).toreadonly())


def _nulls(count: int, kind: pa.DataType) -> pa.Array:
    zeros = _zeros()
    if pa.types.is_struct(kind):
        children = [_nulls(count, kind.field(number).type) for number in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, count, [zeros], count, children=children)
    if pa.types.is_map(kind):
        entries = pa.struct([pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)])
        return pa.Array.from_buffers(kind, count, [zeros, zeros], count, children=[pa.array([], entries)])
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return pa.Array.from_buffers(kind, count, [zeros, zeros, pa.py_buffer(b"")], count)
    return pa.Array.from_buffers(kind, count, [zeros, zeros], count)
