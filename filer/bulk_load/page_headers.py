"""Reads the headers of Parquet's data pages without the pages, to know how much memory a column will take.

The sizes in a file's footer are only claims of its writer. A reader allocates memory for each page by the header of the
page. So before an untrusted file is decoded, these headers must be compared with a limit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from filer.errors import CorruptFile

DATA_PAGE = 0
PLAIN = 0
RLE = 3
DELTA_BINARY_PACKED = 5
HEADER_BYTES = 256
"""A header without statistics is never larger."""
_DEEPEST = 8

# Types of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)


@dataclass(frozen=True, slots=True)
class PageHeader:
    """The kind and the sizes of a page and, for a data page of version 1, the number and the encoding of its values.

    `level_encodings` are the encodings of the definition levels and of the repetition levels.
    """

    kind: int
    uncompressed_bytes: int
    compressed_bytes: int
    values: int
    encoding: int
    level_encodings: tuple[int, int]
    header_bytes: int

    def is_data_page(self, encoding: int) -> bool:
        """Whether this is a data page of version 1 with that encoding, and levels encoded as all current writers do."""
        return (self.kind, self.encoding, self.level_encodings) == (DATA_PAGE, encoding, (RLE, RLE))


def read_pages(read: Callable[[int, int], bytes], start: int, stop: int, *, most: int) -> list[PageHeader]:
    """The headers of the pages in `[start, stop)` of a file. `read` returns the file's bytes.

    Raises `CorruptFile` if the pages do not fill that range exactly, or are more than `most`.
    """
    pages: list[PageHeader] = []
    while start < stop:
        if len(pages) == most:
            raise CorruptFile(f"a column has more than {most} pages in a row group")
        page = parse_page_header(read(start, min(start + HEADER_BYTES, stop)))
        start += page.header_bytes + page.compressed_bytes
        pages.append(page)
    if start != stop:
        raise CorruptFile("a page reaches beyond the end of its column")
    return pages


def parse_page_header(data: bytes) -> PageHeader:
    """Parse the header at the start of `data`. Raises `CorruptFile`."""
    reader = _Compact(data)
    try:
        fields = reader.struct(0)
        kind, uncompressed, compressed = fields[1], fields[2], fields[3]
        page = fields.get(5, {})
        levels = (page.get(3, -1), page.get(4, -1))
        header = PageHeader(kind, uncompressed, compressed, page.get(1, -1), page.get(2, -1), levels, reader.at)
    except (IndexError, KeyError, AttributeError, TypeError) as error:
        raise CorruptFile("the header of a page cannot be read") from error
    if not all(type(number) is int for number in (kind, uncompressed, compressed, header.values, header.encoding)):
        raise CorruptFile("the header of a page cannot be read")
    if uncompressed < 0 or compressed < 0:
        raise CorruptFile("a page claims a negative size")
    return header


class _Compact:
    """The part of Thrift's compact protocol that page headers use. Raises `IndexError` if bytes are missing."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def struct(self, depth: int) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise CorruptFile("the header of a page is nested too deeply")
        fields: dict[int, Any] = {}
        field = 0
        while byte := self._byte():
            kind, step = byte & 0x0F, byte >> 4
            field = field + step if step else self._zigzag()
            fields[field] = self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> object:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _BYTE:
            return self._byte()
        if kind in _INTEGERS:
            return self._zigzag()
        if kind in (_DOUBLE, _BINARY):
            self._skip(8 if kind == _DOUBLE else self._varint())
            return None
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise CorruptFile("the header of a page has a field of a type that no header has")

    def _byte(self) -> int:
        byte = self._data[self.at]
        self.at += 1
        return byte

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self._data):
            raise IndexError

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 63:
                raise CorruptFile("a number in the header of a page is too large")

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)
