"""Columns of a row group that hold nothing but nulls, told by their bytes: much sooner than by decoding them.

The pages of such a column hold levels and no value. What `filer/load_files.py` writes for those is known to the
byte, so a page that has these very bytes says nothing else; any other is decoded by whoever asks.
"""

from collections.abc import Callable
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from filer.page_headers import DATA_PAGE, read_pages

_MOST_COLUMN_BYTES = 1024
_MOST_LEVEL_BYTES = 64
_MOST_PAGES = 16


def holds_only_nulls(
    read: Callable[[int, int], bytes], column: pq.ColumnChunkMetaData, rows: int, *, repeated: bool
) -> bool:
    """Whether each of the rows is null there at the outermost level; `repeated` where the column lies within a map.

    Raises `CorruptFile` and `OSError` where its pages cannot be made out.
    """
    start, size_bytes = column.data_page_offset, column.total_compressed_size
    if size_bytes > _MOST_COLUMN_BYTES or column.compression != "ZSTD":
        return False
    return _are_only_nulls(read(start, start + size_bytes), rows, repeated)


@lru_cache(maxsize=64)
def _are_only_nulls(data: bytes, rows: int, repeated: bool) -> bool:
    """Of the column's bytes: most row groups of a file have the same ones."""
    at = found = 0
    for page in read_pages(lambda start, stop: data[start:stop], 0, len(data), most=_MOST_PAGES):
        if page.kind != DATA_PAGE or not 0 <= page.values <= rows or page.uncompressed_bytes > _MOST_LEVEL_BYTES:
            return False
        body = data[at + page.header_bytes : at + page.header_bytes + page.compressed_bytes]
        levels = pa.decompress(body, decompressed_size=page.uncompressed_bytes, codec="zstd", asbytes=True)
        if levels != _zero_levels(page.values) * (1 + repeated):
            return False
        found += page.values
        at += page.header_bytes + page.compressed_bytes
    return found == rows


def _zero_levels(count: int) -> bytes:
    """So many levels of zero, as Parquet's hybrid of runs and bits has them: one run, behind its length."""
    run, left = bytearray(), count << 1
    while left > 0x7F:
        run.append(left & 0x7F | 0x80)
        left >>= 7
    run += bytes([left, 0])
    return len(run).to_bytes(4, "little") + run
