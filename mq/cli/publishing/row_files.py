"""The rows of files and of stdin as messages: publish them, or only look at them."""

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from braidmq import AsyncClient, BraidMQError, OutgoingMessage, Topic
from braidmq.json_rows.encoding import rows_to_json
from braidmq.publish.encoding.outgoing import Headers
from braidmq.publish.encoding.tables import TablePlan, message_tables
from braidmq.publish.row_names import OF_TABLE, rename_row
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

if TYPE_CHECKING:
    from mq.cli.publishing.message_batches import Payload

_SLICE_BYTES = 8 * 1024 * 1024
_JSON_HEADER = {"content-type": "application/json"}


async def publish_rows(
    client: AsyncClient, job: Job, topic: Topic, name: str, form: Format, skip: Skip, summary: PublishSummary
) -> None:
    """Publish the rows of a file. Raises `CommandFailed`, also through `acknowledged`."""
    with ExitStack() as stack:
        progress = stack.enter_context(Progress(name, shown=sys.stderr.isatty() and name != STDIN))
        row = messages = 0
        async for batch in read_ahead(_batches(job, topic, name, form, progress, stack)):
            skipped = skip.take(batch.table.num_rows)
            table, plan = _messages(job, topic, name, batch, row, skipped)

            for start, rows, payload in _parts(table, batch.payloads, skipped):
                if payload is not None:
                    await _publish_payload(client, job, rows, payload, summary)
                    continue
                shown = partial(_advance, summary, progress, row + skipped + start, messages + start)
                part = replace(plan, first_row=plan.first_row + start)
                try:
                    await _publish_table(client, job.topic, rows, part, summary, shown)
                except BraidMQError as failure:
                    rename_row(failure, OF_TABLE, partial(_place, name, batch.lines, row))
                    raise
            row += batch.table.num_rows
            messages += table.num_rows
            progress.advance(row, messages)


def _parts(
    table: pa.Table, payloads: "Sequence[Payload]", skipped: int
) -> "Iterator[tuple[int, pa.Table, Payload | None]]":
    """The rows in order, each part with its first row: rows with a payload one by one, and the rows between them."""
    begin = 0
    for payload in payloads:
        at = payload.row - skipped
        if at >= 0:
            if at > begin:
                yield begin, table.slice(begin, at - begin), None
            yield at, table.slice(at, 1), payload
            begin = at + 1
    if begin < table.num_rows:
        yield begin, table.slice(begin), None


def _advance(
    summary: PublishSummary, progress: Progress, rows: int, messages: int, acknowledged: int, total: int
) -> None:
    summary.advance(acknowledged, total)
    progress.advance(rows + acknowledged, messages + acknowledged)


async def _publish_table(
    client: AsyncClient,
    topic: str,
    table: pa.Table,
    plan: TablePlan,
    summary: PublishSummary,
    progress: Callable[[int, int], None],
) -> None:
    publishing = client.publish_table(
        topic,
        table,
        progress=progress,
        key=plan.key,
        value=plan.value,
        headers=plan.headers,
        event_time=plan.event_time,
        non_finite=plan.non_finite,
        deliver_at=plan.deliver_at,
        delay=plan.delay,
        expires_at=plan.expires_at,
        first_row=plan.first_row,
    )
    await acknowledged(publishing, table.num_rows, summary, SystemClock())


async def _publish_payload(
    client: AsyncClient, job: Job, row: pa.Table, payload: "Payload", summary: PublishSummary
) -> None:
    """Publish a message whose value lies beside the log of the topic it comes from: a copy has one of its own."""
    (given,), times = row.to_pylist(), job.times
    with tempfile.TemporaryFile() as file:
        async with client.open(payload.message) as chunks:
            async for chunk in chunks:
                file.write(chunk)
        file.seek(0)
        message = OutgoingMessage(
            file, given["key"], dict(given["headers"] or ()), given["event_time"], times.deliver_at, times.delay,
            times.expires_at,
        )  # fmt: skip
        await acknowledged(client.publish_many(job.topic, [message]), 1, summary, SystemClock())


async def preview_rows(job: Job, topic: Topic, name: str, form: Format, skip: Skip, preview: PublishPreview) -> None:
    """Add the rows of a file to a preview. Raises `CommandFailed`."""
    with ExitStack() as stack:
        progress = stack.enter_context(Progress(name, shown=False))
        row = 0
        async for batch in read_ahead(_batches(job, topic, name, form, progress, stack)):
            table, plan = _messages(job, topic, name, batch, row, skip.take(batch.table.num_rows))
            for messages in message_tables(table, plan, slice_bytes=_SLICE_BYTES):
                preview.add(messages)
            row += batch.table.num_rows


def _messages(
    job: Job, topic: Topic, name: str, batch: Batch, first_row: int, skipped: int
) -> tuple[pa.Table, TablePlan]:
    """The rows of a batch to publish, as a table, and the plan that names its columns."""
    table, key, value, is_json = batch.table.slice(skipped), batch.key, batch.value, batch.is_json
    first_row += skipped
    if batch.keys is not None:
        # The column has numbers, as the rows in JSON do, and the key is the text in the input.
        values = table[value] if value is not None else _as_json(job, table, first_row)
        table = pa.table({"key": batch.keys.slice(skipped), "value": values})
        key, value, is_json = "key", "value", value is None
    if topic.config["value_type"] == "json" and value is not None and not (is_json or batch.is_message):
        _check_json(table[value], name, batch.lines and batch.lines[skipped:], first_row)
    headers: Headers = {**_JSON_HEADER, **job.headers} if is_json else job.headers
    if key is None and job.key is not None:
        key = "key"
        table = table.append_column(key, pa.repeat(job.key, table.num_rows))
    plan = TablePlan(
        key=key,
        value=value,
        headers="headers" if batch.is_message else headers or None,
        event_time="event_time" if batch.is_message else None,
        non_finite=job.non_finite,
        deliver_at=job.times.deliver_at,
        delay=job.times.delay,
        expires_at=job.times.expires_at,
        first_row=first_row,
        now_us=SystemClock().now_us(),
    )
    return table, plan


def _as_json(job: Job, table: pa.Table, first_row: int) -> Any:
    return rows_to_json(table, non_finite=job.non_finite, first_row=first_row)


def _check_json(values: "pa.ChunkedArray[Any]", name: str, lines: Sequence[int] | None, first_row: int) -> None:
    """Raise `CommandFailed` for text that is no JSON: the broker could name it only by its place in a request."""
    if not (pa.types.is_binary(values.type) or pa.types.is_string(values.type)):
        return
    for row, value in enumerate(values.to_pylist()):
        try:
            if value is not None:
                orjson.loads(value)
        except orjson.JSONDecodeError as error:
            where = _place(name, lines, first_row, first_row + row)
            raise CommandFailed(
                f"{where}: the topic's values must be JSON, but this one is not JSON: {error}; a text needs quotes, "
                'such as "now"'
            ) from error


def _place(name: str, lines: Sequence[int] | None, first_row: int, row: int) -> str:
    """The place of a row in the input. `lines` are those of the rows from `first_row` on, if the input has lines."""
    return f"{name}, " + (f"row {row}" if lines is None else f"line {lines[row - first_row]}")


def _batches(job: Job, topic: Topic, name: str, form: Format, progress: Progress, stack: ExitStack) -> Iterator[Batch]:
    if form == "parquet":
        if name == STDIN:
            raise CommandFailed("Parquet cannot be read from stdin: save it to a file and give --file")
        import pyarrow.parquet as pq

        try:
            # Arrow would report a missing file in words of its own.
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
    if form == "messages":
        # Imported here: it brings decoders of bodies, which the other formats do not need.
        from mq.cli.publishing.message_batches import message_batches

        lines = message_batches(stream, topic)
    elif form == "ndjson":
        lines = ndjson_batches(stream, job.fields, to_json=topic.config["value_type"] == "json")
    else:
        lines = line_batches(stream)
    return progress.follow(lines, stream.size_bytes, lambda _: stream.done_bytes)
