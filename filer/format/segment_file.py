"""Segment files: encoding rows as Parquet, and reading footers and rows back.

A file is complete in itself: its footer names its segment, its first offset, the number of its messages and its
writer, and says whether it is the seal.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from filer.errors import CorruptFile
from filer.format.requests import StoredRequest, requests_from_json, requests_to_json
from filer.format.schema import JSON_TYPE, log_schema

FORMAT_VERSION = 1
FOOTER_GUESS_BYTES = 64 * 1024
ROW_GROUP_BYTES = 8 * 1024 * 1024
PAGE_BYTES = 1024 * 1024
WHOLE_FILE_BYTES = 2 * ROW_GROUP_BYTES
"""A file of up to this size is read and decoded whole, a larger one by row groups."""
_ENCODINGS = {"_offset": "DELTA_BINARY_PACKED", "_timestamp": "DELTA_BINARY_PACKED"}
# Statistics of keys and values would cost more than they save: readers seek by offsets and times.
_STATISTICS = ["_offset", "_timestamp"]
_PREFIX = b"braidmq."


@dataclass(frozen=True, slots=True)
class Footer:
    """The facts in a file's footer. Times are microseconds since the epoch, 0 in an empty seal.

    `requests` are the requests in the file that came with a producer and a sequence. `windows`, in a seal, are the
    segment's producer windows at its end (`ProducerWindows.to_bytes`; empty if there are none).
    """

    segment: int
    base: int
    count: int
    writer: str
    first_timestamp_us: int
    last_timestamp_us: int
    refs: int = 0
    sealed: bool = False
    requests: tuple[StoredRequest, ...] = ()
    windows: bytes = b""

    @property
    def end(self) -> int:
        """The offset after the last message."""
        return self.base + self.count

    def to_metadata(self) -> dict[str, str]:
        """As the key-value metadata of a Parquet footer."""
        pairs = {
            "version": str(FORMAT_VERSION),
            "segment": str(self.segment),
            "base_offset": str(self.base),
            "count": str(self.count),
            "writer": self.writer,
            "first_timestamp": str(self.first_timestamp_us),
            "last_timestamp": str(self.last_timestamp_us),
            "refs": str(self.refs),
        }
        if self.sealed:
            pairs["sealed"] = "true"
        if self.requests:
            pairs["requests"] = requests_to_json(self.requests, self.base)
        if self.windows:
            pairs["windows"] = base64.b64encode(self.windows).decode()
        return {f"braidmq.{name}": value for name, value in pairs.items()}

    @classmethod
    def from_metadata(cls, metadata: dict[bytes, bytes] | None) -> "Footer":
        """The footer from that metadata; raises `CorruptFile` if a field is missing or the version is unknown."""
        pairs = {name: value.decode() for name, value in (metadata or {}).items() if name.startswith(_PREFIX)}
        try:
            if pairs[b"braidmq.version"] != str(FORMAT_VERSION):
                raise CorruptFile(f"segment file of format version {pairs[b'braidmq.version']}, not {FORMAT_VERSION}")
            segment, base = int(pairs[b"braidmq.segment"]), int(pairs[b"braidmq.base_offset"])
            requests = pairs.get(b"braidmq.requests")
            return cls(
                segment=segment,
                base=base,
                count=int(pairs[b"braidmq.count"]),
                writer=pairs[b"braidmq.writer"],
                first_timestamp_us=int(pairs[b"braidmq.first_timestamp"]),
                last_timestamp_us=int(pairs[b"braidmq.last_timestamp"]),
                refs=int(pairs[b"braidmq.refs"]),
                sealed=pairs.get(b"braidmq.sealed") == "true",
                requests=() if requests is None else requests_from_json(requests, segment, base),
                windows=base64.b64decode(pairs.get(b"braidmq.windows", ""), validate=True),
            )
        except (KeyError, ValueError) as error:
            raise CorruptFile(f"not a segment file: footer lacks a valid {error}") from error


def encode(table: pa.Table, footer: Footer) -> pa.Buffer:
    """The bytes of an owner's file of `table`, with that footer, in one row group."""
    sink = pa.BufferOutputStream()
    with parquet_writer(sink, table.schema, compression="lz4") as writer:
        if table.num_rows:
            writer.write_table(table, row_group_size=table.num_rows)
        writer.add_key_value_metadata(footer.to_metadata())
    return sink.getvalue()


def parquet_writer(
    sink: pa.NativeFile,
    schema: pa.Schema,
    *,
    compression: Literal["lz4", "zstd"],
    page_bytes: int = PAGE_BYTES,
    page_rows: int | None = None,
) -> pq.ParquetWriter:
    """A writer of a segment file, row group by row group; add the footer's metadata before closing it.

    A page ends with the row that brings it to `page_bytes` or to `page_rows` (None: Arrow's default).
    """
    return pq.ParquetWriter(
        sink,
        schema,
        compression=compression,
        use_dictionary=False,
        column_encoding=_ENCODINGS,
        write_statistics=_STATISTICS,
        data_page_size=page_bytes,
        max_rows_per_page=page_rows,
        store_schema=False,
    )


def mark_json(table: pa.Table) -> pa.Table:
    """The table with its string values marked as JSON."""
    position = table.schema.get_field_index("value")
    marked = pa.chunked_array(
        [pa.ExtensionArray.from_storage(JSON_TYPE, chunk) for chunk in table["value"].chunks],
        JSON_TYPE,
    )
    return table.set_column(position, "value", marked)


def read_footer(tail: bytes) -> Footer:
    """The footer from the last bytes of a file; raises `CorruptFile`."""
    return Footer.from_metadata(parquet_metadata(tail).metadata)


def parquet_metadata(tail: bytes) -> pq.FileMetaData:
    """Parquet's own metadata from the last bytes of a file; raises `CorruptFile`."""
    try:
        return pq.read_metadata(pa.BufferReader(tail))
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptFile(f"not a Parquet file: {error}") from error


def footer_size_bytes(tail: bytes) -> int:
    """The size of the footer at the end of the file; raises `CorruptFile`."""
    if len(tail) < 12 or tail[-4:] != b"PAR1":
        raise CorruptFile("not a Parquet file: it does not end in PAR1")
    return int.from_bytes(tail[-8:-4], "little") + 8


def decode(source: bytes | pa.NativeFile, *, row_groups: Sequence[int] | None = None) -> pa.Table:
    """The rows of a file, or of some of its row groups, in the columns of `log_schema`."""
    with pq.ParquetFile(pa.BufferReader(source) if isinstance(source, bytes) else source) as file:
        table = file.read() if row_groups is None else file.read_row_groups(list(row_groups))
    return unmark(table)


def unmark(table: pa.Table) -> pa.Table:
    """The table in the columns of `log_schema`: JSON values as strings, no metadata, declared nullability."""
    value = table["value"]
    kind = value.type
    if isinstance(kind, pa.BaseExtensionType):
        value = pa.chunked_array([chunk.storage for chunk in value.chunks], kind.storage_type)
        table = table.set_column(table.schema.get_field_index("value"), "value", value)
    names = (
        "string" if table.schema.field("key").type == pa.string() else "binary",
        "json" if isinstance(kind, pa.BaseExtensionType) else "string" if kind == pa.string() else "binary",
    )
    return pa.Table.from_arrays(table.columns, schema=log_schema(*names))


def count_refs(table: pa.Table) -> int:
    """The number of rows with a reference."""
    return int(table.num_rows - table["_ref"].null_count)


def time_bounds_us(table: pa.Table) -> tuple[int, int]:
    """The first and last `_timestamp` of a table in offset order; zeros if it is empty."""
    if not table.num_rows:
        return 0, 0
    stamps = table["_timestamp"].cast(pa.int64())
    return stamps[0].as_py(), stamps[-1].as_py()
