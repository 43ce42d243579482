"""The pages of a column, and the column's entry in the footer, as Arrow writes them."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import pyarrow as pa
from isal.isal_zlib import crc32

from filer.format.plain.thrift import BINARY, END, I32, I64, STRUCT, items, text, zigzag
from filer.varint import varint

INT64, BYTE_ARRAY = 2, 6
PLAIN, RLE, DELTA_BINARY_PACKED = 0, 3, 5
NO_CODEC, ZSTD, LZ4_RAW = 0, 6, 7
"""Types, encodings and codecs by their numbers in Parquet."""
Part: TypeAlias = bytes | memoryview
_CODECS = {LZ4_RAW: pa.Codec("lz4_raw"), ZSTD: pa.Codec("zstd")}
_DATA_PAGE = 0
_REMEMBERED = 1024
_LARGE_BYTES = 1024 * 1024
_INT64 = struct.Struct("<q")
_INT32 = struct.Struct("<i")
_WITHOUT_STATISTICS = b"\x1c" + END


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of the file: its path, its type, and how deeply values are repeated and may be defined."""

    path: tuple[str, ...]
    kind: int
    most_defined: int = 1
    most_repeated: int = 0

    @property
    def name(self) -> str:
        """Its path in one string."""
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Column:
    """The bytes of a column, and its entry in the footer. Its place comes between `_head` and `_rest`.

    `plain_bytes` is its size before compression, `stored_bytes` its size in the file.
    """

    parts: Sequence[Part]
    plain_bytes: int
    stored_bytes: int
    _head: bytes
    _rest: bytes

    def entry(self, place: int) -> bytes:
        """The entry in the footer, of a column that begins at that place of the file."""
        return b"".join((self._head, zigzag(place), self._rest))


class _Page(NamedTuple):
    """A page with its header, and its size with the header, before compression and in the file."""

    parts: Sequence[Part]
    plain_bytes: int
    stored_bytes: int


class Pages:
    """The pages of a column of so many rows. Either no row is null or all are."""

    def __init__(self, leaf: Leaf, codec: int, encoding: int) -> None:
        self._leaf, self._codec, self._encoding = leaf, codec, encoding
        self._parts: list[Part] = []
        self._plain_bytes = self._stored_bytes = self._rows = self._count = 0

    def add(self, rows: int, body: Sequence[Part], statistics: bytes = _WITHOUT_STATISTICS) -> None:
        """Add a page of so many rows."""
        self._append(rows, _page(self._codec, self._encoding, rows, body, statistics))

    def add_nulls(self, rows: int) -> None:
        """Add a page of so many rows without a value."""
        self._append(rows, _null_page(self._codec, rows, is_repeated=self._leaf.most_repeated > 0))

    def _append(self, rows: int, page: "_Page") -> None:
        self._parts += page.parts
        self._plain_bytes += page.plain_bytes
        self._stored_bytes += page.stored_bytes
        self._rows += rows
        self._count += 1

    def column(self, *, statistics: bytes = b"", text_bytes: int = 0, are_null: bool = False) -> Column:
        """The column of these pages. `text_bytes` is the size of its texts without their lengths."""
        leaf = self._leaf
        # 5 the rows, 6 and 7 the sizes, 9 the place.
        head = b"".join(
            (
                _entry_begin(leaf, self._codec, self._encoding),
                zigzag(self._rows),
                b"\x16",
                zigzag(self._plain_bytes),
                b"\x16",
                zigzag(self._stored_bytes),
                b"\x26",
            )
        )
        # 12 the statistics, 13 what kinds of pages there are, 16 the sizes and levels of its values.
        kinds = items(STRUCT, [b"\x15\x00\x15" + zigzag(self._encoding) + b"\x15" + zigzag(self._count) + END])
        rest = [b"\x3c" + statistics + b"\x19" if statistics else b"\x49", kinds]
        if leaf.most_defined:
            rest += [b"\x3c", self._sizes(text_bytes, are_null), END]
        return Column(self._parts, self._plain_bytes, self._stored_bytes, head, b"".join((*rest, END, END)))

    def _sizes(self, text_bytes: int, are_null: bool) -> bytes:
        leaf = self._leaf
        texts = b"\x16" + zigzag(text_bytes) + b"\x19" if leaf.kind == BYTE_ARRAY else b"\x29"
        repeated = [self._rows, *[0] * leaf.most_repeated] if leaf.most_repeated else []
        nulls = [0] * leaf.most_defined
        defined = [self._rows, *nulls] if are_null else [*nulls, self._rows]
        levels = items(I64, map(zigzag, repeated)) + b"\x19" + items(I64, map(zigzag, defined))
        return texts + levels


def _page(codec: int, encoding: int, rows: int, body: Sequence[Part], statistics: bytes) -> _Page:
    plain_bytes = sum(map(len, body))
    if codec != NO_CODEC:
        joined = body[0] if len(body) == 1 else _joined(body, plain_bytes)
        body = (_CODECS[codec].compress(joined, asbytes=True),)
    stored_bytes = sum(map(len, body))
    check = 0
    for part in body:
        check = crc32(part, check)
    # Fields 1 to 4: the kind, both sizes, and the checksum, which is a signed number. 5: what is in it.
    header = b"".join(
        (
            b"\x15\x00\x15",
            zigzag(plain_bytes),
            b"\x15",
            zigzag(stored_bytes),
            b"\x15",
            zigzag(check - (check >> 31 << 32)),
            b"\x1c\x15",
            zigzag(rows),
            b"\x15",
            zigzag(encoding),
            b"\x15\x06\x15\x06",
            statistics,
            END,
            END,
        )
    )
    return _Page((header, *body), len(header) + plain_bytes, len(header) + stored_bytes)


@lru_cache(maxsize=_REMEMBERED)
def _null_page(codec: int, rows: int, *, is_repeated: bool) -> _Page:
    """A page without a value. Columns of one depth share it: there are seven of them in most files."""
    level = levels(rows, 0)
    return _page(codec, PLAIN, rows, (level + level if is_repeated else level,), _WITHOUT_STATISTICS)


def _joined(parts: Sequence[Part], size_bytes: int) -> Part:
    """The parts in one. Large ones are copied by Arrow, which lets other threads go on meanwhile."""
    if size_bytes <= _LARGE_BYTES:
        return b"".join(parts)
    joined = pa.allocate_buffer(size_bytes)
    with pa.FixedSizeBufferWriter(joined) as sink:
        for part in parts:
            sink.write(part)
    return memoryview(joined)


@lru_cache(maxsize=_REMEMBERED)
def _entry_begin(leaf: Leaf, codec: int, encoding: int) -> bytes:
    """The begin of a column's entry: in its field 3, the metadata, 1 the type, 2 encodings, 3 the path, 4 the codec."""
    path = items(BINARY, (text(name.encode()) for name in leaf.path))
    encodings = items(I32, (zigzag(RLE), zigzag(encoding)))
    kind = zigzag(leaf.kind)
    return b"".join((b"\x26\x00\x1c\x15", kind, b"\x19", encodings, b"\x19", path, b"\x15", zigzag(codec), b"\x16"))


def levels(rows: int, level: int) -> bytes:
    """The same level for so many rows, one run of it, with its size in front."""
    run = varint(rows << 1) + bytes((level,))
    return _INT32.pack(len(run)) + run


def number_statistics(least: int, most: int) -> bytes:
    """The statistics of numbers without a null: most and least, no nulls, both again, and that they are exact."""
    low, high = _INT64.pack(least), _INT64.pack(most)
    return b"".join(
        (b"\x18\x08", high, b"\x18\x08", low, b"\x16\x00\x28\x08", high, b"\x18\x08", low, b"\x11\x11", END)
    )


@lru_cache(maxsize=_REMEMBERED)
def null_column(leaf: Leaf, codec: int, rows: int, page_rows: int) -> Column:
    """A column of so many rows without a value."""
    pages = Pages(leaf, codec, PLAIN)
    for start in range(0, rows, page_rows):
        pages.add_nulls(min(page_rows, rows - start))
    column = pages.column(are_null=True)
    return Column((b"".join(column.parts),), column.plain_bytes, column.stored_bytes, column._head, column._rest)
