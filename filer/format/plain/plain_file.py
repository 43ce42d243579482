"""Segment files of plain messages: in the bytes that Arrow would write, in half of its time.

A message is plain if it has neither headers nor a reference, and is not of a topic group. It has a value, and either
all messages of its file have a key or none has. The same holds for event times. Most messages are plain.
"""

import itertools
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from filer.format.compression import Compression
from filer.format.plain.delta_packed import delta_packed
from filer.format.plain.pages import (
    BYTE_ARRAY,
    DELTA_BINARY_PACKED,
    INT64,
    LZ4_RAW,
    NO_CODEC,
    PLAIN,
    Column,
    Leaf,
    Pages,
    Part,
    levels,
    null_column,
    number_statistics,
)
from filer.format.plain.prefixed import LENGTH_BYTES, Texts
from filer.format.plain.thrift import END, STRUCT, items, text, zigzag
from filer.format.schema import TOPIC_FIELD

BEGIN = b"PAR1"
PAGE_ROWS = 20_000
"""Arrow ends a page there."""
_BATCH_ROWS = 1024
"""After so many rows of a chunk, Arrow looks whether the page is full."""
OFFSET, TIMESTAMP = (Leaf((name,), INT64, most_defined=0) for name in ("_offset", "_timestamp"))
KEY, VALUE = (Leaf((name,), BYTE_ARRAY) for name in ("key", "value"))
EVENT_TIME = Leaf(("event_time",), INT64)
NEVER_THERE = (
    Leaf(("headers", "key_value", "key"), BYTE_ARRAY, most_defined=2, most_repeated=1),
    Leaf(("headers", "key_value", "value"), BYTE_ARRAY, most_defined=3, most_repeated=1),
    Leaf(("_ref", "uri"), BYTE_ARRAY, most_defined=2),
    Leaf(("_ref", "size"), INT64, most_defined=2),
    Leaf(("_ref", "etag"), BYTE_ARRAY, most_defined=2),
    Leaf(("_ref", "sha256"), BYTE_ARRAY, most_defined=2),
)
_NOTHING, _JOIN = pa.scalar(b"", pa.binary()), pc.get_function("binary_join_element_wise")
INT32 = struct.Struct("<i")
_SMALL_BYTES = 16 * 1024
_LONG_BYTES = 1024 * 1024
_MARK = b"mark"


def is_plain(table: pa.Table) -> bool:
    """Whether the messages of a table with the columns of a file are plain."""
    rows = table.num_rows
    if TOPIC_FIELD.name in table.schema.names:
        return False
    nulls = {name: table[name].null_count for name in ("key", "value", "event_time", "headers", "_ref")}
    return (
        rows > 0
        and nulls["headers"] == nulls["_ref"] == rows
        and nulls["value"] == 0
        and nulls["key"] in (0, rows)
        and nulls["event_time"] in (0, rows)
    )


def plain_file(
    table: pa.Table, metadata: Mapping[str, str], compression: Compression, page_bytes: int
) -> tuple[pa.Buffer, int]:
    """The file of a table of plain messages in one row group, and where its row group ends.

    `metadata` are the pairs in its footer.
    """
    rows = table.num_rows
    columns = [*_columns(table, compression, page_bytes)]
    group, place = row_group(columns, rows)
    footer = footer_of(footer_around(table.schema), rows, group, metadata)
    return written([BEGIN, *(part for column in columns for part in column.parts), footer], place + len(footer)), place


def written(parts: Sequence[Part], size_bytes: int) -> pa.Buffer:
    """The parts one after the other, so many bytes in all."""
    data = pa.allocate_buffer(size_bytes)
    with pa.FixedSizeBufferWriter(data) as sink:
        for piece in _pieces(parts):
            sink.write(piece)
    return data


def row_group(columns: Sequence[Column], rows: int) -> tuple[bytes, int]:
    """The entry of the only row group in the footer, and where the row group ends."""
    entries, place = [], len(BEGIN)
    for column in columns:
        entries.append(column.entry(place))
        place += column.stored_bytes
    plain_bytes = sum([column.plain_bytes for column in columns])
    # 1 the columns, 2 and 6 their sizes, 3 the rows, 5 the place.
    group = b"".join(
        (
            b"\x19" + items(STRUCT, entries),
            b"\x16" + zigzag(plain_bytes),
            b"\x16" + zigzag(rows),
            b"\x26" + zigzag(len(BEGIN)),
            b"\x16" + zigzag(place - len(BEGIN)),
            END,
        )
    )
    return group, place


def _pieces(parts: Sequence[Part]) -> Iterator[Part]:
    """The parts, with small ones joined: for each part, Arrow releases the interpreter and has to get it back."""
    for is_small, group in itertools.groupby(parts, lambda part: len(part) <= _SMALL_BYTES):
        if is_small:
            yield b"".join(group)
        else:
            yield from group


def _columns(table: pa.Table, compression: Compression, page_bytes: int) -> Iterator[Column]:
    rows = table.num_rows
    yield _packed_numbers(OFFSET, compression, table["_offset"])
    yield _packed_numbers(TIMESTAMP, compression, table["_timestamp"])
    for leaf in (KEY, VALUE, EVENT_TIME):
        column, codec = table[leaf.name], _codec(compression, leaf)
        if column.null_count:
            yield null_column(leaf, codec, rows, PAGE_ROWS)
        else:
            yield _plain_values(leaf, codec, column, page_bytes)
    for leaf in NEVER_THERE:
        yield null_column(leaf, _codec(compression, leaf), rows, PAGE_ROWS)


def _codec(compression: Compression, leaf: Leaf) -> int:
    chosen = compression if isinstance(compression, str) else compression.get(leaf.name)
    return NO_CODEC if chosen is None else LZ4_RAW


def _packed_numbers(leaf: Leaf, compression: Compression, column: pa.ChunkedArray) -> Column:
    """A column of numbers that do not fall."""
    chunks = [np.frombuffer(chunk.buffers()[1], np.int64, len(chunk), 8 * chunk.offset) for chunk in column.chunks]
    numbers = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
    pages = Pages(leaf, _codec(compression, leaf), DELTA_BINARY_PACKED)
    for start in range(0, len(numbers), PAGE_ROWS):
        part = numbers[start : start + PAGE_ROWS]
        statistics = number_statistics(int(part[0]), int(part[-1]))
        pages.add(len(part), (delta_packed(part),), b"\x1c" + statistics)
    return pages.column(statistics=number_statistics(int(numbers[0]), int(numbers[-1])))


def _plain_values(leaf: Leaf, codec: int, column: pa.ChunkedArray, page_bytes: int) -> Column:
    """A column of which no value is null."""
    longs = map(_one_long_value, column.chunks)
    chunks = (_plain(chunk) if long is None else long for chunk, long in zip(column.chunks, longs, strict=True))
    return texts_column(leaf, codec, chunks, page_bytes)


def texts_column(leaf: Leaf, codec: int, chunks: Iterable[Texts | memoryview], page_bytes: int) -> Column:
    """A column of the values of these chunks. One that is a memoryview is a long value, by itself."""
    pages = Pages(leaf, codec, PLAIN)
    body: list[Part] = []
    text_bytes = rows = size_bytes = 0
    for chunk in chunks:
        if isinstance(chunk, memoryview):
            body += (INT32.pack(len(chunk)), chunk)
            text_bytes, rows, size_bytes = text_bytes + len(chunk), rows + 1, size_bytes + LENGTH_BYTES + len(chunk)
            if size_bytes >= page_bytes or rows == PAGE_ROWS:
                pages.add(rows, (levels(rows, 1), *body))
                body, rows, size_bytes = [], 0, 0
            continue
        data, ends = chunk.data, chunk.ends
        begin = at = 0
        last = len(ends) - 1
        text_bytes += chunk.size_bytes - LENGTH_BYTES * last
        while at < last:
            step = min(_BATCH_ROWS, last - at, PAGE_ROWS - rows)
            size_bytes += int(ends[at + step] - ends[at])
            rows, at = rows + step, at + step
            is_full = size_bytes >= page_bytes or rows == PAGE_ROWS
            if is_full or at == last:
                body.append(data[ends[begin] : ends[at]])
                begin = at
            if is_full:
                pages.add(rows, (levels(rows, 1), *body))
                body, rows, size_bytes = [], 0, 0
    if rows:
        pages.add(rows, (levels(rows, 1), *body))
    return pages.column(text_bytes=text_bytes if leaf.kind == BYTE_ARRAY else 0)


def _one_long_value(chunk: pa.Array) -> memoryview | None:
    """The only value of a chunk, without a copy, if it is so long that another copy of it would count."""
    texts = chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk
    if len(texts) != 1 or pa.types.is_timestamp(texts.type):
        return None
    _, starts, data = texts.buffers()
    start, stop = np.frombuffer(starts, np.int32, 2, 4 * texts.offset)
    return memoryview(data).cast("B")[start:stop] if stop - start >= _LONG_BYTES else None


def _plain(chunk: pa.Array) -> Texts:
    """The values of a chunk one after the other."""
    rows = len(chunk)
    if pa.types.is_timestamp(chunk.type):
        ends = np.arange(0, 8 * rows + 1, 8)
        return Texts(memoryview(chunk.buffers()[1]).cast("B")[8 * chunk.offset : 8 * (chunk.offset + rows)], ends)
    texts = chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk
    _, starts, data = texts.buffers()
    offsets = np.frombuffer(starts, np.int32, rows + 1, 4 * texts.offset)
    lengths = pa.py_buffer(np.diff(offsets))
    each = pa.py_buffer(np.arange(0, LENGTH_BYTES * rows + 1, LENGTH_BYTES, dtype=np.int32))
    in_front = pa.Array.from_buffers(pa.binary(), rows, [None, each, lengths])
    behind = pa.Array.from_buffers(pa.binary(), rows, [None, starts, data], offset=texts.offset)
    _, ends, joined = _JOIN.call([in_front, behind, _NOTHING]).buffers()
    return Texts(memoryview(joined).cast("B"), np.frombuffer(ends, np.int32, rows + 1))


def footer_of(around: tuple[bytes, bytes], rows: int, group: bytes, metadata: Mapping[str, str]) -> bytes:
    """The footer, with its length and the mark at the end of a file. `around` is that of the file's schema."""
    before, behind = around
    pairs = [_named(name) + text(value.encode()) + END for name, value in metadata.items()]
    footer = b"".join((before, zigzag(rows), b"\x19", items(STRUCT, (group,)), b"\x19", items(STRUCT, pairs), behind))
    return b"".join((footer, INT32.pack(len(footer)), BEGIN))


@lru_cache
def _named(name: str) -> bytes:
    """The begin of a pair of that name."""
    return b"\x18" + text(name.encode()) + b"\x18"


@lru_cache
def footer_around(schema: pa.Schema) -> tuple[bytes, bytes]:
    """The bytes of a footer of that schema before the number of rows, and behind its metadata: taken from Arrow's."""
    first, second = (_arrows_footer(schema, rows) for rows in (1, 2))
    same = next(place for place, (one, other) in enumerate(zip(first, second, strict=False)) if one != other)
    mark = b"\x18" + text(_MARK) + b"\x18" + text(_MARK) + END
    return first[:same], first.partition(mark)[2]


def _arrows_footer(schema: pa.Schema, rows: int) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, store_schema=False) as writer:
        zeros = np.zeros(rows, np.int64)
        columns = [pa.nulls(rows, each.type) if each.nullable else pa.array(zeros, each.type) for each in schema]
        writer.write_table(pa.Table.from_arrays(columns, schema=schema))
        writer.add_key_value_metadata({_MARK.decode(): _MARK.decode()})
    data: bytes = sink.getvalue().to_pybytes()
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
