"""Checks that a file of a bulk load is as its client claims. Runs in a separate process, since the file is not trusted.

The check decodes the footer, offsets, times, keys, headers, event times and, if they are text, values
(`filer/bulk_load/row_group_lots.py`). So a broker can read a checked file like one that it has written. The size of
everything is bounded before it is decoded.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from filer.bulk_load.column_statistics import check_column_statistics
from filer.bulk_load.load_digests import check_load_digests
from filer.bulk_load.load_rows import first_stray, first_unshowable, lacks_a_value, micros_of
from filer.bulk_load.load_segment import LoadSegment, writer_of
from filer.bulk_load.row_group_lots import LoadedFile, Read, decoded_lots
from filer.errors import CorruptFile, LoadRefused
from filer.format.digests import NAMES
from filer.format.header_columns import first_wrong_headers
from filer.format.schema import MessageSchema
from filer.format.segment_file import WHOLE_FILE_BYTES, Footer, encode, parse_footer

MIB = 1024 * 1024
MOST_FOOTER_BYTES = 4 * MIB
MOST_ROW_GROUPS = 1024
MOST_ROW_GROUP_BYTES = 64 * MIB
"""The largest row group, before and after compression: a reader holds at least one in memory."""
MOST_INFLATED_BYTES = 256 * MIB
"""The most bytes before compression of a file that readers decode whole."""
MOST_ROW_GROUP_ROWS = 1024 * 1024
_COMPRESSIONS = ("UNCOMPRESSED", "SNAPPY", "LZ4", "LZ4_RAW", "ZSTD", "GZIP")
_ENCODINGS = {"PLAIN", "RLE", "DELTA_BINARY_PACKED"}
_GUESS_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class FileClaim:
    """The claim about a file: it has `size_bytes` and holds `count` messages of a segment from `base_offset` on."""

    segment: int
    base_offset: int
    count: int
    size_bytes: int


def check_load_file(read: Read, claim: FileClaim, segment: LoadSegment) -> None:
    """Raises `LoadRefused`, which says what is wrong with the file."""
    try:
        tail = _tail(read, claim.size_bytes)
        metadata, footer_digest = parse_footer(tail)
        _check_claims(metadata, claim, segment)
        _check_inflated(metadata, claim.size_bytes)
        for number in range(metadata.num_row_groups):
            _check_group(metadata.row_group(number), claim.size_bytes - len(tail), claim.count)
        check_load_digests(read, metadata, footer_digest, body_bytes=claim.size_bytes - len(tail))
        file = LoadedFile(read, metadata, tail, claim.size_bytes, claim.base_offset, segment.timestamp_us)
        reached = claim.base_offset
        for table in decoded_lots(file, with_values=not segment.schema.takes_all_values):
            _check_rows(table, reached, segment)
            reached += table.num_rows
        check_column_statistics(metadata, claim.base_offset, segment.timestamp_us)
    except (pa.ArrowMemoryError, MemoryError) as error:
        raise LoadRefused("it takes too much memory to open") from error
    except (CorruptFile, pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise LoadRefused(f"it cannot be read: {str(error).partition(chr(10))[0][:300]}") from error


def _tail(read: Read, size_bytes: int) -> bytes:
    """The footer of a file, to the file's end."""
    head, tail = read([(0, min(4, size_bytes)), (max(size_bytes - _GUESS_BYTES, 0), size_bytes)])
    if size_bytes < 12 or tail[-4:] not in (b"PAR1", b"PARE"):
        raise LoadRefused("it is not a whole Parquet file: it does not end in PAR1")
    if tail[-4:] == b"PARE" or head == b"PARE":
        raise LoadRefused("it is encrypted")
    if head != b"PAR1":
        raise LoadRefused("it is not a Parquet file: it does not begin with PAR1")
    footer_bytes = int.from_bytes(tail[-8:-4], "little") + 8
    if footer_bytes > min(MOST_FOOTER_BYTES, size_bytes):
        raise LoadRefused(
            f"it claims a footer of {footer_bytes} bytes: at most {MOST_FOOTER_BYTES}, and no more than the file has"
        )
    if footer_bytes > len(tail):
        (tail,) = read([(size_bytes - footer_bytes, size_bytes)])
    return tail[-footer_bytes:]


def _check_claims(metadata: pq.FileMetaData, claim: FileClaim, segment: LoadSegment) -> None:
    """Compare the footer with the claim about the file."""
    if metadata.num_row_groups > MOST_ROW_GROUPS:
        raise LoadRefused(f"it has {metadata.num_row_groups} row groups: at most {MOST_ROW_GROUPS}")
    expected_schema = _parquet_schema(segment.schema)
    # The first comparison is of the types of leaf columns, the second of all names.
    if not metadata.schema.equals(expected_schema) or _paths(metadata.schema) != _paths(expected_schema):
        raise LoadRefused(
            "its columns are not exactly those of a file of this topic, whose keys are "
            f"{segment.schema.key_type} and whose values are {segment.schema.value_type}: {_columns(metadata)}"
        )
    pairs: dict[bytes, bytes] = metadata.metadata or {}
    expected = Footer(
        claim.segment, claim.base_offset, claim.count, writer_of(segment.load), segment.timestamp_us,
        segment.timestamp_us,
    ).to_metadata()  # fmt: skip
    for name, value in expected.items():
        if (said := pairs.get(name.encode())) != value.encode():
            shown = "nothing" if said is None else repr(said[:80].decode(errors="replace"))
            raise LoadRefused(f"its footer has {shown} for {name}, and {value!r} is expected")
    if strange := sorted(set(pairs) - {name.encode() for name in (*expected, *NAMES)}):
        raise LoadRefused(f"its footer has {strange[0][:80]!r}, which files of a bulk load do not have")
    if metadata.num_rows != claim.count or claim.count < 1:
        raise LoadRefused(f"it has {metadata.num_rows} messages, and {claim.count} were announced (1 or more)")


def _columns(metadata: pq.FileMetaData) -> str:
    schema = metadata.schema
    columns = (schema.column(index) for index in range(min(len(schema), 20)))
    return ", ".join(f"{each.path[:40]} {each.physical_type}" for each in columns)[:600]


def _paths(schema: pq.ParquetSchema) -> list[str]:
    return [schema.column(index).path for index in range(len(schema))]


@cache
def _parquet_schema(schema: MessageSchema) -> pq.ParquetSchema:
    data = encode(schema.in_file(schema.no_messages), Footer(0, 0, 0, "", 0, 0))
    return pq.read_metadata(pa.BufferReader(data)).schema


def _check_inflated(metadata: pq.FileMetaData, size_bytes: int) -> None:
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    inflated = sum(_inflated_bytes(group) for group in groups)
    if size_bytes <= WHOLE_FILE_BYTES and inflated > MOST_INFLATED_BYTES:
        raise LoadRefused(
            f"it claims {inflated} bytes before compression: at most {MOST_INFLATED_BYTES}; write more files"
        )


def _inflated_bytes(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(index).total_uncompressed_size for index in range(group.num_columns))


def _check_group(group: pq.RowGroupMetaData, end: int, count: int) -> None:
    """Check the claims of a row group before any of it is read. `end` is where the footer begins."""
    if not 0 < group.num_rows <= min(MOST_ROW_GROUP_ROWS, count):
        raise LoadRefused(f"a row group has {group.num_rows} messages: from 1 to {MOST_ROW_GROUP_ROWS}")
    columns = [group.column(index) for index in range(group.num_columns)]
    uncompressed = _inflated_bytes(group)
    if not 0 < uncompressed <= MOST_ROW_GROUP_BYTES or group.total_byte_size > MOST_ROW_GROUP_BYTES:
        claimed = max(uncompressed, group.total_byte_size)
        raise LoadRefused(f"a row group claims {claimed} bytes: at most {MOST_ROW_GROUP_BYTES}")
    reached = 4
    for column in columns:
        _check_column(column, group.num_rows)
        if column.data_page_offset < reached or column.total_compressed_size < 0:
            raise LoadRefused(f"column {column.path_in_schema} does not lie after the one before it")
        reached = column.data_page_offset + column.total_compressed_size
    if reached > end or reached - columns[0].data_page_offset > MOST_ROW_GROUP_BYTES:
        raise LoadRefused("a row group claims bytes that the file does not have, or too many")


def _check_column(column: pq.ColumnChunkMetaData, rows: int) -> None:
    name = column.path_in_schema
    if column.file_path:
        raise LoadRefused(f"column {name} is in another file, {column.file_path[:80]!r}")
    # Headers repeat. Decoding them shows how many there are.
    if column.num_values != rows and not name.startswith("headers."):
        raise LoadRefused(f"column {name} has {column.num_values} values for {rows} messages")
    if column.has_dictionary_page or not set(column.encodings) <= _ENCODINGS:
        raise LoadRefused(f"column {name} is encoded as {', '.join(column.encodings)}: write it plain")
    if column.compression not in _COMPRESSIONS:
        raise LoadRefused(f"column {name} is compressed with {column.compression}")


def _check_rows(table: pa.Table, base: int, segment: LoadSegment) -> None:
    """Check the columns that had to be decoded."""
    table.validate(full=True)
    _check_keys(table["key"], base, segment)
    if "_offset" in table.column_names:
        _check_offsets(table["_offset"], base)
    if "_timestamp" in table.column_names:
        _check_times(table["_timestamp"], segment.timestamp_us)
    if "_ref" in table.column_names and table["_ref"].null_count < table.num_rows:
        raise LoadRefused("it holds references to uploads, which a bulk load cannot have")
    if "headers" in table.column_names:
        _check_headers(table["headers"], base)
    if "event_time" in table.column_names:
        _check_event_times(table["event_time"], base)
    if not segment.schema.takes_all_values:
        _check_values(table["value"], base, segment.schema)


def _check_offsets(column: "pa.ChunkedArray[Any]", base: int) -> None:
    offsets = column.to_numpy()
    expected = np.arange(base, base + len(offsets), dtype=np.int64)
    if not np.array_equal(offsets, expected):
        row = int((offsets != expected).argmax())
        raise LoadRefused(f"its offsets are not consecutive: {offsets[row]} stands where {expected[row]} is expected")


def _check_times(times: "pa.ChunkedArray[Any]", timestamp_us: int) -> None:
    if not all((micros_of(chunk) == timestamp_us).all() for chunk in times.chunks):
        raise LoadRefused("not all its messages have the time of the bulk load as _timestamp")


def _check_keys(keys: "pa.ChunkedArray[Any]", base: int, segment: LoadSegment) -> None:
    for chunk in keys.chunks:
        if (stray := first_stray(chunk, segment)) is not None:
            row, slot = stray
            raise LoadRefused(
                f"the key of offset {base + row} has slot {slot}, and segment {segment.segment} has the slots "
                f"[{segment.start_slot}, {segment.stop_slot})"
            )
        base += len(chunk)


def _check_headers(headers: "pa.ChunkedArray[Any]", base: int) -> None:
    if any(map(lacks_a_value, headers.chunks)):
        raise LoadRefused("it holds a header without a value")
    for chunk in headers.chunks:
        if (wrong := first_wrong_headers(chunk)) is not None:
            raise LoadRefused(f"the message of offset {base + wrong[0]}: {wrong[1]}")
        base += len(chunk)


def _check_event_times(times: "pa.ChunkedArray[Any]", base: int) -> None:
    for chunk in times.chunks:
        if (row := first_unshowable(chunk)) is not None:
            raise LoadRefused(f"the event_time of offset {base + row} lies outside the years 1 to 9999")
        base += len(chunk)


def _check_values(values: "pa.ChunkedArray[Any]", base: int, schema: MessageSchema) -> None:
    for chunk in values.chunks:
        storage = chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk
        if (bad := schema.first_wrong(storage)) is not None:
            row, reason = bad
            raise LoadRefused(f"the value of offset {base + row} is {reason}")
        base += len(storage)
