"""Turns Arrow's many layouts of the same values into the plain one."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def plain_column(column: "pa.ChunkedArray[Any]") -> "pa.ChunkedArray[Any]":
    """As `plain`, for a column of a table."""
    chunks: list[Any] = [plain(chunk) for chunk in column.chunks]
    return pa.chunked_array(chunks, None if chunks else plain_type(column.type))


def plain(array: Any) -> Any:
    """The same values without dictionaries, run ends, views, large offsets, and extensions that JSON does not know.

    Contents of lists, structs and maps stay as they are.
    """
    kind = array.type
    if pa.types.is_run_end_encoded(kind):
        return _without_run_ends(array)
    if pa.types.is_dictionary(kind):
        # Arrow cannot cast dictionaries of views, which polars uses for its categoricals.
        return plain(array.dictionary).take(array.indices)
    if isinstance(kind, pa.Bool8Type):
        return pc.not_equal(array.storage, pa.scalar(0, pa.int8()))
    if isinstance(kind, pa.BaseExtensionType) and not is_uuid(kind):
        return plain(array.storage)
    wanted = plain_type(kind)
    return array if wanted == kind else array.cast(wanted)


def _without_run_ends(array: Any) -> Any:
    """Each value as often as its run is long. Arrow's own decoder does not know views and dictionaries."""
    ends = np.asarray(array.run_ends)
    places = np.arange(array.offset, array.offset + len(array))
    return plain(array.values).take(pa.array(np.searchsorted(ends, places, side="right")))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the result of `plain`."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if isinstance(kind, pa.Bool8Type):
        return pa.bool_()
    if isinstance(kind, pa.BaseExtensionType) and not is_uuid(kind):
        return plain_type(kind.storage_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists, of whatever layout."""
    is_view = pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind) or is_view)


def is_uuid(kind: pa.DataType) -> bool:
    """Whether values are UUIDs, which are written as text."""
    return isinstance(kind, pa.UuidType)
