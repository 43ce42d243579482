"""Read files and streams as tables of messages, batch by batch, in bounded memory."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from filer.nearest import unknown_name
from mq.base import exact_json
from mq.cli.failures import CommandFailed
from mq.cli.publishing.input_forms import Fields
from mq.cli.publishing.input_stream import STDIN_NAME, InputStream

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from mq.cli.publishing.message_batches import Payload

MAX_LINE_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
PARQUET_ROWS = 16_384
CSV_BLOCK_BYTES = 4 * 1024 * 1024
"""So much CSV becomes a batch."""
# An error names the fields of a file. There may be as many as it has lines.
_MOST_NAMES = 50


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows to publish. `key` and `value` name their columns, as for `publish_table`.

    With `is_json`, the values are JSON already. `lines` are those of the input, if it has lines. `keys` are the keys as
    written in the input, if the column has them as numbers. With `is_message` there are the columns `headers` and
    `event_time` too; the values of `payloads` are stored beside the log.
    """

    table: pa.Table
    key: str | None
    value: str | None
    is_json: bool = False
    lines: Sequence[int] | None = None
    keys: "pa.ChunkedArray[Any] | None" = None
    is_message: bool = False
    payloads: "Sequence[Payload]" = ()


def line_batches(stream: InputStream) -> Iterator[Batch]:
    """Each line is a value. Raises `CommandFailed` for a line that is too long."""
    for first, lines in blocks(stream):
        table = pa.table({"value": pa.array(lines, pa.binary())})
        yield Batch(table, None, "value", lines=range(first, first + len(lines)))


def ndjson_batches(stream: InputStream, fields: Fields, *, to_json: bool = False) -> Iterator[Batch]:
    """Each line is a JSON document. A null or missing key field is a null key.

    A value field that is text is the value as it is, and `to_json`, for a topic of JSON, a JSON string.

    Raises `CommandFailed`, also if the first block of a file does not have a field at all: its name is wrong.
    """
    for first, lines in blocks(stream):
        names: dict[str, None] = {}
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        numbers: list[int] = []
        for number, line in enumerate(lines, first):
            if text := line.strip():
                record = _record(stream.name, number, text, fields)
                if first == 1:
                    names |= dict.fromkeys(record)
                if fields.key is not None:
                    keys.append(_plain(record.get(fields.key)))
                numbers.append(number)
                values.append(text if fields.value is None else _plain(record.get(fields.value), to_json=to_json))
        if names and stream.name != STDIN_NAME:
            _check_fields(stream.name, fields, names)
        table = pa.table({"value": pa.array(values, pa.binary())})
        if fields.key is not None:
            table = table.append_column("key", pa.array(keys, pa.binary()))
        key = None if fields.key is None else "key"
        yield Batch(table, key, "value", is_json=fields.value is None, lines=numbers)


def csv_batches(stream: InputStream, fields: Fields, *, nulls: list[str], as_text: bool) -> Iterator[Batch]:
    """Each row is a JSON object, or its value field is the value. Raises `CommandFailed`."""
    from mq.cli.publishing.csv_batches import csv_tables

    text = [] if fields.value is None else [fields.value]
    for table, written in csv_tables(stream, text_columns=text, nulls=nulls, as_text=as_text):
        if fields.key is not None and fields.key not in written.column_names:
            raise CommandFailed(f"{stream.name}: {unknown_name('column', fields.key, written.column_names)}")
        yield Batch(table, fields.key, fields.value, keys=None if fields.key is None else written[fields.key])


def parquet_batches(file: "pq.ParquetFile", fields: Fields, name: str) -> Iterator[Batch]:
    """Each row is a JSON object, or its value field is the value. Raises `CommandFailed` for a damaged file."""
    rows = file.iter_batches(batch_size=PARQUET_ROWS)
    while True:
        try:
            batch = next(rows, None)
        except (pa.ArrowInvalid, OSError) as error:
            raise CommandFailed(f"{name}: {error}") from error
        if batch is None:
            return
        yield Batch(pa.Table.from_batches([batch]), fields.key, fields.value)


def blocks(stream: InputStream) -> Iterator[tuple[int, list[bytes]]]:
    """Blocks of lines without their line ends, each with the number of its first line."""
    number = 1
    rest: list[bytes] = []
    while chunk := stream.read(_CHUNK_BYTES):
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            lines = b"".join([*rest, head]).split(b"\n")
            yield number, lines
            number += len(lines)
            rest = [tail] if tail else []
        else:
            rest.append(chunk)
        if sum(map(len, rest)) > MAX_LINE_BYTES:
            raise CommandFailed(
                f"{stream.name}, line {number}: longer than {MAX_LINE_BYTES:,} bytes; publish such values with --upload"
            )
    if rest:
        yield number, [b"".join(rest)]


def _record(name: str, number: int, text: bytes, fields: Fields) -> dict[str, Any]:
    try:
        record = exact_json.loads(text)
    except orjson.JSONDecodeError as error:
        raise CommandFailed(f"{name}, line {number}: {error}") from error
    if isinstance(record, dict):
        return record
    if fields.key is not None or fields.value is not None:
        raise CommandFailed(f"{name}, line {number}: not a JSON object, so it has no fields")
    return {}


def _check_fields(name: str, fields: Fields, names: Collection[str]) -> None:
    for wanted in (fields.key, fields.value):
        if wanted is not None and wanted not in names:
            raise CommandFailed(f"{name}: {unknown_name('field', wanted, islice(names, _MOST_NAMES))}")


def _plain(value: Any, *, to_json: bool = False) -> bytes | None:
    """A field as bytes: null as `None`, text unchanged unless `to_json`, anything else as JSON."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) and not to_json else exact_json.dumps(value)
