"""Reads offsets of a segment from one of its Parquet files, a row group at a time."""

import contextlib
from collections.abc import Iterator, Sequence

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

from braidmq.read.file_ref import FileRef
from braidmq.read.remote_file import FileUnreachable, RemoteFile
from filer.errors import CorruptFile
from filer.format.segment_file import Footer

BATCH_ROWS = 16_384


def file_batches(
    http: httpx.Client, file: FileRef, segment: int, start: int, stop: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Iterate over exactly the messages `[start, stop)` of the segment, in order.

    Only row groups with such messages are read, and one at a time is in memory. Raises `FileUnreachable`, and
    `CorruptFile` if the file's content is not as listed.
    """
    with _opened(http, file) as parquet:
        footer = Footer.from_metadata(parquet.metadata.metadata)
        if footer.segment != segment or footer.count != parquet.metadata.num_rows:
            raise CorruptFile(f"{file.uri} is not a file of segment {segment} with {footer.count} messages")
        if footer.base > start or footer.end < stop:
            raise CorruptFile(f"{file.uri} holds offsets {footer.base} to {footer.end}, not {start} to {stop}")
        base = footer.base
        for group in range(parquet.num_row_groups):
            end = base + parquet.metadata.row_group(group).num_rows
            if base < stop and end > start:
                yield from _group_batches(parquet, group, base, start, stop, columns)
            base = end


def _group_batches(
    parquet: pq.ParquetFile, group: int, base: int, start: int, stop: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    for batch in parquet.iter_batches(BATCH_ROWS, row_groups=[group], columns=list(columns)):
        end = base + batch.num_rows
        wanted_start, wanted_stop = max(start, base), min(stop, end)
        if wanted_start < wanted_stop:
            yield batch.slice(wanted_start - base, wanted_stop - wanted_start)
        base = end


@contextlib.contextmanager
def _opened(http: httpx.Client, file: FileRef) -> Iterator[pq.ParquetFile]:
    """Open the Parquet file. Raises `FileUnreachable` if this machine cannot reach it."""
    path = file.path
    if path is None and file.url is None:
        raise FileUnreachable(f"{file.uri} has no address that this machine can read")
    try:
        if path is not None:
            # If the brokers run on other machines, a file of this name here is an unrelated one.
            if path.stat().st_size != file.size_bytes:
                raise FileUnreachable(f"{path} is not the file that was listed: it has another size")
            with pq.ParquetFile(path) as parquet:
                yield parquet
        else:
            assert file.url is not None
            remote = pa.PythonFile(RemoteFile(http, file.url, file.size_bytes), "r")
            with pq.ParquetFile(remote, pre_buffer=True) as parquet:
                yield parquet
    except FileNotFoundError as failure:
        raise FileUnreachable(str(failure)) from failure
    except (pa.ArrowException, OSError) as failure:
        raise CorruptFile(f"{file.uri} cannot be read: {failure}") from failure
