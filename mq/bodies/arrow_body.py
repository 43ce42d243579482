"""Decodes Arrow IPC streams of untrusted clients, without an object per message.

Every batch is validated in full before use: a read of a column with bad offsets would crash the process. Only plain
columns are accepted: compressed buffers, dictionaries and views can expand to far more bytes than they take. The
compression of a body is read from the metadata of its messages, before Arrow decodes any of them.
"""

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filer.errors import InvalidInput
from filer.format.header_columns import first_wrong_headers
from filer.format.nulls import null_column
from filer.format.schema import HEADERS, REF, TIMESTAMP, MessageSchema
from filer.format.text_rows import text_rows
from filer.nearest import unknown_name
from filer.times import EARLIEST_US, LATEST_US
from filer.uploads import Claim
from mq.base.errors import Malformed
from mq.bodies.rows import (
    CHECKED_ROWS,
    Rows,
    check_header_count,
    check_ref_count,
    json_string,
    json_values_checked,
)
from mq.limits.steps import STEP_BYTES, Steps

KNOWN_COLUMNS = ("key", "value", "headers", "event_time", "ref")
MAX_BATCHES = 10_000
MOST_ROWS = 1_000_000
"""An empty message takes four bytes in a body, and some hundred while it is stored."""
_BYTES_TYPES = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())
_HEADER_TABLE_FIELD, _COMPRESSION_FIELD = 2, 3
_OLD_COMPRESSION = b"ARROW:experimental_compression"
"""Streams of metadata version 4 declare compressed buffers by this custom metadata of a message."""
_MESSAGES = ("schema", "record batch")
"""The messages of a stream of plain columns."""
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def decode_arrow(body: bytes | memoryview, schema: MessageSchema, received_us: int = 0) -> Steps[Rows]:
    """Return the rows of an IPC stream. In the first step Arrow decodes; the others check values of JSON.

    Raises `Malformed` if the bytes are not a complete, valid stream, and `InvalidInput` if the columns are wrong.
    No column depends on when the body was received.
    """
    rows, texts = _decoded(body, schema)
    if schema.is_json:
        if len(body) > STEP_BYTES:
            yield
        if texts is not None:
            rows = yield from _with_json_strings(rows, texts, most_bytes=2 * len(body))
        yield from json_values_checked(rows.batch["value"])
    return rows


def _decoded(body: bytes | memoryview, schema: MessageSchema) -> tuple[Rows, npt.NDArray[np.bool_] | None]:
    """Return the rows, and which of them are text, if the stream says so."""
    buffer = pa.py_buffer(body)
    if body[-len(_END_OF_STREAM) :] != _END_OF_STREAM:
        # Arrow does not notice that a stream was cut off between two batches.
        raise Malformed("the Arrow IPC stream is incomplete: it lacks the end-of-stream mark; close the writer")
    try:
        with pa.ipc.open_stream(buffer) as reader:
            _check_schema(reader.schema)
            _check_messages(buffer)
            batches, rows, size_bytes = [], 0, 0
            for batch in reader:
                rows += batch.num_rows
                if rows > MOST_ROWS:
                    raise InvalidInput(f"more than {MOST_ROWS} messages in one request: send fewer")
                batch.validate(full=True)
                # Bytes that two columns share count for each of them: so no row can be larger than the bytes sent for
                # it.
                size_bytes += batch.nbytes
                if size_bytes > len(buffer):
                    raise InvalidInput("columns of the Arrow stream share bytes: write each column's own")
                batches.append(batch)
                if len(batches) > MAX_BATCHES:
                    raise InvalidInput(
                        f"more than {MAX_BATCHES} record batches in one request: send fewer, larger ones"
                    )
            table = pa.Table.from_batches(batches, schema=reader.schema)
        if not table.num_rows:
            return Rows(pa.RecordBatch.from_pylist([], schema=schema.published)), None
        texts = _text_rows(table) if schema.is_json else None
        batch = batches[0] if len(batches) == 1 else table.combine_chunks().to_batches()[0]
        return _to_rows(batch, schema), texts
    except (pa.ArrowException, UnicodeDecodeError, OSError, EOFError) as error:
        raise Malformed(f"the body is not a valid Arrow IPC stream: {_first_line(error)}") from error


def _text_rows(table: pa.Table) -> npt.NDArray[np.bool_] | None:
    try:
        return text_rows(table.schema.metadata, table.num_rows)
    except ValueError as error:
        raise InvalidInput(f"the Arrow schema's metadata do not say which rows are text: {error}") from error


def _with_json_strings(rows: Rows, texts: npt.NDArray[np.bool_], *, most_bytes: int) -> Steps[Rows]:
    """Return the rows, with texts as JSON strings.

    Raises `InvalidInput` if these take more than `most_bytes`: a control character takes six times its byte.
    """
    values, parts, written_bytes, step_bytes = rows.batch["value"], [], 0, 0
    for start in range(0, len(values), CHECKED_ROWS):
        if start:
            yield
        piece = values.slice(start, CHECKED_ROWS).to_pylist()
        for row in np.flatnonzero(texts[start : start + len(piece)]).tolist():
            if piece[row] is None:
                continue
            where = f"row {start + row} of the request"
            written = json_string(piece[row].encode(), where, most_bytes=most_bytes - written_bytes)
            piece[row] = written.decode()
            written_bytes, step_bytes = written_bytes + len(written), step_bytes + len(written)
            if step_bytes >= STEP_BYTES:
                yield
                step_bytes = 0
        parts.append(pa.array(piece, values.type))
    arrays = [pa.concat_arrays(parts) if name == "value" else rows.batch[name] for name in rows.batch.schema.names]
    batch = pa.RecordBatch.from_arrays(arrays, schema=rows.batch.schema)
    return Rows(batch, rows.claims, grown_bytes=max(batch["value"].nbytes - values.nbytes, 0))


def _check_messages(buffer: pa.Buffer) -> None:
    """Raise `InvalidInput` for compressed buffers: nothing limits their decompressed size before decoding.

    Also for messages that a stream of plain columns does not have, such as dictionaries.
    """
    for message in pa.ipc.MessageReader.open_stream(buffer):
        if message.type not in _MESSAGES:
            raise InvalidInput(
                f"the Arrow stream has a message of type {message.type}: write plain columns, not dictionary-encoded"
            )
        if message.type == "record batch" and _is_compressed(message.metadata.to_pybytes()):
            raise InvalidInput("compressed Arrow IPC is not accepted: write the stream without compression")


def _is_compressed(metadata: bytes) -> bool:
    """Whether a Message declares compressed buffers (flatbuffers; Arrow's Message.fbs).

    Either its RecordBatch has its `compression` field set, or its custom metadata has the name of the older way, which
    Arrow still reads. A text stands in the metadata as it is.
    """
    if _OLD_COMPRESSION in metadata:
        return True
    try:
        message = struct.unpack_from("<I", metadata)[0]
        header = _field(metadata, message, _HEADER_TABLE_FIELD)
        if header is None:
            return False
        return _field(metadata, header, _COMPRESSION_FIELD) is not None
    except struct.error as error:
        raise Malformed("the body is not a valid Arrow IPC stream: a message's metadata is cut short") from error


def _field(data: bytes, table: int, field: int) -> int | None:
    """Return the position of the table in a field of another table; None if the field is not set."""
    vtable = table - int(struct.unpack_from("<i", data, table)[0])
    slot = 4 + 2 * field
    if struct.unpack_from("<H", data, vtable)[0] < slot + 2:
        return None
    offset = int(struct.unpack_from("<H", data, vtable + slot)[0])
    if not offset:
        return None
    return table + offset + int(struct.unpack_from("<I", data, table + offset)[0])


def _check_schema(schema: pa.Schema) -> None:
    for name in schema.names:
        if name not in KNOWN_COLUMNS:
            raise InvalidInput(unknown_name("column", name, KNOWN_COLUMNS))
    if len(set(schema.names)) < len(schema.names):
        raise InvalidInput("the Arrow schema has two columns of the same name")
    if "value" not in schema.names:
        raise InvalidInput("the Arrow schema lacks a column 'value' (binary or string)")
    for name, accepts in (("key", _BYTES_TYPES), ("value", _BYTES_TYPES)):
        if name in schema.names and schema.field(name).type not in accepts:
            raise InvalidInput(
                f"column '{name}' is of type {schema.field(name).type}, but must be binary or string "
                "(plain, not dictionary-encoded or view)"
            )
    _check_optional(schema)


def _check_optional(schema: pa.Schema) -> None:
    if "event_time" in schema.names and not pa.types.is_timestamp(schema.field("event_time").type):
        raise InvalidInput(f"column 'event_time' is of type {schema.field('event_time').type}, but must be a timestamp")
    if "headers" in schema.names:
        kind = schema.field("headers").type
        if not (pa.types.is_map(kind) and kind.key_type in _BYTES_TYPES and kind.item_type in _BYTES_TYPES):
            raise InvalidInput(f"column 'headers' is of type {kind}, but must be map<string, binary>")
    if "ref" in schema.names:
        kind = schema.field("ref").type
        if not pa.types.is_struct(kind) or "upload" not in [kind.field(i).name for i in range(kind.num_fields)]:
            raise InvalidInput(f"column 'ref' is of type {kind}, but must be struct<upload: string, …>")
        fields = [kind.field(i) for i in range(kind.num_fields)]
        if len({field.name for field in fields}) < len(fields):
            raise InvalidInput(f"column 'ref' is of type {kind}: it has two fields of the same name")
        for field in fields:
            _check_ref_field(field)


def _check_ref_field(field: pa.Field) -> None:
    known = {"upload": pa.string(), "size": pa.int64(), "etag": pa.string(), "sha256": pa.string()}
    if field.name not in known:
        raise InvalidInput(unknown_name("field of column 'ref'", field.name, known))
    if field.type != known[field.name]:
        raise InvalidInput(
            f"field '{field.name}' of column 'ref' is of type {field.type}, but must be {known[field.name]}"
        )


def _to_rows(batch: pa.RecordBatch, schema: MessageSchema) -> Rows:
    names = batch.schema.names
    count = batch.num_rows
    key_kind, value_kind = schema.published.types[:2]
    value = _cast(batch["value"], value_kind, "value")
    key = _cast(batch["key"], key_kind, "key") if "key" in names else null_column(count, key_kind)
    times = _times(batch["event_time"]) if "event_time" in names else null_column(count, TIMESTAMP)
    headers = _headers(batch["headers"]) if "headers" in names else null_column(count, HEADERS)
    claims = _claims(batch["ref"], value) if "ref" in names else ()
    arrays = [key, value, times, headers, null_column(count, REF)]
    return Rows(pa.RecordBatch.from_arrays(arrays, schema=schema.published), claims)


def _cast(array: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    if array.type == wanted:
        return array
    try:
        return array.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInput(f"column '{name}' cannot be stored as {wanted}: {_first_line(error)}") from error


def _times(array: pa.Array) -> pa.Array:
    """Return the times in microseconds, UTC. A time without a zone counts as UTC; nanoseconds are truncated."""
    try:
        micros = array.cast(pa.timestamp("us", array.type.tz), safe=array.type.unit != "ns")
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"column 'event_time' cannot be stored in microseconds: {_first_line(error)}") from error
    bounds = pc.min_max(micros.cast(pa.int64())).as_py()
    if bounds["min"] is not None and not EARLIEST_US <= bounds["min"] <= bounds["max"] <= LATEST_US:
        raise InvalidInput("column 'event_time' holds a time outside the years 1 to 9999")
    return micros.cast(TIMESTAMP)


def _headers(array: pa.Array) -> pa.Array:
    check_header_count(int(np.diff(array.offsets.to_numpy()).max(initial=0)), "column 'headers'")
    if array.items.null_count:
        raise InvalidInput("column 'headers' has a header without a value: leave it out, or give it empty bytes")
    headers = _cast(array, HEADERS, "headers")
    if (wrong := first_wrong_headers(headers)) is not None:
        raise InvalidInput(f"row {wrong[0]} of the request: {wrong[1]}")
    return headers


def _claims(refs: pa.Array, values: pa.Array) -> list[tuple[int, Claim]]:
    both = pc.and_(refs.is_valid(), values.is_valid())
    if pc.any(both).as_py():
        raise InvalidInput(
            f"row {pc.index(both, True).as_py()} of the request: a message has a value or a ref, not both"
        )
    rows = pc.indices_nonzero(refs.is_valid())
    check_ref_count(len(rows))
    claims = []
    for row, ref in zip(rows.to_pylist(), refs.take(rows).to_pylist(), strict=True):
        if ref["upload"] is None:
            raise InvalidInput(f"row {row} of the request: its ref names no upload")
        claims.append((row, Claim(ref["upload"], ref.get("size"), ref.get("etag"), ref.get("sha256"))))
    return claims


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__
