"""Writes the messages of a piece as files of a table, one file for each partition that has some of them."""

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from filer.errors import ObjectExists
from filer.format.segment_file import unmark
from filer.stores.store import Store
from pipeline.export.choices import PartitionBy, PartitionEvery
from pipeline.export.export_plan import Piece
from pipeline.export.partitions import PARTITION_COLUMNS, split_by_time
from pipeline.export.payloads import with_payloads
from pipeline.export.table_columns import REASON, SEGMENT_FIELD, TableColumns
from pipeline.topic_files import LiveFile, batches_of, contents

BUFFER_BYTES = 64 * 1024 * 1024
"""Rows of all partitions together wait in memory up to this size before they are encoded."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file of a table: its name below the folder of the table, or the URI of a file that the table refers to."""

    name: str
    count: int
    by_reference: bool = False


@dataclass(frozen=True, slots=True)
class WrittenPiece:
    """The files of a piece, and how many of its messages do not fit the schema, with a Parquet file of them."""

    files: list[Written]
    unfit_messages: int = 0
    unfit: bytes = b""


@dataclass(frozen=True, slots=True)
class TableForm:
    """The columns of a table, and the folders that its files are in.

    With `keeps_arrow_types` the files contain the Arrow types of their columns: Parquet itself has no zones of times
    and no durations. Files of Iceberg must not: its readers refuse types that they do not know.
    """

    columns: TableColumns
    partition_by: PartitionBy
    partition_every: PartitionEvery = "day"
    partition_columns: tuple[str, str] = PARTITION_COLUMNS
    keeps_arrow_types: bool = False


async def write_piece(
    source: Store, target: Store, piece: Piece, files: Sequence[LiveFile], *, folder: str, form: TableForm
) -> WrittenPiece:
    """Write the piece's messages below the folder; returns the files, written now or by an earlier call for this piece.

    A name always means the same messages, and a file is created whole or not at all. So a file that exists is as good
    as the one that would be written. If a call is stopped anywhere, the next one finds its files again.
    """
    encoders: defaultdict[str, Encoder] = defaultdict(lambda: Encoder(keeps_arrow_types=form.keeps_arrow_types))
    unfit = Encoder()
    buffered_bytes = 0
    async for file, data in contents(source, files):
        for batch in batches_of(_within(file, piece), data):
            table = _with_segment(unmark(pa.Table.from_batches([batch])), piece.segment)
            async for whole in _whole(source, file.ref.topic, table, form.columns):
                for partition, messages in split_by_time(
                    whole, form.partition_by, form.partition_every, form.partition_columns
                ):
                    shaped = form.columns.shape(messages)
                    if shaped.rows.num_rows:
                        buffered_bytes += encoders[partition].add(shaped.rows)
                    if shaped.unfit is not None:
                        buffered_bytes += unfit.add(shaped.unfit)
                if buffered_bytes > BUFFER_BYTES:
                    for encoder in (*encoders.values(), unfit):
                        encoder.flush()
                    buffered_bytes = 0
    written = []
    for partition, encoder in sorted(encoders.items()):
        name = f"{partition}{piece.name}"
        with suppress(ObjectExists):
            await target.create(f"{folder}{name}", memoryview(encoder.finish()))
        written.append(Written(name, encoder.count))
    return WrittenPiece(written, unfit.count, unfit.finish().to_pybytes())


async def _whole(source: Store, topic: str, table: pa.Table, columns: TableColumns) -> AsyncIterator[pa.Table]:
    """Yield the messages, with the values beside the log if members of values are wanted."""
    if columns.schema is None or table["_ref"].null_count == table.num_rows:
        yield table
        return
    async for piece in with_payloads(source, topic, table):
        yield piece


def first_of(unfit: bytes) -> str:
    """Describe the first message in a file of unfit messages: its id, and why it does not fit the schema."""
    table = pq.read_table(pa.BufferReader(unfit), columns=["segment", "_offset", REASON])
    row = table.slice(0, 1).to_pylist()[0]
    return f"message {row['segment']}-{row['_offset']} does not fit the schema: {row[REASON]}"


def _within(file: LiveFile, piece: Piece) -> LiveFile:
    start, stop = max(file.start, piece.start), min(file.stop, piece.stop)
    return LiveFile(file.ref, file.name, start, stop, file.size_bytes, file.modified_us)


def _with_segment(table: pa.Table, segment: int) -> pa.Table:
    column = pa.array(np.full(table.num_rows, segment, dtype=np.int64))
    return table.add_column(0, SEGMENT_FIELD, column)


class Encoder:
    """Encodes one file in memory, row group by row group."""

    def __init__(self, *, keeps_arrow_types: bool = False) -> None:
        self._keeps_arrow_types = keeps_arrow_types
        self._sink = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self.count = 0

    def add(self, table: pa.Table) -> int:
        """Add rows; returns how many bytes of memory they take."""
        self._waiting.append(table)
        self.count += table.num_rows
        return int(table.nbytes)

    def flush(self) -> None:
        """Encode the rows that wait."""
        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting)
        self._waiting = []
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._sink, table.schema, compression="zstd", store_schema=self._keeps_arrow_types
            )
        self._writer.write_table(table)

    def finish(self) -> pa.Buffer:
        """Return the bytes of the whole file."""
        self.flush()
        if self._writer is not None:
            self._writer.close()
        return self._sink.getvalue()
