"""`mq subscribe`: print the messages of a topic on stdout."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer

from braidmq import AsyncClient, Message, Reference
from filer.topic.topic_config import TopicConfig
from mq.cli.connect import with_client
from mq.cli.options import DEFAULT_URL, Timeout, TopicName, Url
from mq.cli.output import write_out
from mq.cli.reading.message_forms import Form, MessageForm, ValuesForm, form_of
from mq.cli.reading.present_end import PresentEnd


def subscribe(
    topic: TopicName,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="earliest, latest or an RFC 3339 time (default: latest; with --until-end: earliest).",
        ),
    ] = None,
    marker: Annotated[
        str | None, typer.Option("--marker", help="The marker at which an earlier reader stopped.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="Stop after this many messages.")] = None,
    until_end: Annotated[bool, typer.Option("--until-end", help="Stop at the present end of the topic.")] = False,
    form: Annotated[
        Form,
        typer.Option(
            "--format",
            help="lines: values, one per line (also referenced payloads). raw: values without separators. "
            "ndjson: messages as JSON, one per line. json: one list. table: for people.",
        ),
    ] = "lines",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format ndjson.")] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
) -> None:
    """Print the messages of a topic, in order for each key, and wait for more."""
    if start is not None and marker is not None:
        raise typer.BadParameter("give either --from or --marker")

    async def work(client: AsyncClient) -> None:
        value_type = (await client.topic(topic)).config["value_type"]
        chosen = form_of("ndjson" if as_json else form, topic, TopicConfig(value_type=value_type))
        write_out(chosen.head)
        try:
            async for rows in _pages(client, topic, start, marker, until_end=until_end, limit=limit):
                await _print(client, topic, rows, chosen)
        finally:
            write_out(chosen.tail)

    with_client(url, timeout, work, ends_with_reader=True)


async def _pages(
    client: AsyncClient, topic: str, start: str | None, marker: str | None, *, until_end: bool, limit: int | None
) -> AsyncIterator[pa.Table]:
    """Yield pages without end, or up to the present end; at most `limit` messages."""
    end = await _present_end(client, topic) if until_end else None
    read = client.browse_tables if until_end else client.subscribe_tables
    tables = read(topic, from_=start, marker=marker)
    left = limit
    while left is None or left > 0:
        table = await tables.next_table()
        if table is None:
            return
        rows = table if end is None else end.clip(table)
        if left is not None:
            rows = rows.slice(0, left)
            left -= rows.num_rows
        if rows.num_rows:
            yield rows
        if end is not None and tables.marker is not None and end.is_reached(tables.marker):
            return


async def _present_end(client: AsyncClient, topic: str) -> PresentEnd:
    newest = client.browse_tables(topic, from_="latest", limit=1)
    await newest.next_table()
    assert newest.marker is not None, "a page was read"
    return PresentEnd(topic, newest.marker)


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
