"""Read the rows of a segment file, from a local path or a signed address."""

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braidmq import SegmentFile
from filer.errors import CorruptFile
from filer.format.checked_file import CheckedFile
from filer.format.segment_file import of_file, unmark
from mq.cli.failures import CommandFailed

_BATCH_ROWS = 10_000


def tables_of(file: SegmentFile) -> Iterator[pa.Table]:
    """Yield the live rows in order, with the columns of a page of messages.

    Raises `CommandFailed` if the file cannot be reached, `CorruptFile` if it cannot be read.
    """
    with _opened(file) as source, of_file(file.uri):
        try:
            checked = CheckedFile(partial(_read_range, source), source.seek(0, io.SEEK_END))
        except OSError as error:
            raise CorruptFile(f"it cannot be read: {error}") from error
        for group in range(checked.end.metadata.num_row_groups):
            for batch in checked.batches(group, most_rows=_BATCH_ROWS):
                yield _live(file, unmark(pa.Table.from_batches([batch])))


def _read_range(source: BinaryIO, start: int, stop: int) -> bytes:
    source.seek(start)
    return source.read(stop - start)


def _live(file: SegmentFile, table: pa.Table) -> pa.Table:
    """Drop the rows that a longer file replaces, and add the segment column, which the folder name gives."""
    offsets = table["_offset"]
    inside = pc.and_(pc.greater_equal(offsets, file.base_offset), pc.less(offsets, file.end_offset))
    rows = table.filter(inside)
    segment = pa.array(np.full(rows.num_rows, file.segment, dtype=np.int64))
    return rows.add_column(0, "segment", segment)


@contextmanager
def _opened(file: SegmentFile) -> Iterator[BinaryIO]:
    if file.url is not None:
        with tempfile.TemporaryFile() as copy:
            _download(file.url, copy)
            yield copy
        return
    if not file.uri.startswith("file://"):
        raise CommandFailed(f"{file.uri}: the broker's store gives no signed addresses to read from; use mq subscribe")
    with _local(file.uri) as source:
        yield source


def _local(uri: str) -> BinaryIO:
    try:
        return Path(unquote(urlsplit(uri).path)).open("rb")
    except OSError as error:
        raise CommandFailed(
            f"{uri}: {error.strerror}; files of a local directory can only be read on the broker's machine; "
            "elsewhere use mq subscribe"
        ) from error


def _download(url: str, copy: BinaryIO) -> None:
    try:
        with httpx.stream("GET", url) as response:
            response.raise_for_status()
            for chunk in response.iter_bytes():
                copy.write(chunk)
    except httpx.HTTPStatusError as error:
        raise CommandFailed(
            f"{_without_signature(url)}: the store answered {error.response.status_code} {error.response.reason_phrase}"
        ) from error
    except httpx.HTTPError as error:
        raise CommandFailed(f"{_without_signature(url)}: {error}") from error


def _without_signature(url: str) -> str:
    """The address without its signature, which is secret."""
    return url.partition("?")[0]
