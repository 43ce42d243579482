"""The rows of files and of stdin as messages: publish them, or only look at them."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pyarrow as pa

from braidmq import AsyncClient
from braidmq.publish.encoding.outgoing import Headers
from braidmq.publish.encoding.tables import TablePlan, message_tables
from filer.clock import SystemClock
from mq.cli.failures import CommandFailed
from mq.cli.publishing.batches import (
    CSV_BLOCK_BYTES,
    PARQUET_ROWS,
    Batch,
    csv_batches,
    line_batches,
    ndjson_batches,
    parquet_batches,
)
from mq.cli.publishing.input_forms import Format
from mq.cli.publishing.input_stream import STDIN, open_input
from mq.cli.publishing.job import Job
from mq.cli.publishing.progress import Progress
from mq.cli.publishing.publish_preview import PublishPreview
from mq.cli.publishing.publish_summary import PublishSummary
from mq.cli.publishing.read_ahead import read_ahead
from mq.cli.publishing.resuming import Skip, acknowledged

_SLICE_BYTES = 8 * 1024 * 1024
_JSON_HEADER = {"content-type": "application/json"}


async def publish_rows(
    client: AsyncClient, job: Job, name: str, form: Format, skip: Skip, summary: PublishSummary
) -> None:
    """Publish the rows of a file. Raises `CommandFailed`, also through `acknowledged`."""
    with ExitStack() as stack:
        progress = stack.enter_context(Progress(name, shown=sys.stderr.isatty() and name != STDIN))
        row = messages = 0
        async for batch in read_ahead(_batches(job, name, form, progress, stack)):
            table, plan = _messages(job, batch, row, skip)
            skipped = batch.table.num_rows - table.num_rows

            def advance(acknowledged: int, total: int, at: int = row + skipped, before: int = messages) -> None:
                summary.advance(acknowledged, total)
                progress.advance(at + acknowledged, before + acknowledged)

            publishing = client.publish_table(
                job.topic,
                table,
                progress=advance,
                key=plan.key,
                value=plan.value,
                headers=plan.headers,
                non_finite=plan.non_finite,
                deliver_at=plan.deliver_at,
                delay=plan.delay,
                expires_at=plan.expires_at,
                first_row=plan.first_row,
            )
            await acknowledged(publishing, table.num_rows, summary, SystemClock())
            row += batch.table.num_rows
            messages += table.num_rows
            progress.advance(row, messages)


async def preview_rows(job: Job, name: str, form: Format, skip: Skip, preview: PublishPreview) -> None:
    """Add the rows of a file to a preview. Raises `CommandFailed`."""
    with ExitStack() as stack:
        progress = stack.enter_context(Progress(name, shown=False))
        row = 0
        async for batch in read_ahead(_batches(job, name, form, progress, stack)):
            table, plan = _messages(job, batch, row, skip)
            for messages in message_tables(table, plan, slice_bytes=_SLICE_BYTES):
                preview.add(messages)
            row += batch.table.num_rows


def _messages(job: Job, batch: Batch, first_row: int, skip: Skip) -> tuple[pa.Table, TablePlan]:
    """What is to be published of a batch as a table, and which of its columns is which part of a message."""
    headers: Headers = {**_JSON_HEADER, **job.headers} if batch.is_json else job.headers
    skipped = skip.take(batch.table.num_rows)
    table, key = batch.table.slice(skipped), batch.key
    if key is None and job.key is not None:
        key = "key"
        table = table.append_column(key, pa.repeat(job.key, table.num_rows))
    plan = TablePlan(
        key=key,
        value=batch.value,
        headers=headers or None,
        non_finite=job.non_finite,
        deliver_at=job.times.deliver_at,
        delay=job.times.delay,
        expires_at=job.times.expires_at,
        first_row=first_row + skipped,
        now_us=SystemClock().now_us(),
    )
    return table, plan


def _batches(job: Job, name: str, form: Format, progress: Progress, stack: ExitStack) -> Iterator[Batch]:
    if form == "parquet":
        if name == STDIN:
            raise CommandFailed("Parquet cannot be read from stdin: save it to a file and give --file")
        import pyarrow.parquet as pq

        try:
            # Of a file that is missing Arrow tells in words of its own.
            open(name, "rb").close()
            file = stack.enter_context(pq.ParquetFile(name))
        except pa.ArrowInvalid as error:
            raise CommandFailed(f"{name}: {error}") from error
        parquet, rows = parquet_batches(file, job.fields, name), file.metadata.num_rows
        return progress.follow(parquet, rows, lambda batches: min(batches * PARQUET_ROWS, rows))
    stream = stack.enter_context(open_input(name))
    if form == "csv":
        tables = csv_batches(stream, job.fields, nulls=list(job.nulls), as_text=job.as_text)
        return progress.follow(tables, stream.size_bytes, lambda batches: stream.done_behind(batches * CSV_BLOCK_BYTES))
    lines = ndjson_batches(stream, job.fields) if form == "ndjson" else line_batches(stream)
    return progress.follow(lines, stream.size_bytes, lambda _: stream.done_bytes)
