"""Rows and tables as Arrow streams, the form that brokers accept."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braidmq.publish.encoding.outgoing import ROW_OVERHEAD_BYTES, Upload
from braidmq.publish.encoding.row_columns import RowColumns
from filer.format.schema import HEADERS, TIMESTAMP
from filer.format.text_rows import metadata_of

_TEXT = "text"
_UPLOAD = pa.struct([("upload", pa.string()), ("size", pa.int64()), ("sha256", pa.string())])


def rows_table(rows: RowColumns) -> pa.Table:
    """The columns of some messages as they are sent: `key`, `value`, and the others only if a message uses them.

    `text`, which says of each whether its value was given as text, is for `ipc_bytes`.
    """
    columns: dict[str, Any] = {"key": pa.array(rows.keys, pa.binary()), "value": pa.array(rows.values, pa.binary())}
    if rows.headers is not None:
        columns["headers"] = pa.array([each or None for each in rows.headers], HEADERS)
    if rows.event_times_us is not None:
        columns["event_time"] = pa.array(rows.event_times_us, pa.int64()).cast(TIMESTAMP)
    if rows.uploads is not None:
        columns["ref"] = _uploads(rows.uploads)
    if rows.texts is not None:
        columns[_TEXT] = pa.array(rows.texts)
    return pa.table(columns)


def with_uploads(table: pa.Table, uploads: Mapping[int, Upload]) -> pa.Table:
    """The table with the values of some rows replaced by references."""
    replaced = np.isin(np.arange(table.num_rows), list(uploads))
    value = table["value"]
    columns: dict[str, Any] = {name: table[name] for name in table.column_names}
    columns["value"] = pc.if_else(pa.array(replaced), pa.scalar(None, value.type), value)
    columns["ref"] = _uploads([uploads.get(row) for row in range(table.num_rows)])
    return pa.table(columns)


def _uploads(uploads: Sequence[Upload | None]) -> "pa.Array[Any]":
    return pa.array([None if each is None else (each.id, each.size_bytes, each.sha256) for each in uploads], _UPLOAD)


def ipc_bytes(table: pa.Table) -> pa.Buffer:
    """The table as an Arrow IPC stream, uncompressed: brokers refuse compressed ones."""
    if _TEXT in table.column_names:
        texts = metadata_of(table[_TEXT].to_numpy())
        table = table.drop_columns([_TEXT]).replace_schema_metadata(texts)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    return sink.getvalue()


def cut(table: pa.Table, request_bytes: int) -> Iterator[pa.Table]:
    """The rows in order, cut into tables of at most `request_bytes` each (or of one row, if that is larger)."""
    if table.num_rows == 0:
        return
    ends = np.cumsum(_row_bytes(table))
    start = 0
    while start < table.num_rows:
        bytes_before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, bytes_before + request_bytes, side="right")))
        yield table.slice(start, stop - start)
        start = stop


def _row_bytes(table: pa.Table) -> npt.NDArray[np.int64]:
    """The approximate bytes of each row in a request."""
    sizes = np.full(table.num_rows, ROW_OVERHEAD_BYTES, dtype=np.int64)
    for name in ("key", "value"):
        if name in table.column_names:
            sizes += pc.fill_null(pc.binary_length(table[name]), 0).to_numpy().astype(np.int64)
    if "headers" in table.column_names:
        # The mean is enough: headers are small and similar, and a request may be slightly larger than asked.
        sizes += table["headers"].nbytes // table.num_rows
    return sizes
