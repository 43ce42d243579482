"""Decodes the columns of a bulk load's file that must be checked, some row groups at a time.

Only the bytes that this takes are read. Binary values are not decoded: their page headers say how much memory they will
take (`filer/bulk_load/page_headers.py`). A column is not decoded either if its bytes show that its content is right.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from filer.bulk_load.null_columns import holds_only_nulls
from filer.bulk_load.page_headers import HEADER_BYTES, PLAIN, read_pages
from filer.bulk_load.stepped_columns import is_arithmetic
from filer.errors import LoadRefused
from filer.format.sparse_file import SparseFile

MOST_PAGES = 64
"""The most pages of one column in one row group."""
MOST_RANGES = 64
"""The most ranges of one read."""
_LOT_BYTES = 32 * 1024 * 1024
"""The most decoded bytes of a lot, unless it is a single row group."""
_LOT_GROUPS = MOST_RANGES // 2
_STEPS = {"_offset": 1, "_timestamp": 0}
_OPTIONAL = ("event_time", "headers", "_ref")
_ALL = (*_STEPS, "key", *_OPTIONAL, "value")
# With read-ahead, Arrow would read the bytes between the columns too. With 32-bit offsets it would count the bytes of
# each key, which takes half as long again.
_READING: dict[str, Any] = {"pre_buffer": False, "binary_type": pa.large_binary()}

Ranges = Sequence[tuple[int, int]]
Read = Callable[[Ranges], Sequence[bytes]]
"""Returns the bytes of ranges `[start, stop)` of the file, in the order of the ranges."""


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """A file with its metadata. `tail` has the bytes at the end of the file from which the metadata was read.

    Its messages should have consecutive offsets from `base_offset`, and all of them the time `timestamp_us`.
    """

    read: Read
    metadata: pq.FileMetaData
    tail: bytes
    size_bytes: int
    base_offset: int
    timestamp_us: int


def decoded_lots(file: LoadedFile, *, with_values: bool) -> Iterator[pa.Table]:
    """The columns that must be checked, of all row groups in order. Bytes and strings have Arrow's large types.

    `_offset` and `_timestamp` are left out if their bytes show that they are right, and optional columns if their bytes
    show that they hold only nulls. Raises `LoadRefused`, `CorruptFile` and the errors of decoding.
    The caller must have checked that every row group lies within the file and has a bounded size.
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
        known = [name for name in _STEPS if all(group.is_arithmetic(name, sparse) for group in groups)]
        known += [name for name in _OPTIONAL if all(group.has_only_nulls(name, sparse) for group in groups)]
        names = [name for name in _ALL if name not in known and (with_values or name != "value")]
        with pq.ParquetFile(pa.PythonFile(sparse, "r"), metadata=file.metadata, **_READING) as parquet:
            yield parquet.read_row_groups(numbers, columns=names, use_threads=False)


class _Group:
    """The byte ranges and the expected content of the columns of a row group."""

    def __init__(self, metadata: pq.RowGroupMetaData, first_offset: int, timestamp_us: int) -> None:
        columns = [metadata.column(index) for index in range(metadata.num_columns)]
        self.rows = metadata.num_rows
        self._columns = {column.path_in_schema: column for column in columns}
        self._firsts = {"_offset": first_offset, "_timestamp": timestamp_us}
        self._start, self._stop = columns[0].data_page_offset, _end(columns[-1])

    @property
    def value(self) -> pq.ColumnChunkMetaData:
        return self._columns["value"]

    def wanted(self, *, with_values: bool) -> Ranges:
        """The whole row group; without values, all of it except the values after their first page header."""
        if with_values:
            return [(self._start, self._stop)]
        after = _end(self.value)
        return [(self._start, min(self.value.data_page_offset + HEADER_BYTES, after)), (after, self._stop)]

    def is_arithmetic(self, name: str, held: SparseFile) -> bool:
        """Whether the bytes of that column, which `held` has, show that it holds the expected numbers."""
        column = self._columns[name]
        return is_arithmetic(held.read_range, column, self.rows, first=self._firsts[name], step=_STEPS[name])

    def has_only_nulls(self, name: str, held: SparseFile) -> bool:
        """Whether the bytes of that column, which `held` has, show that it holds only nulls."""
        leaves = [leaf for path, leaf in self._columns.items() if path.partition(".")[0] == name]
        return all(holds_only_nulls(held.read_range, leaf, self.rows, repeated=name == "headers") for leaf in leaves)


def _end(column: pq.ColumnChunkMetaData) -> int:
    return int(column.data_page_offset + column.total_compressed_size)


def _lots(metadata: pq.FileMetaData, *, with_values: bool) -> Iterator[list[int]]:
    """Row groups that are decoded together, since one call of the decoder costs as much as some thousand messages."""
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
    """An estimate: a row takes at least 8 bytes per column, however well it is encoded."""
    columns = map(group.column, range(group.num_columns))
    return sum(
        column.total_uncompressed_size + 8 * group.num_rows
        for column in columns
        if with_values or column.path_in_schema != "value"
    )


def _joined(ranges: Ranges) -> list[tuple[int, int]]:
    """The ranges, with adjacent ones joined."""
    joined: list[tuple[int, int]] = []
    for start, stop in ranges:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined


def _check_pages(read: Read, held: SparseFile, group: _Group) -> None:
    """Compare the page headers of the values, which may not be decoded here, with the claims of their column."""
    column, start, stop = group.value, group.value.data_page_offset, _end(group.value)

    def read_one(first: int, last: int) -> bytes:
        return held.find(first, last) or read([(first, last)])[0]

    pages = read_pages(read_one, start, stop, most=MOST_PAGES)
    if not all(page.is_data_page(PLAIN) for page in pages):
        raise LoadRefused("column value has pages that are not plain data pages of version 1")
    if sum(page.values for page in pages) != group.rows or any(page.values < 0 for page in pages):
        raise LoadRefused(f"the pages of column value do not hold the {group.rows} messages of a row group")
    if sum(page.uncompressed_bytes + page.header_bytes for page in pages) > column.total_uncompressed_size:
        raise LoadRefused("the pages of column value are larger than the footer says")
