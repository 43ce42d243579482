"""Recognises columns by the bytes of their pages, which is much faster than decoding them.

A page with exactly the expected bytes holds exactly the expected values. The caller decodes every other page.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from filer.bulk_load.page_headers import read_pages

_MOST_PAGES = 16


def short_column(read: Callable[[int, int], bytes], column: pq.ColumnChunkMetaData, *, most_bytes: int) -> bytes | None:
    """The bytes of a column; None if there are more than `most_bytes`, or they are compressed in another way than ours.

    `read` returns the bytes `[start, stop)` of the file.
    """
    start, size_bytes = column.data_page_offset, column.total_compressed_size
    if size_bytes > most_bytes or column.compression != "ZSTD":
        return None
    return read(start, start + size_bytes)


def are_known(data: bytes, rows: int, expected: Callable[[int, int], bytes], *, encoding: int) -> bool:
    """Whether the pages of a column hold that many rows, all with the expected bytes.

    `expected` returns the bytes of a page before compression, given the number of rows before it and in it. Raises
    `CorruptFile`, and the errors of decompression, if the pages cannot be read.
    """
    at = found = 0
    for page in read_pages(lambda start, stop: data[start:stop], 0, len(data), most=_MOST_PAGES):
        if not page.is_data_page(encoding) or not 0 < page.values <= rows - found:
            return False
        wanted = expected(found, page.values)
        body = data[at + page.header_bytes : at + page.header_bytes + page.compressed_bytes]
        # A page that claims to become larger than expected is not decompressed.
        if page.uncompressed_bytes != len(wanted) or _inflated(body, len(wanted)) != wanted:
            return False
        found += page.values
        at += page.header_bytes + page.compressed_bytes
    return found == rows


def _inflated(body: bytes, size_bytes: int) -> bytes:
    inflated: bytes = pa.decompress(body, decompressed_size=size_bytes, codec="zstd", asbytes=True)
    return inflated
