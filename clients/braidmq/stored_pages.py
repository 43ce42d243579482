"""Reading what a topic has on the store from the store itself: brokers only say which files that is."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing

import httpx
import pyarrow as pa

from braidmq.admin import Admin
from braidmq.errors import BraidMQError
from braidmq.file_reader import file_batches
from braidmq.file_ref import FileRef
from braidmq.message import MessagePage
from braidmq.remote_file import FileUnreachable
from braidmq.tls import tls_context
from filer.errors import CorruptFile
from filer.positions import to_marker

LEAST_ROWS, LEAST_BYTES = 20_000, 16 * 1024 * 1024
"""With less than either ahead on the store it is not worth the asking for files."""
_LEAST_ROWS_A_FILE, _LEAST_BYTES_A_FILE = 1000, 256 * 1024
_LISTED_BYTES = 1024 * 1024 * 1024
_TIMEOUT_SECONDS = 30.0


async def stored_pages(admin: Admin, topic: str, marker: str, schema: pa.Schema) -> AsyncGenerator[MessagePage]:
    """Pages as a broker gives them from the marker on, in those columns, read from files; each key's in order.

    It ends where little is left in files, where they cannot be reached from here, or brokers do not tell of them: a
    broker goes on behind the last page. Each page is behind the marker of the one before, so nobody who stops at any
    of them misses or doubles anything. One row group of one file is in memory, and a page or two of it.
    """
    async with _Files() as files:
        try:
            while ahead := await _ahead(admin, topic, marker):
                offsets, listed = ahead
                for segment, file in listed:
                    async with aclosing(files.batches(file, segment, offsets[segment])) as batches:
                        async for batch in batches:
                            start, offsets[segment] = marker, offsets[segment] + batch.num_rows
                            marker = to_marker(topic, offsets)
                            yield MessagePage(topic, _as_page(batch, segment, schema), start=start, end=marker)
        except (BraidMQError, FileUnreachable, CorruptFile):
            return  # a broker reads it, or says what is wrong


async def _ahead(admin: Admin, topic: str, marker: str) -> tuple[dict[int, int], list[tuple[int, FileRef]]] | None:
    """Where reading goes on, and files ahead of there by segment, in order; None where they are not worth it.

    Successors are entered once all that came before them was read: they are in the position then.
    """
    offsets = (await admin.position(topic, {"marker": marker})).offsets
    listed: list[tuple[int, FileRef]] = []
    for segment, offset in sorted(offsets.items()):
        page, _ = await admin.segment_files(topic, segment, offset, None)
        listed += [(segment, FileRef.of(file)) for file in page]
        if sum(file.size_bytes for _, file in listed) >= _LISTED_BYTES:
            break  # enough for now: it is asked again behind these
    return (offsets, listed) if _worth_it(listed, offsets) else None


def _worth_it(listed: list[tuple[int, FileRef]], offsets: Mapping[int, int]) -> bool:
    """Whether there is enough ahead, in files that are not so small that a broker is faster."""
    rows = sum(file.stop - max(file.start, offsets[segment]) for segment, file in listed)
    size_bytes = sum(file.size_bytes for _, file in listed)
    enough = rows >= LEAST_ROWS or size_bytes >= LEAST_BYTES
    return enough and (rows >= _LEAST_ROWS_A_FILE * len(listed) or size_bytes >= _LEAST_BYTES_A_FILE * len(listed))


class _Files:
    """Reads files on threads: Arrow and the store keep no event loop waiting."""

    def __init__(self) -> None:
        self._http = httpx.Client(timeout=_TIMEOUT_SECONDS, verify=tls_context())

    async def __aenter__(self) -> "_Files":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._http.close()

    async def batches(self, file: FileRef, segment: int, offset: int) -> AsyncGenerator[pa.RecordBatch]:
        """The messages of a file from an offset on, the next ones being read while one batch is dealt with."""
        batches = file_batches(self._http, file, segment, offset, file.stop, _COLUMNS)
        coming = asyncio.create_task(asyncio.to_thread(_next, batches))
        try:
            while (batch := await coming) is not None:
                coming = asyncio.create_task(asyncio.to_thread(_next, batches))
                yield batch
        finally:
            # A thread cannot be interrupted: what it reads is waited for, so that nothing is closed under it.
            await asyncio.gather(coming, return_exceptions=True)


_COLUMNS = ("_offset", "_timestamp", "key", "value", "event_time", "headers", "_ref")


def _next(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return next(batches, None)


def _as_page(batch: pa.RecordBatch, segment: int, schema: pa.Schema) -> pa.Table:
    """The columns of a broker's page: a file does not have the segment, which its folder tells."""
    columns = [
        pa.repeat(pa.scalar(segment, field.type), batch.num_rows)
        if field.name == "segment"
        else batch.column(field.name)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
