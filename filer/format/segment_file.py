"""Segment files: encoding rows as Parquet, and reading footers and rows back.

A file is complete in itself: its footer names its segment, its first offset, the number of its messages and its
writer, and says whether it is the seal.
"""

import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq

from filer.errors import CorruptFile
from filer.format import digests
from filer.format.compression import Compression, owner_compression
from filer.format.digests import FileDigests, check_body, check_footer, digests_from_metadata, footer_size_bytes
from filer.format.nulls import null_column
from filer.format.plain.few_messages import file_of_few
from filer.format.plain.file_of_texts import file_of_texts
from filer.format.plain.null_columns import columns_with_values
from filer.format.plain.plain_file import BEGIN, footer_around, is_plain, plain_file
from filer.format.plain.prefixed import Texts
from filer.format.requests import StoredRequest, owners_to_json, requests_from_json, requests_to_json
from filer.format.schema import TOPIC_FIELD, MessageSchema
from filer.format.sparse_file import SparseFile

FORMAT_VERSION = 1
FOOTER_GUESS_BYTES = 64 * 1024
ROW_GROUP_BYTES = 8 * 1024 * 1024
PAGE_BYTES = 1024 * 1024
_ROOM_FROM_BYTES = 2 * 1024 * 1024
"""With fewer bytes of values, a file is copied as it grows in less time than new memory takes."""
_TEXTS = ("key", "value")
_CHUNK_BYTES = 32 * 1024
WHOLE_FILE_BYTES = 2 * ROW_GROUP_BYTES
"""A file of up to this size is read and decoded whole, a larger one by row groups."""
_ENCODINGS = {"_offset": "DELTA_BINARY_PACKED", "_timestamp": "DELTA_BINARY_PACKED"}
# Statistics of keys and values would cost more than they save: readers seek by offsets and times.
_STATISTICS = ["_offset", "_timestamp"]
# A topic group has few members, whose names stand in each row.
_DICTIONARIES = [TOPIC_FIELD.name]
_PREFIX = b"braidmq."
DECODING_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError)
"""Errors that Arrow, and the lookup of columns, raise for a damaged file of version 0.1, which has no digests."""


@dataclass(frozen=True, slots=True)
class Footer:
    """The facts in a file's footer. Times are microseconds since the epoch, 0 in an empty seal.

    `requests` are the requests in the file that came with a producer and a sequence. `windows`, in a seal, are the
    segment's producer windows at its end (`ProducerWindows.to_bytes`; empty if there are none).

    `previous` is the footer's digest of the file before this one, empty if there is none or it is not known. A roll-up
    has the `previous` of the first file that it replaces, and as `last_original` the digest of the last one; that is
    None in all other files. `digests` are those that were read.
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
    previous: str = ""
    last_original: str | None = None
    digests: FileDigests | None = field(default=None, compare=False)

    @property
    def link(self) -> str:
        """What the next file of the segment names as `previous`; empty if it is not known."""
        if self.last_original is not None:
            return self.last_original
        return "" if self.digests is None else self.digests.footer

    @property
    def end(self) -> int:
        """The offset after the last message."""
        return self.base + self.count

    def check_place(self, segment: int, base: int) -> None:
        """Raises `CorruptFile` unless the file is the one of that segment which begins at that offset."""
        if (self.segment, self.base) != (segment, base):
            raise CorruptFile(f"it is another file: its footer names segment {self.segment} [{self.base}, {self.end})")

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
            if owners := owners_to_json(self.requests):
                pairs["owners"] = owners
        if self.windows:
            pairs["windows"] = base64.b64encode(self.windows).decode()
        if self.last_original is not None:
            pairs["last_original"] = self.last_original
        return {f"braidmq.{name}": value for name, value in pairs.items()}

    @classmethod
    def from_metadata(cls, metadata: dict[bytes, bytes] | None, checked: str | None) -> "Footer":
        """The footer from that metadata, for which `check_footer` gave `checked`.

        Raises `CorruptFile` if a field is missing or the version is unknown.
        """
        try:
            pairs = {name: value.decode() for name, value in (metadata or {}).items() if name.startswith(_PREFIX)}
            if pairs[b"braidmq.version"] != str(FORMAT_VERSION):
                raise CorruptFile(f"segment file of format version {pairs[b'braidmq.version']}, not {FORMAT_VERSION}")
            segment, base = int(pairs[b"braidmq.segment"]), int(pairs[b"braidmq.base_offset"])
            requests, owners = pairs.get(b"braidmq.requests"), pairs.get(b"braidmq.owners", "")
            return cls(
                segment=segment,
                base=base,
                count=int(pairs[b"braidmq.count"]),
                writer=pairs[b"braidmq.writer"],
                first_timestamp_us=int(pairs[b"braidmq.first_timestamp"]),
                last_timestamp_us=int(pairs[b"braidmq.last_timestamp"]),
                refs=int(pairs[b"braidmq.refs"]),
                sealed=pairs.get(b"braidmq.sealed") == "true",
                requests=() if requests is None else requests_from_json(requests, segment, base, owners),
                windows=base64.b64decode(pairs.get(b"braidmq.windows", ""), validate=True),
                previous=pairs.get(b"braidmq.previous", ""),
                last_original=pairs.get(b"braidmq.last_original"),
                digests=digests_from_metadata(pairs, checked),
            )
        except (KeyError, ValueError) as error:
            raise CorruptFile(f"not a segment file: footer lacks a valid {error}") from error


def encode(table: pa.Table, footer: Footer) -> pa.Buffer:
    """The bytes of an owner's file of `table`, with that footer, in one row group."""
    table = _in_few_chunks(table)
    compression = owner_compression(table)
    if is_plain(table):
        return _encode_plain(table, footer, compression)
    if table["value"].nbytes >= _ROOM_FROM_BYTES and not footer.windows:
        try:
            return _encode(table, footer, compression, _room_bytes(table, footer))
        except OSError:
            # It did not fit.
            return _encode(table, footer, compression, None)
    return _encode(table, footer, compression, None)


def encode_few(
    schema: MessageSchema,
    footer: Footer,
    stamps_us: Sequence[int],
    keys: Sequence[bytes] | None,
    values: Sequence[bytes],
) -> tuple[bytes, str]:
    """As `encode`, of plain messages that are few (`file_of_few`), of a topic of that schema; also the new link."""
    return file_of_few(_around(schema), footer.base, stamps_us, keys, values, footer.to_metadata(), footer.previous)


def encode_texts(
    schema: MessageSchema,
    footer: Footer,
    stamps_us: Sequence[tuple[int, int]],
    keys: Sequence[Texts] | None,
    values: Sequence[Texts],
) -> tuple[pa.Buffer, str]:
    """As `encode`, of plain messages that are given as Parquet has them (`file_of_texts`); also the new link."""
    metadata = footer.to_metadata()
    return file_of_texts(_around(schema), footer.base, stamps_us, keys, values, metadata, footer.previous, PAGE_BYTES)


@cache
def _around(schema: MessageSchema) -> tuple[bytes, bytes]:
    return footer_around(schema.in_file(schema.no_messages).schema)


def _in_few_chunks(table: pa.Table) -> pa.Table:
    """The table with small chunks joined: one by one they cost more."""
    for number, name in enumerate(table.schema.names):
        column = table.column(number)
        if column.num_chunks > 1 and name in _TEXTS and column.nbytes < _CHUNK_BYTES * column.num_chunks:
            table = table.set_column(number, table.field(number), column.combine_chunks())
    return table


def _encode_plain(table: pa.Table, footer: Footer, compression: Compression) -> pa.Buffer:
    metadata = footer.to_metadata() | digests.place_holders(footer.previous, row_groups=1)
    data, end = plain_file(table, metadata, compression, PAGE_BYTES)
    digests.fill_in(memoryview(data), [len(BEGIN), end])
    return data


def _room_bytes(table: pa.Table, footer: Footer) -> int:
    """About the most that a file of these rows can take: data that is plain in memory is plain in the file."""
    rows_bytes, count = int(table.nbytes), int(table.num_rows)
    # LZ4, pages and their headers add little; the levels of nested columns take bits a row.
    return rows_bytes + rows_bytes // 50 + count + 256 * len(footer.requests) + 64 * 1024


def _encode(table: pa.Table, footer: Footer, compression: Compression, room_bytes: int | None) -> pa.Buffer:
    encoder = SegmentFileEncoder(table.schema, compression=compression, room_bytes=room_bytes)
    if table.num_rows:
        encoder.add_row_group(table)
    return encoder.finish(footer)


class SegmentFileEncoder:
    """Encodes a segment file in memory, row group by row group.

    A page ends with the row that brings it to `page_bytes` or to `page_rows` (None: Arrow's default). Without `checks`,
    the file has neither digests nor page checksums, as in version 0.1. With `room_bytes` it allocates the memory for
    the whole file at once, and does not copy the file each time that it has grown. Then `add_row_group` and `finish`
    raise `OSError` if the file is larger.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        compression: Compression,
        page_bytes: int = PAGE_BYTES,
        page_rows: int | None = None,
        checks: bool = True,
        room_bytes: int | None = None,
    ) -> None:
        self._checks = checks
        self._room = None if room_bytes is None else pa.allocate_buffer(room_bytes)
        self._sink = pa.BufferOutputStream() if self._room is None else pa.FixedSizeBufferWriter(self._room)
        grouped = TOPIC_FIELD.name in schema.names
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression=compression,
            use_dictionary=_DICTIONARIES if grouped else False,
            column_encoding=_ENCODINGS,
            write_statistics=[*_STATISTICS, *_DICTIONARIES] if grouped else _STATISTICS,
            data_page_size=page_bytes,
            max_rows_per_page=page_rows,
            store_schema=False,
            # For readers of bare files. We check the digests of the footer.
            write_page_checksum=checks,
        )
        self._ends = [self._sink.tell()]

    def add_row_group(self, table: pa.Table) -> None:
        """Add messages as one row group, at least one message."""
        with self._all_or_nothing():
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._ends.append(self._sink.tell())

    def finish(self, footer: Footer) -> pa.Buffer:
        """The whole file, with that footer."""
        metadata = footer.to_metadata()
        if self._checks:
            metadata |= digests.place_holders(footer.previous, row_groups=len(self._ends) - 1)
        with self._all_or_nothing():
            self._writer.add_key_value_metadata(metadata)
            self._writer.close()
        data, size_bytes = self._written()
        if self._checks:
            digests.fill_in(memoryview(data)[:size_bytes], self._ends)
        return data if data.size == size_bytes else data.slice(0, size_bytes)

    def _written(self) -> tuple[pa.Buffer, int]:
        """The buffer that has the file, and how many bytes of it the file takes."""
        if self._room is not None:
            return self._room, self._sink.tell()
        data = self._sink.getvalue()
        return data, data.size

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            # Else Arrow's writer would try to write a footer when it is collected.
            self._writer.is_open = False
            raise


@dataclass(frozen=True, slots=True)
class FileEnd:
    """The end of a file of `size_bytes`: at least its whole footer, which has been checked and parsed."""

    tail: bytes
    size_bytes: int
    footer: Footer
    metadata: pq.FileMetaData

    @property
    def body_bytes(self) -> int:
        """The size of everything before the footer."""
        return self.size_bytes - footer_size_bytes(self.tail)

    def row_group_range(self, number: int) -> tuple[int, int]:
        """As the function of that name."""
        return row_group_range(self.metadata, number)

    def check_row_group(self, number: int, data: bytes) -> None:
        """Raises `CorruptFile` if the bytes of a row group are not what the footer says."""
        if self.footer.digests is not None:
            digests.check_row_group(data, self.footer.digests, number)

    def open_row_group(self, number: int, data: bytes) -> pa.NativeFile:
        """A file of which only this row group, with these bytes, can be read; raises `CorruptFile` as the check."""
        self.check_row_group(number, data)
        start, _ = self.row_group_range(number)
        return pa.PythonFile(
            SparseFile(self.size_bytes, [(start, data), (self.size_bytes - len(self.tail), self.tail)]), "r"
        )


def read_end(tail: bytes, size_bytes: int) -> FileEnd:
    """The end of a file of that size, from its last bytes; raises `CorruptFile`."""
    metadata, checked = parse_footer(tail)
    return FileEnd(tail, size_bytes, Footer.from_metadata(metadata.metadata, checked), metadata)


def parse_footer(tail: bytes) -> tuple[pq.FileMetaData, str | None]:
    """Parquet's own metadata from the last bytes of a file, and what `check_footer` gives; raises `CorruptFile`."""
    file, checked = _open_checked(tail)
    return file.metadata, checked


def _open_checked(tail: bytes) -> tuple[pq.ParquetFile, str | None]:
    """A Parquet file of which these are the last bytes, and what `check_footer` gives; raises `CorruptFile`."""
    footer_bytes = footer_size_bytes(tail)
    if footer_bytes > len(tail):
        raise CorruptFile(f"not a whole Parquet file: it claims a footer of {footer_bytes} bytes")
    checked = check_footer(tail[-footer_bytes:])
    try:
        return pq.ParquetFile(pa.BufferReader(tail)), checked
    except DECODING_ERRORS as error:
        raise CorruptFile(f"not a Parquet file: {error}") from error


def row_group_range(metadata: pq.FileMetaData, number: int) -> tuple[int, int]:
    """The bytes `[start, stop)` of a row group, from its first page to the end of its last one."""
    group = metadata.row_group(number)
    columns = [group.column(i) for i in range(group.num_columns)]
    starts = [
        min(c.data_page_offset, c.dictionary_page_offset if c.has_dictionary_page else c.data_page_offset)
        for c in columns
    ]
    return min(starts), max(start + c.total_compressed_size for start, c in zip(starts, columns, strict=True))


def read_footer(tail: bytes) -> Footer:
    """The footer from the last bytes of a file; raises `CorruptFile`."""
    return read_end(tail, len(tail)).footer


def read_whole(data: bytes, *, place: tuple[int, int] | None = None) -> FileEnd:
    """The end of the file of these bytes, all of which are checked; raises `CorruptFile`.

    With `place`, the file must be that of this segment and of this first offset.
    """
    return CheckedFile(data, place=place).end


class CheckedFile:
    """A whole file, of these bytes, all of which are checked. Raises `CorruptFile` as `read_whole`, when it is made."""

    def __init__(self, data: bytes, *, place: tuple[int, int] | None = None) -> None:
        self._file, checked = _open_checked(data)
        metadata = self._file.metadata
        self.end = FileEnd(data, len(data), Footer.from_metadata(metadata.metadata, checked), metadata)
        if place is not None:
            self.end.footer.check_place(*place)
        if self.end.footer.digests is not None:
            check_body(data, self.end.footer.digests)

    def rows(self) -> pa.Table:
        """Its rows, in the columns of `MessageSchema.log`; raises `CorruptFile`."""
        metadata = self.end.metadata
        try:
            # If one of several row groups has values in a column, the column is read from all.
            groups = range(metadata.num_row_groups)
            names = [name for group in groups for name in columns_with_values(metadata, group, self.end.tail, 0)]
            # Nearly all bytes are in one column. Threads for the others would cost more than they save.
            return unmark(self._file.read(columns=names or None, use_threads=False))
        except DECODING_ERRORS as error:
            raise undecodable(error) from error


def decode(data: bytes, *, place: tuple[int, int] | None = None) -> pa.Table:
    """The rows of a file, in the columns of `MessageSchema.log`; raises `CorruptFile` as `read_whole`."""
    return CheckedFile(data, place=place).rows()


def decode_row_group(end: FileEnd, number: int, data: bytes) -> pa.Table:
    """The rows of one row group, given its bytes, in the columns of `MessageSchema.log`; raises `CorruptFile`."""
    try:
        start, _ = end.row_group_range(number)
        return unmark(decode_columns(end, number, data, columns_with_values(end.metadata, number, data, start)))
    except DECODING_ERRORS as error:
        raise undecodable(error) from error


def decode_columns(end: FileEnd, number: int, data: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Some columns (None: all) of one row group, given its bytes, as they are in the file; raises `CorruptFile`."""
    try:
        with pq.ParquetFile(end.open_row_group(number, data), metadata=end.metadata) as file:
            return file.read_row_group(number, columns=columns, use_threads=False)
    except DECODING_ERRORS as error:
        raise undecodable(error) from error


@contextmanager
def of_file(key: str) -> Iterator[None]:
    """Makes a `CorruptFile` that is raised within name the file, by its key on the store."""
    try:
        yield
    except CorruptFile as error:
        raise CorruptFile(f"{key}: {error}", key=key) from error


def undecodable(error: Exception) -> CorruptFile:
    """The error for a file that Arrow cannot decode."""
    return CorruptFile(f"it cannot be decoded: {error}")


def unmark(table: pa.Table) -> pa.Table:
    """The table in the columns of `MessageSchema.log`: JSON values as strings, no metadata, declared nullability.

    Columns that it lacks have no value.
    """
    value = table["value"]
    kind = value.type
    if isinstance(kind, pa.BaseExtensionType):
        value = pa.chunked_array([chunk.storage for chunk in value.chunks], kind.storage_type)
        table = table.set_column(table.schema.get_field_index("value"), "value", value)
    schema = MessageSchema.of(
        "string" if table.schema.field("key").type == pa.string() else "binary",
        "string" if value.type == pa.string() else "binary",
        grouped=TOPIC_FIELD.name in table.schema.names,
    ).log
    if table.num_columns == len(schema):
        return pa.Table.from_arrays(table.columns, schema=schema)
    there, rows = set(table.schema.names), table.num_rows
    columns = [table[field.name] if field.name in there else null_column(rows, field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def count_refs(table: pa.Table) -> int:
    """The number of rows with a reference."""
    return int(table.num_rows - table["_ref"].null_count)


def time_bounds_us(table: pa.Table) -> tuple[int, int]:
    """The first and last `_timestamp` of a table in offset order; zeros if it is empty."""
    if not table.num_rows:
        return 0, 0
    stamps = table["_timestamp"].cast(pa.int64())
    return stamps[0].as_py(), stamps[-1].as_py()
