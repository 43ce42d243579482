"""Reads offsets of a segment from one of its Parquet files, a row group at a time."""

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import BinaryIO

import httpx
import pyarrow as pa

from braidmq.read.file_ref import FileRef
from braidmq.read.remote_file import FileUnreachable, RemoteFile
from filer.errors import CorruptFile
from filer.format.checked_file import CheckedFile, ReadRange
from filer.format.segment_file import of_file

BATCH_ROWS = 16_384


def file_batches(
    http: httpx.Client, file: FileRef, segment: int, start: int, stop: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Iterate over exactly the messages `[start, stop)` of the segment, in order.

    Only row groups with such messages are read, each is checked by its digest, and one at a time is in memory. Raises
    `FileUnreachable`, and `CorruptFile` if the file's content is not as listed.
    """
    with _opened(http, file) as read, of_file(file.uri):
        checked = CheckedFile(read, file.size_bytes)
        footer, metadata = checked.end.footer, checked.end.metadata
        if footer.segment != segment or footer.count != metadata.num_rows:
            raise CorruptFile(f"it is not a file of segment {segment} with {footer.count} messages")
        if footer.base > start or footer.end < stop:
            raise CorruptFile(f"it holds offsets {footer.base} to {footer.end}, not {start} to {stop}")
        base = footer.base
        for group in range(metadata.num_row_groups):
            end = base + metadata.row_group(group).num_rows
            if base < stop and end > start:
                yield from _group_batches(checked, group, base, start, stop, columns)
            base = end


def _group_batches(
    file: CheckedFile, group: int, base: int, start: int, stop: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    for batch in file.batches(group, most_rows=BATCH_ROWS, columns=columns):
        end = base + batch.num_rows
        wanted_start, wanted_stop = max(start, base), min(stop, end)
        if wanted_start < wanted_stop:
            yield batch.slice(wanted_start - base, wanted_stop - wanted_start)
        base = end


@contextlib.contextmanager
def _opened(http: httpx.Client, file: FileRef) -> Iterator[ReadRange]:
    """A function that reads ranges of the file. Raises `FileUnreachable` if this machine cannot reach it."""
    path = file.path
    if path is None:
        if file.url is None:
            raise FileUnreachable(f"{file.uri} has no address that this machine can read")
        yield RemoteFile(http, file.url, file.size_bytes).read_range
        return
    try:
        # If the brokers run on other machines, a file of this name here is an unrelated one.
        if path.stat().st_size != file.size_bytes:
            raise FileUnreachable(f"{path} is not the file that was listed: it has another size")
        with path.open("rb") as opened:
            yield partial(_read_range, opened)
    except FileNotFoundError as failure:
        raise FileUnreachable(str(failure)) from failure
    except OSError as failure:
        raise CorruptFile(f"{file.uri}: it cannot be read: {failure}", key=file.uri) from failure


def _read_range(file: BinaryIO, start: int, stop: int) -> bytes:
    file.seek(start)
    return file.read(stop - start)
