"""Writing the messages of a piece as the files of a table, by tasks: a file for each partition they fall into."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from filer.errors import ObjectExists
from filer.schema import log_schema
from filer.segment_file import unmark
from filer.store import Store
from filer.topic_config import TopicConfig
from pipeline.export_plan import Piece
from pipeline.export_state import PartitionBy
from pipeline.topic_files import LiveFile, batches_of, contents

BUFFER_BYTES = 64 * 1024 * 1024
"""So much is held of all partitions together before it is encoded."""
_DAY_US = 86_400_000_000
_NO_DAY = "__HIVE_DEFAULT_PARTITION__"
"""What Hive, and hence Spark and DuckDB, call the partition of null."""
_COLUMNS: dict[PartitionBy, str | None] = {"timestamp": "_timestamp", "event_time": "event_time", "none": None}


@dataclass(frozen=True, slots=True)
class Written:
    """A file of a table: its name below where it was written, or the address of one that is referred to."""

    name: str
    count: int
    by_reference: bool = False


def table_schema(config: TopicConfig) -> pa.Schema:
    """The columns of an exported table: those of the files, and the segment, which their folders' names tell."""
    return pa.schema([pa.field("segment", pa.int64()), *log_schema(config.key_type, config.value_type)])


async def write_piece(
    source: Store, target: Store, piece: Piece, files: Sequence[LiveFile], *, folder: str, partition_by: PartitionBy
) -> list[Written]:
    """Write the piece's messages below the folder; what was written, by this call or an earlier one of the same piece.

    A name stands for the same messages for ever, and is created whole or not at all: a file that is there is as good
    as the one that would have been written. So stopping anywhere leaves files that the next call finds again.
    """
    encoders: defaultdict[str, _Encoder] = defaultdict(_Encoder)
    buffered_bytes = 0
    async for file, data in contents(source, files):
        for batch in batches_of(_within(file, piece), data):
            table = _with_segment(unmark(pa.Table.from_batches([batch])), piece.segment)
            for partition, rows in split_by_day(table, partition_by):
                buffered_bytes += encoders[partition].add(rows)
            if buffered_bytes > BUFFER_BYTES:
                for encoder in encoders.values():
                    encoder.flush()
                buffered_bytes = 0
    written = []
    for partition, encoder in sorted(encoders.items()):
        name = f"{partition}{piece.name}"
        with suppress(ObjectExists):
            await target.create(f"{folder}{name}", memoryview(encoder.finish()))
        written.append(Written(name, encoder.count))
    return written


def split_by_day(table: pa.Table, partition_by: PartitionBy) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each day (UTC) in their order, with the folder of that day; all of them without a partition."""
    column = _COLUMNS[partition_by]
    if column is None:
        yield "", table
        return
    days = _days(table[column])
    for day in np.unique(days):
        rows = table if (days == day).all() else table.filter(pa.array(days == day))
        yield f"date={_date(int(day))}/", rows


def _days(times: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """The day of each time since 1970; the least number there is for none."""
    micros = pc.fill_null(times.cast(pa.int64()), np.iinfo(np.int64).min)
    return np.floor_divide(np.asarray(micros, dtype=np.int64), _DAY_US)


def _date(day: int) -> str:
    if day == np.iinfo(np.int64).min // _DAY_US:
        return _NO_DAY
    return str(np.datetime64(day, "D"))


def _within(file: LiveFile, piece: Piece) -> LiveFile:
    start, stop = max(file.start, piece.start), min(file.stop, piece.stop)
    return LiveFile(file.ref, file.name, start, stop, file.size_bytes, file.modified_us)


def _with_segment(table: pa.Table, segment: int) -> pa.Table:
    column = pa.array(np.full(table.num_rows, segment, dtype=np.int64))
    return table.add_column(0, pa.field("segment", pa.int64()), column)


class _Encoder:
    """One file being written, row group by row group, in memory."""

    def __init__(self) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self.count = 0

    def add(self, table: pa.Table) -> int:
        """Take rows; how many bytes of memory they are."""
        self._waiting.append(table)
        self.count += table.num_rows
        return int(table.nbytes)

    def flush(self) -> None:
        """Encode what waits."""
        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting)
        self._waiting = []
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._sink, table.schema, compression="zstd", store_schema=False)
        self._writer.write_table(table)

    def finish(self) -> pa.Buffer:
        """The file."""
        self.flush()
        if self._writer is not None:
            self._writer.close()
        return self._sink.getvalue()
