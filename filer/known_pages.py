"""Columns whose pages are known to the byte, given what they should hold: told much sooner than by decoding them.

A page that has the very bytes that are expected says nothing else; any other is decoded by whoever asks.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from filer.page_headers import read_pages

_MOST_PAGES = 16


def short_column(read: Callable[[int, int], bytes], column: pq.ColumnChunkMetaData, *, most_bytes: int) -> bytes | None:
    """The bytes of a column, where they are few and compressed as `filer/load_files.py` does it.

    `read` gives the bytes `[start, stop)` of the file.
    """
    start, size_bytes = column.data_page_offset, column.total_compressed_size
    if size_bytes > most_bytes or column.compression != "ZSTD":
        return None
    return read(start, start + size_bytes)


def are_known(data: bytes, rows: int, expected: Callable[[int, int], bytes], *, encoding: int) -> bool:
    """Whether the pages of a column hold so many rows as expected.

    `expected` gives the bytes of a page before compression, by the rows before it and the rows in it. Raises
    `CorruptFile` and what decompressing raises where the pages cannot be made out.
    """
    at = found = 0
    for page in read_pages(lambda start, stop: data[start:stop], 0, len(data), most=_MOST_PAGES):
        if not page.is_data_page(encoding) or not 0 < page.values <= rows - found:
            return False
        wanted = expected(found, page.values)
        body = data[at + page.header_bytes : at + page.header_bytes + page.compressed_bytes]
        # Nothing is inflated that claims to become larger than what is expected.
        if page.uncompressed_bytes != len(wanted) or _inflated(body, len(wanted)) != wanted:
            return False
        found += page.values
        at += page.header_bytes + page.compressed_bytes
    return found == rows


def _inflated(body: bytes, size_bytes: int) -> bytes:
    inflated: bytes = pa.decompress(body, decompressed_size=size_bytes, codec="zstd", asbytes=True)
    return inflated
