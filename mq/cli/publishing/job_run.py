"""Publish what a `Job` names, or only look at it."""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import BinaryIO

import pyarrow as pa

from braidmq import AsyncClient, BraidMQError, OutgoingMessage
from braidmq.publish.encoding.tables import TablePlan, message_tables
from filer.clock import SystemClock
from mq.cli.failures import CommandFailed
from mq.cli.publishing.batches import Batch, csv_batches, line_batches, ndjson_batches, parquet_batches
from mq.cli.publishing.input_forms import Fields, Format, format_of
from mq.cli.publishing.input_stream import STDIN, InputStream, open_input
from mq.cli.publishing.job import Job
from mq.cli.publishing.progress import Progress
from mq.cli.publishing.publish_preview import PublishPreview
from mq.cli.publishing.publish_summary import PublishSummary
from mq.cli.publishing.read_ahead import read_ahead
from mq.cli.publishing.resuming import Skip, acknowledged

# A larger payload is streamed to the store and published by reference.
_INLINE_BYTES = 1024 * 1024
_SLICE_BYTES = 8 * 1024 * 1024
_JSON_HEADER = {"content-type": "application/json"}


async def publish_all(client: AsyncClient, job: Job, values: Sequence[bytes], summary: PublishSummary) -> None:
    """Publish the values, then the files. Raises `CommandFailed`, which says how to go on."""
    try:
        await client.topic(job.topic)
        if values:
            messages = [OutgoingMessage(value, job.key, job.headers) for value in values]
            await acknowledged(client.publish_many(job.topic, messages), len(messages), summary, SystemClock())
        skip = Skip(job.skip)
        for name in job.files:
            form = _form(job, name)
            if form != "raw":
                await _publish_rows(client, job, name, form, skip, summary)
            elif not skip.take(1):
                await _publish_whole(client, job, name, summary)
        skip.check_all_taken()
    except BraidMQError as error:
        if error.published is not None:
            summary.add(error.published)
        raise CommandFailed(f"{error}{summary.stored_so_far(job.skip)}") from error
    except CommandFailed as error:
        raise CommandFailed(f"{error}{summary.stored_so_far(job.skip)}") from error


async def preview_all(client: AsyncClient, job: Job, values: Sequence[bytes], preview: PublishPreview) -> None:
    """Read all that would be published. The topic must exist, as for publishing."""
    await client.topic(job.topic)
    if values:
        preview.add(pa.table({"key": [job.key] * len(values), "value": values}))
    skip = Skip(job.skip)
    for name in job.files:
        form = _form(job, name)
        if form == "raw":
            if not skip.take(1):
                preview.add_whole(name, job.key)
            continue
        with ExitStack() as stack:
            progress = stack.enter_context(Progress(name, shown=False))
            row = 0
            async for batch in read_ahead(_batches(job, name, form, progress, stack)):
                table, plan = _messages(job, batch, row, skip)
                for messages in message_tables(table, plan, slice_bytes=_SLICE_BYTES):
                    preview.add(messages)
                row += batch.table.num_rows
    skip.check_all_taken()


def _messages(job: Job, batch: Batch, first_row: int, skip: Skip) -> tuple[pa.Table, TablePlan]:
    """What is to be published of a batch as a table, and which of its columns is which part of a message."""
    headers = {**_JSON_HEADER, **job.headers} if batch.is_json else job.headers
    skipped = skip.take(batch.table.num_rows)
    table, key = batch.table.slice(skipped), batch.key
    if key is None and job.key is not None:
        key = "key"
        table = table.append_column(key, pa.repeat(job.key, table.num_rows))
    plan = TablePlan(
        key=key, value=batch.value, headers=headers or None, non_finite=job.non_finite, first_row=first_row + skipped
    )
    return table, plan


def _form(job: Job, name: str) -> Format:
    if job.upload:
        return "raw"
    form = job.form or ("lines" if name == STDIN else format_of(name))
    if form in ("lines", "raw") and job.fields != Fields():
        raise CommandFailed(f"{name} is read as {form}, which has no fields: leave out --key-field and --value-field")
    if form in ("csv", "parquet") and job.key is not None:
        raise CommandFailed(f"{name} is read as {form}: take keys from a column with --key-field, not --key")
    return form


async def _publish_whole(client: AsyncClient, job: Job, name: str, summary: PublishSummary) -> None:
    """Publish a file as one message. Large files go by reference, in bounded memory."""
    with ExitStack() as stack:
        if name == STDIN:
            source: BinaryIO = stack.enter_context(tempfile.TemporaryFile())
            async for chunk in read_ahead(_chunks(stack.enter_context(open_input(name)))):
                source.write(chunk)
        else:
            source = stack.enter_context(_file(name))
        large = source.seek(0, os.SEEK_END) > _INLINE_BYTES
        source.seek(0)
        message = OutgoingMessage(source if job.upload or large else source.read(), job.key, job.headers)
        await acknowledged(client.publish_many(job.topic, [message]), 1, summary, SystemClock())


def _file(name: str) -> BinaryIO:
    return open(name, "rb")


def _chunks(stream: InputStream) -> Iterator[bytes]:
    return iter(lambda: stream.read(_INLINE_BYTES), b"")


async def _publish_rows(
    client: AsyncClient, job: Job, name: str, form: Format, skip: Skip, summary: PublishSummary
) -> None:
    with ExitStack() as stack:
        progress = stack.enter_context(Progress(name, shown=sys.stderr.isatty() and name != STDIN))
        row = 0
        async for batch in read_ahead(_batches(job, name, form, progress, stack)):
            table, plan = _messages(job, batch, row, skip)
            publishing = client.publish_table(
                job.topic,
                table,
                progress=summary.advance,
                key=plan.key,
                value=plan.value,
                headers=plan.headers,
                non_finite=plan.non_finite,
                first_row=plan.first_row,
            )
            await acknowledged(publishing, table.num_rows, summary, SystemClock())
            row += batch.table.num_rows
            progress.update(table.num_rows)


def _batches(job: Job, name: str, form: Format, progress: Progress, stack: ExitStack) -> Iterator[Batch]:
    if form == "parquet":
        if name == STDIN:
            raise CommandFailed("Parquet cannot be read from stdin: save it to a file and give --file")
        import pyarrow.parquet as pq

        try:
            # Of a file that is missing Arrow tells in words of its own.
            _file(name).close()
            file = stack.enter_context(pq.ParquetFile(name))
        except pa.ArrowInvalid as error:
            raise CommandFailed(f"{name}: {error}") from error
        return progress.count(parquet_batches(file, job.fields, name), file.metadata.num_rows)
    stream = stack.enter_context(open_input(name))
    progress.follow(stream)
    if form == "csv":
        return csv_batches(stream, job.fields, nulls=list(job.nulls), as_text=job.as_text)
    return ndjson_batches(stream, job.fields) if form == "ndjson" else line_batches(stream)
