"""Files that are decoded whole: several of them at a time, since each by itself is small as a rule.

To hand a small file over to a thread, and to learn that it is done, takes about as long as to decode it.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from filer.errors import CorruptFile
from filer.format.row_ends import END_BYTES, Ends, Rows, row_ends
from filer.format.segment_file import CheckedFile, of_file
from filer.segment.read_room import Page

_ROW_BYTES = 64
"""A decoded row takes so much besides its keys and values: in the file these are packed."""


class Decoded:
    """All rows of a file or of a row group as they were decoded, and the size of the buffers that hold them.

    Each row's end is found once: many pages begin and end in the same rows.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._ends: Ends | None = None
        self.size_bytes = END_BYTES * table.num_rows + sum(
            # Columns without a value share their memory with all others of that kind.
            column.get_total_buffer_size()
            for column in table.columns
            if column.null_count < len(column)
        )

    def rows(self, page: Page, start: int) -> Rows:
        """The rows from that one on which belong to the page."""
        if not start and page.takes(self._table.num_rows, self.size_bytes):
            return Rows(self._table, self.size_bytes)
        if self._ends is None:
            self._ends = row_ends(self._table)
        return page.first_of(self._table, self._ends, start)


class WholeFile(NamedTuple):
    """The bytes of a file, its key, and its place: the segment, and the offset with which it begins."""

    key: str
    place: tuple[int, int]
    data: bytes


class Fresh(NamedTuple):
    """The rows of a file that was decoded just now, for which room was taken."""

    decoded: Decoded


class TooLarge(NamedTuple):
    """How much the rows of a file would take."""

    size_bytes: int


Outcome: TypeAlias = Fresh | TooLarge | CorruptFile


def decode_up_to(files: Sequence[WholeFile], most_bytes: int) -> list[Outcome]:
    """The outcomes of the first file, and of those behind it as long as all rows together take at most that many bytes.

    Ends with a damaged file: a reader that comes to it gets the error. All bytes are checked before they are decoded.
    """
    outcomes: list[Outcome] = []
    for each in files:
        try:
            with of_file(each.key):
                file = CheckedFile(each.data, place=each.place)
                metadata = file.end.metadata
                size_bytes = sum(decoded_bytes(metadata, group) for group in range(metadata.num_row_groups))
                if size_bytes > most_bytes:
                    return outcomes or [TooLarge(size_bytes)]
                outcomes.append(Fresh(Decoded(file.rows())))
                most_bytes -= size_bytes
        except CorruptFile as error:
            outcomes.append(error)
            break
    return outcomes


def decoded_bytes(metadata: pq.FileMetaData, group: int) -> int:
    """About how much the rows of a row group take once they are decoded."""
    found = metadata.row_group(group)
    return int(found.total_byte_size + _ROW_BYTES * found.num_rows)
