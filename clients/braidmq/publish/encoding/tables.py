"""Tables of pyarrow, pandas and polars as messages: one for each row, made column by column."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from braidmq.errors import InvalidArgument
from braidmq.publish.encoding.json_rows import json_objects, json_values
from braidmq.publish.encoding.outgoing import CONTENT_TYPE, JSON_TYPE, Headers
from filer.format.schema import HEADERS, TIMESTAMP
from filer.nearest import unknown_name

_MAX_SLICE_ROWS = 65_536


class Columns(TypedDict, total=False):
    """Names of columns, one for each part of a message.

    Without `value`, the value is the row as a JSON object. `headers` is a map column, or the same headers for all.
    """

    key: str | None
    value: str | None
    headers: str | Headers | None
    event_time: str | None


@dataclass(frozen=True, slots=True)
class TablePlan:
    """Which column of a table becomes which part of a message.

    If `value` is None, the value is the row as a JSON object. `headers` is a column, or the same headers for all.
    """

    key: str | None = None
    value: str | None = None
    headers: str | Headers | None = None
    event_time: str | None = None

    def check(self, table: pa.Table) -> None:
        """Raise `InvalidArgument` for a column that the table does not have, or has more than once."""
        for name in (self.key, self.value, self.headers, self.event_time):
            if isinstance(name, str) and name not in table.column_names:
                raise InvalidArgument(unknown_name("column", name, table.column_names))
            if isinstance(name, str) and table.column_names.count(name) > 1:
                raise InvalidArgument(f"several columns are named {name!r}: rename all but one")


def arrow_table(frame: Any) -> pa.Table:
    """Return a pyarrow, pandas or polars table as a pyarrow table, without copying if the library allows it."""
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    library = type(frame).__module__.partition(".")[0]
    if library == "pandas" and hasattr(frame, "columns"):
        return pa.Table.from_pandas(frame, preserve_index=False)
    if library == "polars" and hasattr(frame, "collect"):
        raise InvalidArgument("a polars LazyFrame has no rows yet: give frame.collect()")
    if hasattr(frame, "__arrow_c_stream__"):
        with suppress(pa.ArrowInvalid):  # for example a single column
            return pa.table(frame)
    raise InvalidArgument(
        f"{type(frame).__name__} is not a table: give a pyarrow Table or RecordBatch, or a pandas or polars DataFrame"
    )


def message_tables(table: pa.Table, plan: TablePlan, *, slice_bytes: int) -> Iterator[pa.Table]:
    """The table in the columns of messages, one slice of about `slice_bytes` at a time."""
    plan.check(table)
    rows = max(1, min(_MAX_SLICE_ROWS, slice_bytes * table.num_rows // max(table.nbytes, 1)))
    for start in range(0, table.num_rows, rows):
        yield _message_columns(table.slice(start, rows), plan)


def _message_columns(table: pa.Table, plan: TablePlan) -> pa.Table:
    columns: dict[str, Any] = {}
    columns["key"] = pa.nulls(table.num_rows, pa.binary()) if plan.key is None else _key(table[plan.key])
    columns["value"], is_json = _value(table, plan.value)
    headers = _headers(table, plan.headers, is_json=is_json)
    if headers is not None:
        columns["headers"] = headers
    if plan.event_time is not None:
        columns["event_time"] = _event_time(table[plan.event_time])
    return pa.table(columns)


def _key(column: "pa.ChunkedArray[Any]") -> "pa.ChunkedArray[Any]":
    """Keys as bytes or text. Other types are converted to text."""
    kind = _plain_type(column.type)
    try:
        plain = _plain(column)
        return plain if _is_bytes_or_text(kind) else plain.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as failure:
        raise InvalidArgument(f"a column of type {column.type} cannot be the key: {failure}") from failure


def _value(table: pa.Table, name: str | None) -> tuple[Any, bool]:
    """The value column, and whether its values were converted to JSON here."""
    if name is None:
        return json_objects(table), True
    column = table[name]
    kind = _plain_type(column.type)
    if _is_bytes_or_text(kind) or pa.types.is_null(kind):
        return column.cast(pa.binary()) if pa.types.is_null(kind) else _plain(column), False
    return json_values(column), True


def _headers(table: pa.Table, given: str | Headers | None, *, is_json: bool) -> Any:
    """The headers column. Values converted to JSON here get a content type, unless a column gives the headers."""
    if isinstance(given, str):
        return _header_column(table[given])
    constant = {name: each.encode() if isinstance(each, str) else each for name, each in (given or {}).items()}
    if is_json:
        constant.setdefault(CONTENT_TYPE, JSON_TYPE)
    if not constant:
        return None
    try:
        return pa.repeat(pa.scalar(list(constant.items()), HEADERS), table.num_rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as failure:
        raise InvalidArgument(f"headers map text to bytes or text, not {given}") from failure


def _header_column(column: "pa.ChunkedArray[Any]") -> "pa.ChunkedArray[Any]":
    try:
        return column.cast(HEADERS)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as failure:
        raise InvalidArgument(
            f"a column of type {column.type} cannot be the headers: it must map text to bytes or text"
        ) from failure


def _event_time(column: "pa.ChunkedArray[Any]") -> Any:
    """Times in microseconds UTC. Text is read as RFC 3339; times without a zone are taken as UTC."""
    try:
        if pa.types.is_timestamp(column.type):
            # Nanoseconds are truncated. A time of a coarser unit that is out of range is an error: it must not wrap.
            coarse = column.type.unit in ("s", "ms")
            return pc.cast(column.cast(pa.timestamp("us", column.type.tz), safe=coarse), TIMESTAMP)
        return _plain(column).cast(TIMESTAMP)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as failure:
        raise InvalidArgument(f"a column of type {column.type} cannot be the event time: {failure}") from failure


def _plain(column: "pa.ChunkedArray[Any]") -> "pa.ChunkedArray[Any]":
    kind = _plain_type(column.type)
    if not pa.types.is_dictionary(column.type):
        return column.cast(kind)
    # Arrow cannot cast dictionaries of views, which is what polars makes of its categoricals.
    chunks: list[Any] = column.chunks
    plain: list[Any] = [each.dictionary.cast(kind).take(each.indices) for each in chunks]
    return pa.chunked_array(plain)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The same type without a dictionary, a view or large offsets."""
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


def _is_bytes_or_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_string(kind))
