"""Writes messages into one Parquet file, which appears under its name when it is whole."""

import os
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from filer.clock import Clock
from filer.format.schema import MessageSchema

_SEGMENT = pa.field("segment", pa.int64(), nullable=False)
# A row group this large is read fast, and is what the writer holds in memory.
_GROUP_BYTES = 16 * 1024 * 1024
_GROUP_ROWS = 1_000_000


class ParquetFile:
    """A context that writes pages of messages. The columns are those of the topic's own files, behind the segment.

    The file gets its name, in place of another of that name, when the block ends. If the block raises, nothing is left.
    Raises `OSError`.
    """

    def __init__(self, path: Path, schema: MessageSchema, clock: Clock) -> None:
        self._path = path
        self._part = path.with_name(f".{path.name}.{clock.ulid()}.part")
        self._messages = schema
        self._schema = pa.schema([_SEGMENT, *schema.in_file(schema.no_messages).schema])
        self._pages: list[pa.Table] = []

    def __enter__(self) -> Self:
        self._file = self._part.open("xb")
        self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd")
        return self

    def write(self, page: pa.Table) -> None:
        """Add messages."""
        self._pages.append(page)
        if sum(each.nbytes for each in self._pages) >= _GROUP_BYTES:
            self._write_group()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._write_group()
            self._writer.close()
            if error is None:
                self._file.flush()
                os.fsync(self._file.fileno())
                self._part.replace(self._path)
        finally:
            self._file.close()
            self._part.unlink(missing_ok=True)

    def _write_group(self) -> None:
        if not self._pages:
            return
        table = pa.concat_tables(self._pages)
        self._pages.clear()
        self._writer.write_table(self._messages.in_file(table).cast(self._schema), row_group_size=_GROUP_ROWS)
