"""Read CSV as tables. The first rows determine the types, and no value loses characters."""

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from mq.cli.failures import CommandFailed
from mq.cli.publishing.batches import CSV_BLOCK_BYTES
from mq.cli.publishing.input_stream import InputStream

_BLOCK_BYTES = CSV_BLOCK_BYTES
_HEAD_BYTES = 2 * _BLOCK_BYTES
_READ_OPTIONS = csv.ReadOptions(block_size=_BLOCK_BYTES)
_PARSE_OPTIONS = csv.ParseOptions(newlines_in_values=True)
# Text that a number would not reproduce exactly: leading zeros, and more digits than a float holds.
_LEADING_ZERO = r"^[+-]?0\d"
_LONG = r"^[+-]?\d{16}"


def csv_tables(
    stream: InputStream, *, text_columns: Sequence[str], nulls: Sequence[str], as_text: bool
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The rows in order, in tables of some megabytes, and the same rows as written. The first line names columns.

    A column whose first rows are all numbers, or all true or false, gets that type. These columns stay text:
    `text_columns`, all columns with `as_text`, and columns whose numbers would not be reproduced exactly (leading
    zeros, long integers among fractions). A field equal to one of `nulls` is null. Raises `CommandFailed`.
    """
    head = stream.head(_HEAD_BYTES)
    if not head:
        return
    try:
        _check_names(_open(head, csv.ConvertOptions()).schema.names, stream.name)
        types = {} if as_text else _types(head, nulls)
        wanted = {name: kind for name, kind in types.items() if name not in text_columns}
        with csv.open_csv(stream, _READ_OPTIONS, _PARSE_OPTIONS, _text_options(head, nulls)) as reader:
            for rows in reader:
                written = pa.Table.from_batches([rows])
                yield _typed(written, wanted, stream.name), written
    except pa.ArrowInvalid as error:
        raise CommandFailed(f"{stream.name}: {error}") from error


def _check_names(names: Sequence[str], file: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise CommandFailed(f"{file}: several columns are named {twice[0]!r}: rename all but one")


def _types(head: bytes, nulls: Sequence[str]) -> dict[str, pa.DataType]:
    """The types of the columns that are not text, judged by the first rows."""
    found = _open(head, csv.ConvertOptions(null_values=list(nulls))).schema
    written = next(iter(_open(head, _text_options(head, nulls))), None)
    if written is None:
        return {}
    return {
        name: found.field(name).type
        for name in found.names
        if _is_lossless(found.field(name).type, written.column(name))
    }


def _is_lossless(kind: pa.DataType, written: pa.Array) -> bool:
    """Whether values of type `kind` reproduce exactly what was written."""
    if pa.types.is_boolean(kind):
        return True
    if pa.types.is_integer(kind):
        return not _any_match(written, _LEADING_ZERO)
    return bool(pa.types.is_floating(kind)) and not _any_match(written, f"{_LEADING_ZERO}|{_LONG}")


def _any_match(written: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(written, pattern)).as_py())


def _text_options(head: bytes, nulls: Sequence[str]) -> csv.ConvertOptions:
    columns = dict.fromkeys(_open(head, csv.ConvertOptions()).schema.names, pa.string())
    return csv.ConvertOptions(null_values=list(nulls), strings_can_be_null=True, column_types=columns)


def _open(head: bytes, options: csv.ConvertOptions) -> csv.CSVStreamingReader:
    """A reader for the first block of rows. Use no more than that block: the end of `head` may be cut inside a row."""
    return csv.open_csv(io.BytesIO(head), _READ_OPTIONS, _PARSE_OPTIONS, options)


def _typed(table: pa.Table, types: Mapping[str, pa.DataType], name: str) -> pa.Table:
    for index, column in enumerate(table.column_names):
        if column in types:
            table = table.set_column(index, column, _cast(table[column], types[column], f"{name}, column {column!r}"))
    return table


def _cast(written: pa.ChunkedArray, kind: pa.DataType, what: str) -> pa.ChunkedArray:
    """Cast a column to its type. Integers may become fractions later in the file."""
    widths = (kind, pa.float64()) if pa.types.is_integer(kind) else (kind,)
    for each in widths:
        try:
            return written.cast(each)
        except pa.ArrowInvalid as error:
            reason = error
    raise CommandFailed(f"{what} began as {kind}: {reason}; --text reads every field as text") from reason
