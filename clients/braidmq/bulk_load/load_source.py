"""The rows of a bulk load: a table or Parquet files, cut by slots into the files of segments."""

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import anyio.to_thread
import pyarrow as pa
import pyarrow.parquet as pq

import filer.errors
from braidmq.errors import InvalidArgument
from braidmq.publish.encoding.tables import TablePlan, arrow_table, message_tables
from filer.bulk_load.load_files import FILE_BYTES, LoadFile, LoadWriter, as_rows, slots_of_rows
from filer.bulk_load.load_segment import LoadSegment

BUFFERED_BYTES = 256 * 1024 * 1024
"""How much all segments together buffer before one of them writes a file."""
_SLICE_BYTES = 8 * 1024 * 1024
_BATCH_ROWS = 65_536

Source: TypeAlias = pa.Table | Sequence[Path]


def source_of(given: Any) -> Source:
    """Return a table, or the Parquet files of one or several paths, in order. Raises `InvalidArgument`."""
    several = isinstance(given, list | tuple)
    paths = given if several else [given]
    if not paths or not all(isinstance(path, str | os.PathLike) for path in paths):
        if several:
            raise InvalidArgument("a bulk load takes one table, or Parquet files: give a table, a path, or paths")
        return arrow_table(given)
    found = [file for path in paths for file in _parquet_files(Path(path))]
    for file in found:
        try:
            pq.read_metadata(file)
        except (pa.ArrowException, OSError) as failure:
            raise InvalidArgument(f"{file} is not a readable Parquet file: {failure}") from failure
    return found


def row_count(source: Source) -> int:
    """Return the number of rows."""
    if isinstance(source, pa.Table):
        return int(source.num_rows)
    return sum(pq.read_metadata(path).num_rows for path in source)


async def source_files(source: Source, plan: TablePlan, segments: Sequence[LoadSegment]) -> AsyncIterator[LoadFile]:
    """Make the files of all segments, on a thread, one after the other. Raises `InvalidArgument`."""
    files = _files(source, plan, segments)
    while (file := await anyio.to_thread.run_sync(_next, files)) is not None:
        yield file


def _next(files: Iterator[LoadFile]) -> LoadFile | None:
    try:
        return next(files, None)
    except filer.errors.InvalidInput as failure:
        raise InvalidArgument(str(failure)) from failure


def _files(source: Source, plan: TablePlan, segments: Sequence[LoadSegment]) -> Iterator[LoadFile]:
    """Cut the rows by slots. Each segment keeps the order of the source."""
    file_bytes = min(FILE_BYTES, BUFFERED_BYTES // len(segments))
    writers = [LoadWriter(segment, file_bytes=file_bytes) for segment in segments]
    row = 0
    for table in _tables(source):
        for messages in message_tables(table, replace(plan, first_row=row), slice_bytes=_SLICE_BYTES):
            slots = slots_of_rows(as_rows(messages, segments[0].schema), row)
            row += messages.num_rows
            for segment, writer in zip(segments, writers, strict=True):
                in_segment = pa.array((slots >= segment.start_slot) & (slots < segment.stop_slot))
                yield from writer.write(messages.filter(in_segment))
    for writer in writers:
        yield from writer.finish()


def _tables(source: Source) -> Iterator[pa.Table]:
    if isinstance(source, pa.Table):
        yield source
        return
    for path in source:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                yield pa.Table.from_batches([batch])


def _parquet_files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.rglob("*.parquet"))
    if not path.exists():
        raise InvalidArgument(f"there is no file {path}")
    return [path]
