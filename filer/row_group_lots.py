"""What is decoded of a load's file: some row groups at a time, with only the bytes that this takes.

Binary values are not decoded: of those only the headers of their pages are read, by which it is known what they will
take in memory (`filer/page_headers.py`). Nor are columns that are seen to hold what they should by their bytes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from filer.errors import LoadRefused
from filer.null_columns import holds_only_nulls
from filer.page_headers import HEADER_BYTES, PLAIN, read_pages
from filer.sparse_file import SparseFile
from filer.stepped_columns import goes_up

MOST_PAGES = 64
"""Of one column in one row group."""
MOST_RANGES = 64
"""Asked for at a time."""
_LOT_BYTES = 32 * 1024 * 1024
"""What the row groups of a lot decode to, where it is not a single one."""
_LOT_GROUPS = MOST_RANGES // 2
_STEPS = {"_offset": 1, "_timestamp": 0}
_OPTIONAL = ("event_time", "headers", "_ref")
_ALL = (*_STEPS, "key", *_OPTIONAL, "value")
# Read ahead, Arrow would ask for what stands between the columns; and with small offsets it counts each key's bytes,
# which takes half as long again.
_READING: dict[str, Any] = {"pre_buffer": False, "binary_type": pa.large_binary()}

Ranges = Sequence[tuple[int, int]]
Read = Callable[[Ranges], Sequence[bytes]]
"""The bytes of some ranges `[start, stop)` of the file, each in its place."""


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """A file whose metadata has been read; `tail` holds the bytes at its end that it was read from.

    Its messages should have the offsets from `base_offset` on, and all the same time.
    """

    read: Read
    metadata: pq.FileMetaData
    tail: bytes
    size_bytes: int
    base_offset: int
    timestamp_us: int


def decoded_lots(file: LoadedFile, *, with_values: bool) -> Iterator[pa.Table]:
    """What is to be looked at of all row groups, in order; bytes and strings are of Arrow's large types.

    That is without `_offset` and `_timestamp` where they are seen to hold what they should, and without optional
    columns that hold nothing. Raises `LoadRefused`, `CorruptFile` and what decoding raises.
    Every row group must have been found to lie within the file and to be of a bounded size.
    """
    base = file.base_offset
    for numbers in _lots(file.metadata, with_values=with_values):
        groups = []
        for number in numbers:
            groups.append(_Group(file.metadata.row_group(number), base, file.timestamp_us))
            base += groups[-1].rows
        wanted = _joined([each for group in groups for each in group.wanted(with_values=with_values)])
        parts = [(start, data) for (start, _), data in zip(wanted, file.read(wanted), strict=True)]
        parts.append((file.size_bytes - len(file.tail), file.tail))
        sparse = SparseFile(file.size_bytes, parts)
        for group in groups:
            _check_pages(file.read, sparse, group)
        told = [name for name in _STEPS if all(group.goes_up(name, sparse) for group in groups)]
        told += [name for name in _OPTIONAL if all(group.has_only_nulls(name, sparse) for group in groups)]
        names = [name for name in _ALL if name not in told and (with_values or name != "value")]
        with pq.ParquetFile(pa.PythonFile(sparse, "r"), metadata=file.metadata, **_READING) as parquet:
            yield parquet.read_row_groups(numbers, columns=names, use_threads=False)


class _Group:
    """Where the columns of a row group stand."""

    def __init__(self, metadata: pq.RowGroupMetaData, first_offset: int, timestamp_us: int) -> None:
        columns = [metadata.column(place) for place in range(metadata.num_columns)]
        self.rows = metadata.num_rows
        self._columns = {column.path_in_schema: column for column in columns}
        self._firsts = {"_offset": first_offset, "_timestamp": timestamp_us}
        self._start, self._stop = columns[0].data_page_offset, _end(columns[-1])

    @property
    def value(self) -> pq.ColumnChunkMetaData:
        return self._columns["value"]

    def wanted(self, *, with_values: bool) -> Ranges:
        """All of it, or all but the values behind their first header."""
        if with_values:
            return [(self._start, self._stop)]
        after = _end(self.value)
        return [(self._start, min(self.value.data_page_offset + HEADER_BYTES, after)), (after, self._stop)]

    def goes_up(self, name: str, held: SparseFile) -> bool:
        """Whether that column, all of whose bytes are held, is seen to hold the numbers that it should."""
        column = self._columns[name]
        return goes_up(held.read_range, column, self.rows, first=self._firsts[name], step=_STEPS[name])

    def has_only_nulls(self, name: str, held: SparseFile) -> bool:
        """Whether that column, all of whose bytes are held, is seen to hold nothing."""
        leaves = [leaf for path, leaf in self._columns.items() if path.partition(".")[0] == name]
        return all(holds_only_nulls(held.read_range, leaf, self.rows, repeated=name == "headers") for leaf in leaves)


def _end(column: pq.ColumnChunkMetaData) -> int:
    return int(column.data_page_offset + column.total_compressed_size)


def _lots(metadata: pq.FileMetaData, *, with_values: bool) -> Iterator[list[int]]:
    """Row groups that are decoded together: each time costs as much as some thousand messages."""
    lot: list[int] = []
    held_bytes = 0
    for number in range(metadata.num_row_groups):
        size_bytes = _decoded_bytes(metadata.row_group(number), with_values=with_values)
        if lot and (held_bytes + size_bytes > _LOT_BYTES or len(lot) == _LOT_GROUPS):
            yield lot
            lot, held_bytes = [], 0
        lot.append(number)
        held_bytes += size_bytes
    yield lot


def _decoded_bytes(group: pq.RowGroupMetaData, *, with_values: bool) -> int:
    """About: a row takes 8 bytes a column at least, however well it is encoded."""
    columns = map(group.column, range(group.num_columns))
    return sum(
        column.total_uncompressed_size + 8 * group.num_rows
        for column in columns
        if with_values or column.path_in_schema != "value"
    )


def _joined(ranges: Ranges) -> list[tuple[int, int]]:
    """Ranges that stand behind each other as one."""
    joined: list[tuple[int, int]] = []
    for start, stop in ranges:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined


def _check_pages(read: Read, held: SparseFile, group: _Group) -> None:
    """Hold the pages of the values, which may not be decoded here, against what their column claims."""
    column, start, stop = group.value, group.value.data_page_offset, _end(group.value)

    def read_one(first: int, last: int) -> bytes:
        return held.part(first, last) or read([(first, last)])[0]

    pages = read_pages(read_one, start, stop, most=MOST_PAGES)
    if not all(page.is_data_page(PLAIN) for page in pages):
        raise LoadRefused("column value has pages that are not plain data pages of version 1")
    if sum(page.values for page in pages) != group.rows or any(page.values < 0 for page in pages):
        raise LoadRefused(f"the pages of column value do not hold the {group.rows} messages of a row group")
    if sum(page.uncompressed_bytes + page.header_bytes for page in pages) > column.total_uncompressed_size:
        raise LoadRefused("the pages of column value are larger than the footer says")
