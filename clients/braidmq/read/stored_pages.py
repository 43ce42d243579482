"""Reads a topic's messages from its files on the store; brokers only list the files."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing

import httpx
import pyarrow as pa

from braidmq.cluster.admin import Admin
from braidmq.errors import BraidMQError
from braidmq.message import MessagePage
from braidmq.read.file_reader import file_batches
from braidmq.read.file_ref import FileRef
from braidmq.read.remote_file import FileUnreachable
from braidmq.transport.tls import tls_context
from filer.errors import CorruptFile
from filer.topic.positions import to_marker

LEAST_ROWS, LEAST_BYTES = 20_000, 16 * 1024 * 1024
"""If less than both of these lies ahead in files, a broker is asked instead."""
_LEAST_ROWS_A_FILE, _LEAST_BYTES_A_FILE = 1000, 256 * 1024
_LISTED_BYTES = 1024 * 1024 * 1024
_TIMEOUT_SECONDS = 30.0


async def stored_pages(admin: Admin, topic: str, marker: str, schema: pa.Schema) -> AsyncGenerator[MessagePage]:
    """Iterate over pages from the marker on, read from files, in the columns of `schema`, each key in order.

    It ends if little is left in files, if this machine cannot reach them, or if brokers do not list them. A broker
    continues after the last page. Each page starts at the marker of the one before, so a reader that stops at any of
    them neither misses nor repeats a message. One row group of one file is in memory, and a page or two of it.
    """
    async with _Files() as files:
        try:
            while ahead := await _files_ahead(admin, topic, marker):
                offsets, listed = ahead
                for segment, file in listed:
                    # The list ends before messages that are lost. It goes on behind those that have expired or are
                    # given up.
                    offsets[segment] = max(offsets[segment], file.start)
                    columns = [name for name in schema.names if name != "segment"]
                    async with aclosing(files.batches(file, segment, offsets[segment], columns)) as batches:
                        async for batch in batches:
                            start, offsets[segment] = marker, offsets[segment] + batch.num_rows
                            marker = to_marker(topic, offsets)
                            yield MessagePage(topic, _as_page(batch, segment, schema), start=start, end=marker)
        except (BraidMQError, FileUnreachable, CorruptFile):
            return  # a broker reads on, or reports the failure


async def _files_ahead(
    admin: Admin, topic: str, marker: str
) -> tuple[dict[int, int], list[tuple[int, FileRef]]] | None:
    """The offsets to go on from, and the files ahead by segment, in order; None if they are not worth reading.

    Successors are read once all of their predecessors have been read: the position names them then.
    """
    offsets = (await admin.position(topic, {"marker": marker})).offsets
    listed: list[tuple[int, FileRef]] = []
    for segment, offset in sorted(offsets.items()):
        page, _ = await admin.segment_files(topic, segment, offset, None)
        listed += [(segment, FileRef.of(file)) for file in page]
        if sum(file.size_bytes for _, file in listed) >= _LISTED_BYTES:
            break  # enough for now: after these, the next files are listed
    return (offsets, listed) if _are_worth_reading(listed, offsets) else None


def _are_worth_reading(listed: list[tuple[int, FileRef]], offsets: Mapping[int, int]) -> bool:
    """Whether enough lies ahead, in files that are not so small that a broker is faster."""
    rows = sum(file.stop - max(file.start, offsets[segment]) for segment, file in listed)
    size_bytes = sum(file.size_bytes for _, file in listed)
    is_enough = rows >= LEAST_ROWS or size_bytes >= LEAST_BYTES
    return is_enough and (rows >= _LEAST_ROWS_A_FILE * len(listed) or size_bytes >= _LEAST_BYTES_A_FILE * len(listed))


class _Files:
    """Reads files in threads, so that Arrow and the store do not block the event loop."""

    def __init__(self) -> None:
        self._http = httpx.Client(timeout=_TIMEOUT_SECONDS, verify=tls_context())

    async def __aenter__(self) -> "_Files":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._http.close()

    async def batches(
        self, file: FileRef, segment: int, offset: int, columns: Sequence[str]
    ) -> AsyncGenerator[pa.RecordBatch]:
        """Iterate over the messages of a file from an offset on. The next batch is read while one is in use."""
        batches = file_batches(self._http, file, segment, offset, file.stop, columns)
        next_batch = asyncio.create_task(asyncio.to_thread(_next, batches))
        try:
            while (batch := await next_batch) is not None:
                next_batch = asyncio.create_task(asyncio.to_thread(_next, batches))
                yield batch
        finally:
            # A thread cannot be interrupted. Wait for it, so that nothing is closed while it reads.
            await asyncio.gather(next_batch, return_exceptions=True)


def _next(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return next(batches, None)


def _as_page(batch: pa.RecordBatch, segment: int, schema: pa.Schema) -> pa.Table:
    """The columns of a broker's page. A file has no column for the segment: its folder names it."""
    columns = [
        pa.repeat(pa.scalar(segment, field.type), batch.num_rows)
        if field.name == "segment"
        else batch.column(field.name)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
