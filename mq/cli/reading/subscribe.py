"""`mq subscribe`: print the messages of a topic on stdout, or write them into a Parquet file."""

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import typer

from braidmq import AsyncClient, Message, Reference
from filer.clock import SystemClock
from filer.topic.topic_config import TopicConfig
from mq.cli.connect import with_client
from mq.cli.options import DEFAULT_URL, Timeout, TopicName, Url
from mq.cli.output import write_out
from mq.cli.reading.message_forms import Form, MessageForm, ValuesForm, form_of
from mq.cli.reading.moments import moment, start_of
from mq.cli.reading.reading import Reading, read

if TYPE_CHECKING:
    from mq.cli.reading.parquet_file import ParquetFile

_Output = Literal[Form, "parquet"]


def subscribe(
    topic: TopicName,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="Where to start: earliest, latest, an RFC 3339 time, or how long ago: 5m, 2h, 1d. Default: latest; "
            "with --to or --until-end: earliest.",
        ),
    ] = None,
    stop: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TIME", help="Stop before the messages of this time: RFC 3339, or how long ago: 5m."
        ),
    ] = None,
    marker: Annotated[
        str | None,
        typer.Option(
            "--marker",
            metavar="MARKER",
            help="Start at a marker of an earlier reader, as the HTTP API and clients give.",
        ),
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, metavar="N", help="Start with the last N messages.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only messages with this key.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=0, metavar="N", help="Stop after this many messages.")
    ] = None,
    until_end: Annotated[bool, typer.Option("--until-end", help="Stop at the present end of the topic.")] = False,
    form: Annotated[
        _Output,
        typer.Option(
            "--format",
            help="lines: values, one per line (also referenced payloads). raw: values without separators. "
            "ndjson: messages as JSON, one per line. json: messages as one list. table: for people. parquet: the file "
            "that --output names.",
        ),
    ] = "lines",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", dir_okay=False, metavar="FILE", help="The file that --format parquet writes."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format ndjson.")] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
) -> None:
    """Print the messages of a topic, in order for each key, and wait for more."""
    if sum(each is not None for each in (start, marker, tail)) > 1:
        raise typer.BadParameter("give only one of --from, --marker and --tail")
    clock = SystemClock()
    now_us = clock.now_us()
    has_end = until_end or stop is not None
    _check_output(form, output, has_end=has_end or limit is not None, as_json=as_json)
    if start is None and marker is None and tail is None:
        start = "earliest" if has_end else "latest"
    begin = None if start is None else start_of(start, now_us)
    end = None if stop is None else moment(stop, now_us, option="--to")
    if isinstance(begin, datetime) and end is not None and end < begin:
        raise typer.BadParameter(f"{stop!r} is before {start!r}, where --from begins", param_hint="--to")
    reading = Reading(
        topic,
        start=begin,
        marker=marker,
        tail=tail,
        key=None if key is None else os.fsencode(key),
        stop=end,
        until_end=until_end,
        patient=timeout is None,
    )

    async def work(client: AsyncClient) -> None:
        found = (await client.topic(topic)).config
        config = TopicConfig(key_type=found["key_type"], value_type=found["value_type"])
        async with aclosing(_limited(read(client, clock, reading), limit)) as pages:
            if output is not None:
                from mq.cli.reading.parquet_file import ParquetFile

                await _write_parquet(pages, ParquetFile(output, config, clock))
            else:
                await _print_all(client, topic, pages, form_of("ndjson" if as_json else _printed(form), topic, config))

    with_client(url, timeout, work, ends_with_reader=output is None)


def _check_output(form: _Output, output: Path | None, *, has_end: bool, as_json: bool) -> None:
    if (form == "parquet") != (output is not None) or (output is not None and as_json):
        raise typer.BadParameter("--format parquet and --output FILE belong together; other formats go to stdout")
    if output is not None and not has_end:
        raise typer.BadParameter(
            "a Parquet file needs an end: give --until-end, --to or --limit", param_hint="--format"
        )


def _printed(form: _Output) -> Form:
    assert form != "parquet", "it is written into a file"
    return form


async def _limited(pages: AsyncGenerator[pa.Table], limit: int | None) -> AsyncGenerator[pa.Table]:
    """Yield at most `limit` rows."""
    left = limit
    async with aclosing(pages):
        while left is None or left > 0:
            rows = await anext(pages, None)
            if rows is None:
                return
            yield rows if left is None else rows.slice(0, left)
            left = None if left is None else left - rows.num_rows


async def _write_parquet(pages: AsyncIterator[pa.Table], file: "ParquetFile") -> None:
    with file:
        async for rows in pages:
            file.write(rows)


async def _print_all(client: AsyncClient, topic: str, pages: AsyncIterator[pa.Table], form: MessageForm) -> None:
    write_out(form.head)
    try:
        async for rows in pages:
            await _print(client, topic, rows, form)
    finally:
        write_out(form.tail)


async def _print(client: AsyncClient, topic: str, rows: pa.Table, form: MessageForm) -> None:
    """Print a page. Where only values are printed, payloads stored beside the log replace theirs."""
    done = 0
    if isinstance(form, ValuesForm):
        for row in np.flatnonzero(rows["_ref"].is_valid().to_numpy()).tolist():
            write_out(form.page(rows.slice(done, row - done)))
            await _print_payload(client, topic, rows.slice(row, 1).to_pylist()[0])
            write_out(form.end)
            done = row + 1
    write_out(form.page(rows.slice(done)))


async def _print_payload(client: AsyncClient, topic: str, row: dict[str, Any]) -> None:
    ref = Reference(row["_ref"]["uri"], row["_ref"]["size"], row["_ref"]["etag"], row["_ref"]["sha256"])
    message = Message(topic, row["segment"], row["_offset"], row["_timestamp"], row["key"], None, ref=ref)
    async with client.open(message) as payload:
        async for chunk in payload:
            write_out(chunk)
