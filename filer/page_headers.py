"""Headers of Parquet's data pages, read without the pages: what a column will take in memory, by what a reader goes by.

The sizes in a file's footer are only what its writer says. A reader makes room for each page by the page's own header,
so these are what has to be held against a limit before anybody decodes a file that is not to be trusted.
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
"""No header without statistics takes more."""
_DEEPEST = 8

# Types of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)


@dataclass(frozen=True, slots=True)
class PageHeader:
    """One page: what it is, its sizes in bytes, and for a data page of version 1 its values and their encoding.

    `level_encodings` are those of its definition levels and of its repetition levels.
    """

    kind: int
    uncompressed_bytes: int
    compressed_bytes: int
    values: int
    encoding: int
    level_encodings: tuple[int, int]
    header_bytes: int

    def is_data_page(self, encoding: int) -> bool:
        """Whether this is a data page of version 1 of that encoding, with levels as each writer has them today."""
        return (self.kind, self.encoding, self.level_encodings) == (DATA_PAGE, encoding, (RLE, RLE))


def read_pages(read: Callable[[int, int], bytes], start: int, stop: int, *, most: int) -> list[PageHeader]:
    """The headers of the pages in `[start, stop)` of a file; `read` gives bytes of it.

    Raises `CorruptFile` where they do not fill that exactly, or are more than `most`.
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
    """The header that stands first in `data`; raises `CorruptFile`."""
    reader = _Compact(data)
    try:
        fields = reader.struct(0)
        kind, uncompressed, compressed = fields[1], fields[2], fields[3]
        page = fields.get(5, {})
        levels = (page.get(3, -1), page.get(4, -1))
        header = PageHeader(kind, uncompressed, compressed, page.get(1, -1), page.get(2, -1), levels, reader.at)
    except (IndexError, KeyError, AttributeError, TypeError) as error:
        raise CorruptFile("a page has no header that can be read") from error
    if not all(type(number) is int for number in (kind, uncompressed, compressed, header.values, header.encoding)):
        raise CorruptFile("a page has no header that can be read")
    if uncompressed < 0 or compressed < 0:
        raise CorruptFile("a page claims to have less than nothing")
    return header


class _Compact:
    """As much of Thrift's compact protocol as a page header takes; raises `IndexError` where bytes are missing."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def struct(self, depth: int) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise CorruptFile("a page's header is nested too deeply")
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
        raise CorruptFile("a page's header holds what no header has")

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
                raise CorruptFile("a number in a page's header is too large")

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)
