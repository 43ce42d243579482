"""Finds the columns of a row group that have no value, by their bytes: they need no decoding.

Most messages have no event time, no headers and no reference, which are seven of eleven columns of a file. In small
files, decoding these takes as long as decoding the rest.
"""

import pyarrow.parquet as pq

from filer.format.plain.pages import LZ4_RAW, NO_CODEC, ZSTD, Leaf, null_column
from filer.format.plain.plain_file import EVENT_TIME, NEVER_THERE, PAGE_ROWS

_LEAVES = {leaf.name: leaf for leaf in (EVENT_TIME, *NEVER_THERE)}
_CODECS = {"LZ4": LZ4_RAW, "UNCOMPRESSED": NO_CODEC, "ZSTD": ZSTD}


def columns_with_values(metadata: pq.FileMetaData, group: int, data: "bytes | memoryview", start: int) -> list[str]:
    """The columns of a row group, in order, without those that have null in each message.

    Leaves out only columns with pages that are byte by byte those of a column of nulls. There may be others. `data` has
    the file's bytes from `start` on.
    """
    found = metadata.row_group(group)
    names: dict[str, None] = {}
    for number in range(found.num_columns):
        column = found.column(number)
        path: str = column.path_in_schema
        leaf = _LEAVES.get(path)
        if leaf is None or not _is_null(leaf, column, found.num_rows, data, start):
            names[path.partition(".")[0]] = None
    return list(names)


def _is_null(leaf: Leaf, column: pq.ColumnChunkMetaData, rows: int, data: "bytes | memoryview", start: int) -> bool:
    codec = _CODECS.get(column.compression)
    if codec is None or column.num_values != rows or column.has_dictionary_page:
        return False
    expected = null_column(leaf, codec, rows, PAGE_ROWS)
    begin = column.data_page_offset - start
    stored = data[begin : begin + column.total_compressed_size]
    return column.total_compressed_size == expected.stored_bytes and stored == expected.parts[0]
