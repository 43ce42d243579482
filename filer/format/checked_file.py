"""A segment file that is read by ranges of bytes, one row group at a time, each checked before it is decoded."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from filer.format.digests import footer_size_bytes
from filer.format.segment_file import DECODING_ERRORS, FOOTER_GUESS_BYTES, FileEnd, read_end, undecodable

ReadRange = Callable[[int, int], bytes]
"""Returns all bytes `[start, stop)` of a file."""


class CheckedFile:
    """A file of `size_bytes` that `read` reads. Raises `CorruptFile`, and whatever `read` raises.

    Only whole row groups can be checked, so all columns of a row group are read, and one row group is in memory.
    """

    def __init__(self, read: ReadRange, size_bytes: int) -> None:
        self._read = read
        tail = read(max(size_bytes - FOOTER_GUESS_BYTES, 0), size_bytes)
        needed = footer_size_bytes(tail)
        if len(tail) < needed <= size_bytes:
            tail = read(size_bytes - needed, size_bytes)
        self.end: FileEnd = read_end(tail, size_bytes)

    def batches(self, group: int, *, most_rows: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The messages of a row group, with those columns (all by default)."""
        file = self.end.open_row_group(group, self._read(*self.end.row_group_range(group)))
        try:
            with pq.ParquetFile(file, metadata=self.end.metadata) as parquet:
                names = None if columns is None else list(columns)
                yield from parquet.iter_batches(most_rows, row_groups=[group], columns=names)
        except DECODING_ERRORS as error:
            raise undecodable(error) from error
