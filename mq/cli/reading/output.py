"""The output of `mq subscribe`: messages on stdout, or a Parquet file."""

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from braidmq import AsyncClient, Message, Reference
from filer.clock import Clock
from filer.format.schema import MessageSchema
from mq.cli.output import write_out, write_text
from mq.cli.reading.message_forms import MessageForm, ValuesForm, form_of
from mq.cli.reading.read_topic import read
from mq.cli.reading.reading import Form, Reading
from mq.cli.terminal_text import TerminalText


async def print_messages(client: AsyncClient, clock: Clock, reading: Reading, name: Form) -> None:
    """Print the messages of a reading in the form of that name."""
    form = form_of(name, reading.topic, await schema_of(client, reading.topic))
    async with aclosing(_limited(read(client, clock, reading), reading.limit)) as pages:
        write_text(form.head)
        try:
            async for rows in pages:
                await print_page(client, reading.topic, rows, form)
        finally:
            write_text(form.tail)


async def write_parquet(client: AsyncClient, clock: Clock, reading: Reading, path: Path) -> None:
    """Write the messages of a reading into a new file."""
    # Imported here: printing does not need it.
    from mq.cli.reading.parquet_file import ParquetFile

    schema = await schema_of(client, reading.topic)
    async with aclosing(_limited(read(client, clock, reading), reading.limit)) as pages:
        with ParquetFile(path, schema, clock) as file:
            async for rows in pages:
                file.write(rows)


async def schema_of(client: AsyncClient, topic: str) -> MessageSchema:
    """The schema of the messages of a topic, or of a topic group."""
    found = await client.topic(topic)
    return MessageSchema.of(found.config["key_type"], found.config["value_type"], grouped=found.group == found.topic)


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


async def print_page(client: AsyncClient, topic: str, rows: pa.Table, form: MessageForm) -> None:
    """Print a page. If only values are printed, payloads stored beside the log replace theirs."""
    done = 0
    if isinstance(form, ValuesForm) and rows["_ref"].null_count < rows.num_rows:
        for row in np.flatnonzero(rows["_ref"].is_valid().to_numpy()).tolist():
            write_text(form.page(rows.slice(done, row - done)))
            await _print_payload(client, topic, rows.slice(row, 1).to_pylist()[0])
            write_text(form.end)
            done = row + 1
    write_text(form.page(rows.slice(done)))


async def _print_payload(client: AsyncClient, topic: str, row: dict[str, Any]) -> None:
    ref = Reference(row["_ref"]["uri"], row["_ref"]["size"], row["_ref"]["etag"], row["_ref"]["sha256"])
    message = Message(topic, row["segment"], row["_offset"], row["_timestamp"], row["key"], None, ref=ref)
    async with client.open(message) as payload:
        shown = TerminalText() if sys.stdout.isatty() else None
        async for chunk in payload:
            write_out(chunk if shown is None else shown.shown(chunk, is_last=False))
