"""CSV as tables whose types are settled by the first rows, without losing what was written."""

import io
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from mq.cli.failures import CommandFailed
from mq.cli.input_stream import InputStream

_BLOCK_BYTES = 4 * 1024 * 1024
_HEAD_BYTES = 2 * _BLOCK_BYTES
_READING = csv.ReadOptions(block_size=_BLOCK_BYTES)
_PARSING = csv.ParseOptions(newlines_in_values=True)
# What a number would not give back as it was written: leading zeros, and more digits than a float holds.
_LEADING_ZERO = r"^[+-]?0\d"
_LONG = r"^[+-]?\d{16}"


def csv_tables(
    stream: InputStream, *, text_columns: Sequence[str], nulls: Sequence[str], as_text: bool
) -> Iterator[pa.Table]:
    """The rows in order, in tables of some megabytes; the first line names the columns.

    Columns whose first rows are all numbers, or all true and false, are read as such: but `text_columns` as
    text, all of them with `as_text`, and those whose numbers would not come back as they were written (leading
    zeros, long integers among fractions). A field that is one of `nulls` is null. Raises `CommandFailed`.
    """
    head = stream.head(_HEAD_BYTES)
    if not head:
        return
    try:
        types = {} if as_text else _types(head, nulls)
        wanted = {name: kind for name, kind in types.items() if name not in text_columns}
        with csv.open_csv(stream, _READING, _PARSING, _text_options(head, nulls)) as reader:
            for rows in reader:
                yield _typed(pa.Table.from_batches([rows]), wanted, stream.name)
    except pa.ArrowInvalid as error:
        raise CommandFailed(f"{stream.name}: {error}") from error


def _types(head: bytes, nulls: Sequence[str]) -> dict[str, pa.DataType]:
    """The columns that are not text, by the first rows."""
    found = _open(head, csv.ConvertOptions(null_values=list(nulls))).schema
    written = next(iter(_open(head, _text_options(head, nulls))), None)
    if written is None:
        return {}
    return {
        name: found.field(name).type for name in found.names if _keeps(found.field(name).type, written.column(name))
    }


def _keeps(kind: pa.DataType, written: pa.Array) -> bool:
    """Whether values of that type say all that was written."""
    if pa.types.is_boolean(kind):
        return True
    if pa.types.is_integer(kind):
        return not _any(written, _LEADING_ZERO)
    return bool(pa.types.is_floating(kind)) and not _any(written, f"{_LEADING_ZERO}|{_LONG}")


def _any(written: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(written, pattern)).as_py())


def _text_options(head: bytes, nulls: Sequence[str]) -> csv.ConvertOptions:
    columns = dict.fromkeys(_open(head, csv.ConvertOptions()).schema.names, pa.string())
    return csv.ConvertOptions(null_values=list(nulls), strings_can_be_null=True, column_types=columns)


def _open(head: bytes, options: csv.ConvertOptions) -> csv.CSVStreamingReader:
    """A reader of the first block of rows; what follows them in `head` may be cut short, and is not looked at."""
    return csv.open_csv(io.BytesIO(head), _READING, _PARSING, options)


def _typed(table: pa.Table, types: Mapping[str, pa.DataType], name: str) -> pa.Table:
    for place, column in enumerate(table.column_names):
        if column in types:
            table = table.set_column(place, column, _cast(table[column], types[column], f"{name}, column {column!r}"))
    return table


def _cast(written: pa.ChunkedArray, kind: pa.DataType, what: str) -> pa.ChunkedArray:
    """The column in its type; integers may turn into fractions later in the file."""
    widths = (kind, pa.float64()) if pa.types.is_integer(kind) else (kind,)
    for each in widths:
        try:
            return written.cast(each)
        except pa.ArrowInvalid as error:
            reason = error
    raise CommandFailed(f"{what} began as {kind}: {reason}; --text takes every field as text") from reason
