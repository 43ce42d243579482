"""Writes the segment files of a bulk load from Arrow, for a broker to adopt (docs/design.md §10a).

A file depends only on its bulk load, its segment, its rows and (by the chain of digests) the rows before them. It
contains no clock time and nothing random, and where it ends does not depend on how the rows were batched. So a task
that runs again writes the same bytes under the same names, and can recognise a file which exists already as its own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filer.bulk_load.load_rows import first_stray, first_unshowable, lacks_a_value
from filer.bulk_load.load_segment import LoadSegment, writer_of
from filer.errors import InvalidInput
from filer.format.digests import stated_footer_digest
from filer.format.header_columns import first_wrong_headers
from filer.format.schema import TIMESTAMP, MessageSchema
from filer.format.segment_file import ROW_GROUP_BYTES, Footer, SegmentFileEncoder
from filer.format.slot_columns import slots_of
from filer.keys import FileName
from filer.nearest import unknown_name

MIB = 1024 * 1024
FILE_BYTES = 64 * MIB
"""The default size of a file before compression, approximately."""
LARGEST_ROW_BYTES = 32 * MIB
"""The largest message. A larger payload must be uploaded, and the message refers to it."""
COLUMNS = ("key", "value", "event_time", "headers")
_ROWS_AT_ONCE = 65_536
_ROW_OVERHEAD_BYTES = 32


@dataclass(frozen=True, slots=True)
class LoadFile:
    """A file of a bulk load: the messages `[base_offset, base_offset + count)` of its segment."""

    segment: int
    base_offset: int
    count: int
    data: pa.Buffer

    @property
    def link(self) -> str:
        """The digest of its footer, which the next file names as `previous`."""
        return stated_footer_digest(memoryview(self.data))

    @property
    def name(self) -> str:
        """The last part of its key, after the segment's `prefix`."""
        return str(FileName(self.base_offset))


def load_files(
    batches: Iterable[pa.Table | pa.RecordBatch], segment: LoadSegment, *, file_bytes: int = FILE_BYTES
) -> Iterator[LoadFile]:
    """The files of one segment of a bulk load, in order, from its messages in order. Without messages, no files.

    Batches have the columns `key`, `value`, `event_time` and `headers`, as for a publish; only `value` is required. A
    file ends with the message that brings it to `file_bytes`, and at most two files are in memory. Raises
    `InvalidInput` for messages that the topic does not accept, and for a key with a slot outside the segment.
    """
    writer = LoadWriter(segment, file_bytes=file_bytes)
    for batch in batches:
        yield from writer.write(batch)
    yield from writer.finish()


class LoadWriter:
    """As `load_files`, for callers that have the messages one batch after another."""

    def __init__(self, segment: LoadSegment, *, file_bytes: int = FILE_BYTES) -> None:
        self._segment, self._file_bytes = segment, file_bytes
        self._tables: list[pa.Table] = []
        self._held_bytes = self._base = self._rows_before = 0
        self._previous = ""

    def write(self, batch: pa.Table | pa.RecordBatch) -> Iterator[LoadFile]:
        """Add messages; yields the files that they complete. Exhaust the iterator before the next call."""
        for rows in _pieces(batch, self._segment):
            sizes = _row_bytes(rows)
            _check_rows(rows, sizes, self._segment, self._rows_before)
            self._rows_before += rows.num_rows
            begin = 0
            for end in _cuts(sizes, self._file_bytes, self._held_bytes):
                self._tables.append(rows.slice(begin, end - begin))
                yield self._file()
                begin = end
            if begin < rows.num_rows:
                self._tables.append(rows.slice(begin))
                self._held_bytes += int(sizes[begin:].sum())

    def finish(self) -> Iterator[LoadFile]:
        """The last file, if messages are left."""
        if self._tables:
            yield self._file()

    def _file(self) -> LoadFile:
        file = encode_load_file(pa.concat_tables(self._tables), self._segment, self._base, previous=self._previous)
        self._base += file.count
        self._previous = file.link
        self._tables.clear()
        self._held_bytes = 0
        return file


def encode_load_file(rows: pa.Table, segment: LoadSegment, base_offset: int, *, previous: str = "") -> LoadFile:
    """Encode these messages (columns of `MessageSchema.rows`) as the file that begins at that offset of the segment.

    `previous` is the link of the file before it.
    """
    count, time_us = rows.num_rows, segment.timestamp_us
    # One chunk per column, so that the pages do not depend on how the rows were batched.
    rows = rows.combine_chunks()
    table = _logged(rows, segment, base_offset)
    footer = Footer(segment.segment, base_offset, count, writer_of(segment.load), time_us, time_us, previous=previous)
    cuts = [*_cuts(_row_bytes(rows), ROW_GROUP_BYTES, 0), count]
    # Each column of a row group is one page, so that the check of the file reads few page headers.
    page_bytes = ROW_GROUP_BYTES + LARGEST_ROW_BYTES
    encoder = SegmentFileEncoder(
        table.schema, compression="zstd", page_bytes=page_bytes, page_rows=count, checks=segment.digests
    )
    begin = 0
    for end in cuts:
        if end > begin:
            encoder.add_row_group(table.slice(begin, end - begin))
        begin = end
    return LoadFile(segment.segment, base_offset, count, encoder.finish(footer))


def as_rows(batch: pa.Table | pa.RecordBatch, schema: MessageSchema) -> pa.Table:
    """The messages with the columns of `MessageSchema.rows`. Missing columns become null.

    Raises `InvalidInput` for an unknown column, and for a type or a value that cannot be stored.
    """
    for name in batch.schema.names:
        if name not in COLUMNS:
            raise InvalidInput(unknown_name("column", name, COLUMNS))
    if "value" not in batch.schema.names or len(set(batch.schema.names)) < len(batch.schema.names):
        raise InvalidInput(
            f"the columns are {', '.join(batch.schema.names)}: 'value' is required, and each may appear only once"
        )
    columns = [
        _cast(batch[field.name], field)
        if field.name in batch.schema.names
        else pa.chunked_array([pa.nulls(batch.num_rows, field.type)])
        for field in schema.rows
    ]
    return pa.Table.from_arrays(columns, schema=schema.rows)


def slots_of_rows(rows: pa.Table, first_row: int) -> npt.NDArray[np.uint16]:
    """The slot of each message. Messages without a key are spread over all slots by their row number."""
    keys = _one_array(rows["key"])
    slots = slots_of(keys, null_slot=0)
    if keys.null_count:
        keyless = np.flatnonzero(np.asarray(keys.is_null()))
        slots[keyless] = (keyless + first_row) * 40_503 & 0xFFFF  # 2^16 / golden ratio
    return slots


def _pieces(batch: pa.Table | pa.RecordBatch, segment: LoadSegment) -> Iterator[pa.Table]:
    for first in range(0, batch.num_rows, _ROWS_AT_ONCE):
        yield as_rows(batch.slice(first, _ROWS_AT_ONCE), segment.schema).combine_chunks()


def _logged(rows: pa.Table, segment: LoadSegment, base: int) -> pa.Table:
    count = rows.num_rows
    offsets = pa.array(np.arange(base, base + count, dtype=np.int64))
    times = pa.array(np.full(count, segment.timestamp_us, np.int64)).cast(TIMESTAMP)
    return segment.schema.in_file(pa.Table.from_arrays([offsets, times, *rows.columns], schema=segment.schema.log))


def _cast(column: "pa.Array | pa.ChunkedArray[Any]", field: pa.Field) -> "pa.ChunkedArray[Any]":
    try:
        if field.name == "event_time" and pa.types.is_timestamp(column.type):
            # Times without a zone count as UTC. Nanoseconds are cut off.
            column = column.cast(pa.timestamp("us", column.type.tz), safe=column.type.unit != "ns")
        cast = column if column.type == field.type else column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        reason = str(error).partition("\n")[0][:300]
        raise InvalidInput(f"column {field.name!r} cannot be stored as {field.type}: {reason}") from error
    return cast if isinstance(cast, pa.ChunkedArray) else pa.chunked_array([cast])


def _cuts(sizes: npt.NDArray[np.int64], limit: int, held: int) -> list[int]:
    """The numbers of rows after which a file has reached the limit. `held` bytes are in the file before these rows."""
    ends = np.cumsum(sizes)
    cuts: list[int] = []
    reached = -held
    while (row := int(np.searchsorted(ends, reached + limit))) < len(ends):
        cuts.append(row + 1)
        reached = int(ends[row])
    return cuts


def _row_bytes(rows: pa.Table) -> npt.NDArray[np.int64]:
    """The approximate size of each message. It depends on the message only, not on how the rows were batched."""
    sizes = np.full(rows.num_rows, _ROW_OVERHEAD_BYTES, np.int64)
    for name in ("key", "value"):
        sizes += _lengths(_one_array(rows[name]))
    headers = _one_array(rows["headers"])
    if headers.null_count < len(headers):
        entries = _ROW_OVERHEAD_BYTES + _lengths(headers.keys) + _lengths(headers.items)
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(entries)])
        offsets = np.asarray(headers.offsets)
        sizes += before[offsets[1:]] - before[offsets[:-1]]
    return sizes


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(pc.binary_length(array), 0), np.int64)


def _one_array(column: "pa.ChunkedArray[Any]") -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([*column.chunks, pa.array([], column.type)])


def _check_rows(rows: pa.Table, sizes: npt.NDArray[np.int64], segment: LoadSegment, first: int) -> None:
    """Raises `InvalidInput` with the first message that the segment refuses, counted from `first`."""
    if (stray := first_stray(_one_array(rows["key"]), segment)) is not None:
        row, slot = stray
        raise InvalidInput(
            f"message {first + row}: its key {rows['key'][row].as_py()!r:.80} has slot {slot}, and segment "
            f"{segment.segment} has the slots [{segment.start_slot}, {segment.stop_slot})"
        )
    if int(sizes.max(initial=0)) > LARGEST_ROW_BYTES:
        row = int(sizes.argmax())
        raise InvalidInput(
            f"message {first + row} has {sizes[row]} bytes: upload a payload of more than {LARGEST_ROW_BYTES}"
        )
    if (late := first_unshowable(_one_array(rows["event_time"]))) is not None:
        raise InvalidInput(f"message {first + late}: its event_time lies outside the years 1 to 9999")
    headers = _one_array(rows["headers"])
    if lacks_a_value(headers):
        raise InvalidInput("column 'headers' holds a header without a value: leave it out, or give it empty bytes")
    if (wrong := first_wrong_headers(headers)) is not None:
        raise InvalidInput(f"message {first + wrong[0]}: {wrong[1]}")
    if (bad := segment.schema.first_wrong(_one_array(rows["value"]))) is not None:
        row, reason = bad
        raise InvalidInput(f"message {first + row}: the topic's values must be JSON, but this one is {reason}")
