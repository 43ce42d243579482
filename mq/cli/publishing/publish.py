"""`mq publish`: publish values from arguments, stdin or files."""

import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

import typer

from braidmq.errors import InvalidArgument
from braidmq.json_rows.texts import NonFinite
from braidmq.publish.encoding.delivery_times import DeliveryTimes
from filer.clock import SystemClock
from filer.format.headers import wrong_headers
from filer.quantities import parse_duration_seconds
from filer.times import moment_of, parse_rfc3339
from mq.cli.connect import with_client
from mq.cli.interrupts import INTERRUPTS
from mq.cli.options import DEFAULT_URL, Json, Timeout, TopicName, Url
from mq.cli.publishing.input_forms import Fields, Format
from mq.cli.publishing.input_stream import STDIN
from mq.cli.publishing.job import Job
from mq.cli.publishing.publish_summary import PublishSummary
from mq.cli.publishing.resuming import interrupted

DEFAULT_NULLS = ("", "NA")


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
            help="What the input is: values line by line (lines), a message for each row (ndjson, csv, parquet), "
            "messages as mq subscribe --json prints them (messages), or one message as a whole (raw). Default: by the "
            "file's name; stdin: lines.",
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
    delay: Annotated[
        str | None,
        typer.Option(
            "--delay", metavar="TIME", help="Consumers of queue groups get the messages this much later: 30s, 5m, 2h."
        ),
    ] = None,
    deliver_at: Annotated[
        str | None, typer.Option("--deliver-at", metavar="TIME", help="The same from a time on: 2026-01-31T12:00:00Z.")
    ] = None,
    expires_at: Annotated[
        str | None, typer.Option("--expires-at", metavar="TIME", help="Such consumers get them until then, not after.")
    ] = None,
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
    job = Job(
        topic, key_bytes, _headers(header or []), file or ([] if values else [STDIN]), form,
        Fields(key_field, value_field), DEFAULT_NULLS if null is None else null, text, upload, non_finite,
        dry_run, skip, _times(delay, deliver_at, expires_at),
    )  # fmt: skip
    _check_usage(job, contents)
    # Imported here: help, completion and reports of wrong usage come sooner without Arrow.
    from mq.cli.publishing.job_run import preview_all, publish_all

    if dry_run:
        from mq.cli.publishing.publish_preview import PublishPreview

        preview = PublishPreview(topic)
        with_client(url, timeout, lambda client: preview_all(client, job, contents, preview))
        preview.show(as_json=as_json)
        return
    summary = PublishSummary(SystemClock())
    with INTERRUPTS.last_words(lambda: interrupted(summary, skip, None if values else context.obj.arguments)):
        with_client(url, timeout, lambda client: publish_all(client, job, contents, summary))
        summary.show(as_json=as_json)


def _headers(words: Sequence[str]) -> dict[str, bytes]:
    headers: dict[str, bytes] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise typer.BadParameter(f"{word!r} does not have the form NAME=VALUE", param_hint="--header")
        if name in headers:
            raise typer.BadParameter(f"the header {name!r} is given twice: give each name once", param_hint="--header")
        headers[name] = os.fsencode(value)
    if (reason := wrong_headers([*headers.items()])) is not None:
        raise typer.BadParameter(reason, param_hint="--header")
    return headers


def _times(delay: str | None, deliver_at: str | None, expires_at: str | None) -> DeliveryTimes:
    times = DeliveryTimes(
        None if deliver_at is None else _time(deliver_at, "--deliver-at"),
        None if delay is None else _delay(delay),
        None if expires_at is None else _time(expires_at, "--expires-at"),
    )
    try:
        times.headers(SystemClock().now_us())
    except InvalidArgument as error:
        raise typer.BadParameter(str(error), param_hint="--delay, --deliver-at, --expires-at") from error
    return times


def _time(text: str, option: str) -> datetime:
    try:
        return moment_of(parse_rfc3339(text))
    except ValueError as error:
        raise typer.BadParameter(
            f"it must be an RFC 3339 time such as 2026-01-31T12:00:00Z, not {text!r}", param_hint=option
        ) from error


def _delay(text: str) -> timedelta:
    try:
        return timedelta(seconds=parse_duration_seconds(text))
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(
            f"it must be a number with a unit, such as 30s, 5m, 2h or 1d, not {text!r}", param_hint="--delay"
        ) from error


def _check_usage(job: Job, values: Sequence[bytes]) -> None:
    if values and (job.files or job.form or job.fields != Fields() or job.skip):
        raise typer.BadParameter(
            "values are published unchanged: leave out --file, --format, --key-field, --value-field and --skip"
        )
    if job.key is not None and job.fields.key is not None:
        raise typer.BadParameter("give either --key or --key-field")
    if job.upload and (values or job.form not in (None, "raw")):
        raise typer.BadParameter("--upload publishes each file as a whole: give --file, and no --format other than raw")
