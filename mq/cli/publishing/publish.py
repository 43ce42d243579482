"""`mq publish`: publish values from arguments, stdin or files."""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from braidmq import AsyncClient, BraidMQError, OutgoingMessage
from braidmq.json_rows.encoding import NonFinite
from braidmq.publish.encoding.tables import TablePlan, message_tables
from filer.clock import SystemClock
from mq.cli.connect import with_client
from mq.cli.failures import CommandFailed
from mq.cli.interrupts import INTERRUPTS
from mq.cli.options import DEFAULT_URL, Json, Timeout, TopicName, Url
from mq.cli.publishing.batches import (
    Batch,
    Fields,
    Format,
    csv_batches,
    format_of,
    line_batches,
    ndjson_batches,
    parquet_batches,
)
from mq.cli.publishing.input_stream import STDIN, InputStream, open_input
from mq.cli.publishing.publish_preview import PublishPreview
from mq.cli.publishing.publish_summary import PublishSummary
from mq.cli.publishing.read_ahead import read_ahead
from mq.cli.publishing.resuming import Skip, acknowledged, interrupted

if TYPE_CHECKING:
    from mq.cli.publishing.progress import Progress

# A larger payload is streamed to the store and published by reference.
_INLINE_BYTES = 1024 * 1024
_SLICE_BYTES = 8 * 1024 * 1024
_JSON_HEADER = {"content-type": "application/json"}
DEFAULT_NULLS = ("", "NA")


@dataclass(frozen=True, slots=True)
class _Job:
    """What one call of the command publishes, and how."""

    topic: str
    key: bytes | None
    headers: dict[str, bytes | str]
    files: Sequence[str]
    form: Format | None
    fields: Fields
    nulls: Sequence[str]
    as_text: bool
    upload: bool
    non_finite: NonFinite
    dry_run: bool
    skip: int


def publish(
    context: typer.Context,
    topic: TopicName,
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="VALUE", help="Values, each a message. Without any, and without --file: lines of stdin."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Key of every message.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="A header of every message. May be repeated."),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", metavar="FILE", help="A file, also .gz or .zip; - is stdin. May be repeated."),
    ] = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="What the input is: messages line by line (lines), a message for each row (ndjson, csv, parquet), or "
            "one message as a whole (raw). Default: by the file's name; stdin: lines.",
        ),
    ] = None,
    key_field: Annotated[
        str | None,
        typer.Option("--key-field", metavar="NAME", help="Field of a csv, ndjson or parquet row to use as key."),
    ] = None,
    value_field: Annotated[
        str | None,
        typer.Option(
            "--value-field", metavar="NAME", help="Field of such a row to use as value. Default: the row as JSON."
        ),
    ] = None,
    null: Annotated[
        list[str] | None,
        typer.Option(
            "--null", metavar="TEXT", help="A CSV field to read as null. May be repeated. Default: empty fields and NA."
        ),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Read all CSV fields as text, even numbers.")] = False,
    non_finite: Annotated[
        NonFinite,
        typer.Option(
            "--non-finite",
            help="What NaN and infinities of csv and parquet rows become, since JSON has no numbers for them: refuse "
            "the row, null, or text such as NaN in quotes.",
        ),
    ] = "refuse",
    skip: Annotated[
        int,
        typer.Option("--skip", min=0, metavar="N", help="Leave out the first N messages of the input, over all files."),
    ] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Publish nothing: read everything, and print what would be stored.")
    ] = False,
    upload: Annotated[
        bool,
        typer.Option(
            "--upload", help="Store each file as an object of its own, however small, and publish a reference to it."
        ),
    ] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Publish messages: arguments, lines of stdin, or files row by row.

    The command ends once all messages are stored.
    """
    # Arguments are bytes: a key, a value or a header need not be UTF-8.
    contents = [os.fsencode(value) for value in values or []]
    key_bytes = None if key is None else os.fsencode(key)
    job = _Job(
        topic, key_bytes, _headers(header or []), file or ([] if values else [STDIN]), form,
        Fields(key_field, value_field), DEFAULT_NULLS if null is None else null, text, upload, non_finite,
        dry_run, skip,
    )  # fmt: skip
    _check_usage(job, contents)
    if dry_run:
        preview = PublishPreview(topic)
        with_client(url, timeout, lambda client: _preview(client, job, contents, preview))
        preview.show(as_json=as_json)
        return
    summary = PublishSummary(SystemClock())
    with INTERRUPTS.last_words(lambda: interrupted(summary, skip, None if values else context.obj.arguments)):
        with_client(url, timeout, lambda client: _publish(client, job, contents, summary))
        summary.show(as_json=as_json)


def _headers(words: Sequence[str]) -> dict[str, bytes | str]:
    headers: dict[str, bytes | str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise typer.BadParameter(f"{word!r} does not have the form NAME=VALUE", param_hint="--header")
        headers[name] = os.fsencode(value)
    return headers


def _check_usage(job: _Job, values: Sequence[bytes]) -> None:
    if values and (job.files or job.form or job.fields != Fields() or job.skip):
        raise typer.BadParameter(
            "values are published unchanged: leave out --file, --format, --key-field, --value-field and --skip"
        )
    if job.key is not None and job.fields.key is not None:
        raise typer.BadParameter("give either --key or --key-field")
    if job.upload and (values or job.form not in (None, "raw")):
        raise typer.BadParameter("--upload publishes each file as a whole: give --file, and no --format other than raw")


async def _publish(client: AsyncClient, job: _Job, values: Sequence[bytes], summary: PublishSummary) -> None:
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


async def _preview(client: AsyncClient, job: _Job, values: Sequence[bytes], preview: PublishPreview) -> None:
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
        from mq.cli.publishing.progress import Progress

        with ExitStack() as stack:
            progress = stack.enter_context(Progress(name, shown=False))
            row = 0
            async for batch in read_ahead(_batches(job, name, form, progress, stack)):
                table, plan = _messages(job, batch, row, skip)
                for messages in message_tables(table, plan, slice_bytes=_SLICE_BYTES):
                    preview.add(messages)
                row += batch.table.num_rows
    skip.check_all_taken()


def _messages(job: _Job, batch: Batch, first_row: int, skip: Skip) -> tuple[pa.Table, TablePlan]:
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


def _form(job: _Job, name: str) -> Format:
    if job.upload:
        return "raw"
    form = job.form or ("lines" if name == STDIN else format_of(name))
    if form in ("lines", "raw") and job.fields != Fields():
        raise CommandFailed(f"{name} is read as {form}, which has no fields: leave out --key-field and --value-field")
    if form in ("csv", "parquet") and job.key is not None:
        raise CommandFailed(f"{name} is read as {form}: take keys from a column with --key-field, not --key")
    return form


async def _publish_whole(client: AsyncClient, job: _Job, name: str, summary: PublishSummary) -> None:
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
    client: AsyncClient, job: _Job, name: str, form: Format, skip: Skip, summary: PublishSummary
) -> None:
    from mq.cli.publishing.progress import Progress

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


def _batches(job: _Job, name: str, form: Format, progress: "Progress", stack: ExitStack) -> Iterator[Batch]:
    if form == "parquet":
        if name == STDIN:
            raise CommandFailed("Parquet cannot be read from stdin: save it to a file and give --file")
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
