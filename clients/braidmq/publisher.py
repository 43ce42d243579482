"""Publishing: messages and tables as bounded requests, one after the other."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any, BinaryIO, TypeVar, cast

import anyio.to_thread
import httpx
import pyarrow as pa
import pyarrow.compute as pc

from braidmq.errors import BraidMQError, NotABroker
from braidmq.names import topic_path
from braidmq.outgoing import OutgoingMessage, Row, Upload, Value, row_of
from braidmq.positions import PositionRange, Published
from braidmq.problems import json_of
from braidmq.reader import ARROW
from braidmq.tables import TablePlan, arrow_table, message_tables
from braidmq.transport import Call, Transport
from braidmq.uploads import Uploader
from braidmq.wire import cut, ipc_bytes, rows_table, with_uploads

Progress = Callable[[int, int], None]
T = TypeVar("T")

REQUEST_BYTES = 8 * 1024 * 1024


class Publisher:
    """Sends rows to a broker. Requests of one call follow each other, so that each key's order is kept."""

    def __init__(self, transport: Transport, uploader: Uploader, *, upload_threshold_bytes: int) -> None:
        self._transport = transport
        self._uploader = uploader
        self.upload_threshold_bytes = upload_threshold_bytes

    async def row(self, topic: str, message: OutgoingMessage) -> Row:
        """The wire row of a message; a value past the threshold is uploaded first and goes by reference."""
        value = message.value
        if isinstance(value, Upload):
            return row_of(message, upload=value)
        if hasattr(value, "read"):
            return row_of(message, upload=await self._uploader.upload(topic, cast(BinaryIO, value)))
        row = row_of(message, upload=None)
        if row.value is None or len(row.value) <= self.upload_threshold_bytes:
            return row
        return row_of(message, upload=await self._uploader.upload(topic, row.value))

    async def send_rows(self, topic: str, rows: Sequence[Row]) -> tuple[PositionRange, ...]:
        """One request."""
        return await self._send(topic, ipc_bytes(rows_table(rows)))

    async def publish_many(self, topic: str, messages: Iterable[OutgoingMessage | Value]) -> Published:
        """All messages, in order, in as many requests as their bytes ask for."""
        published = Published()
        rows: list[Row] = []
        size_bytes = 0
        try:
            for message in messages:
                given = message if isinstance(message, OutgoingMessage) else OutgoingMessage(message)
                row = await self.row(topic, given)
                if rows and size_bytes + row.size_bytes > REQUEST_BYTES:
                    published += Published(len(rows), await self.send_rows(topic, rows))
                    rows, size_bytes = [], 0
                rows.append(row)
                size_bytes += row.size_bytes
            if rows:
                published += Published(len(rows), await self.send_rows(topic, rows))
        except BraidMQError as failure:
            failure.published = published
            raise
        return published

    async def publish_table(self, topic: str, frame: Any, plan: TablePlan, progress: Progress | None) -> Published:
        """Each row as a message; the next request is made ready while one is under way."""
        topic_path(topic)
        table = arrow_table(frame)
        published = Published()
        try:
            async with aclosing(_ahead(self._requests(topic, table, plan))) as requests:
                async for rows, body in requests:
                    published += Published(rows, await self._send(topic, body))
                    if progress is not None:
                        progress(published.count, table.num_rows)
        except BraidMQError as failure:
            failure.published = published
            raise
        return published

    async def _requests(
        self, topic: str, table: pa.Table, plan: TablePlan
    ) -> AsyncGenerator[tuple[int, pa.Buffer], None]:
        """The number of rows and the body of each request."""
        tables = message_tables(table, plan, slice_bytes=REQUEST_BYTES)
        while (wire := await anyio.to_thread.run_sync(next, tables, None)) is not None:
            small = await self._by_reference(topic, wire)
            bodies = ((part.num_rows, ipc_bytes(part)) for part in cut(small, REQUEST_BYTES))
            while (request := await anyio.to_thread.run_sync(next, bodies, None)) is not None:
                yield request

    async def _by_reference(self, topic: str, wire: pa.Table) -> pa.Table:
        """The table with the values past the threshold uploaded."""
        lengths: Any = pc.binary_length(wire["value"])
        large: Any = pc.greater(lengths, pa.scalar(self.upload_threshold_bytes))
        if not pc.any(large).as_py():
            return wire
        uploads: dict[int, Upload] = {}
        for row in pc.indices_nonzero(large).to_pylist():
            uploads[row] = await self._uploader.upload(topic, wire["value"][row].as_buffer().to_pybytes())
        return with_uploads(wire, uploads)

    async def _send(self, topic: str, body: pa.Buffer) -> tuple[PositionRange, ...]:
        call = Call(
            "POST",
            f"{topic_path(topic)}/messages",
            content=body.to_pybytes(),
            headers={"content-type": ARROW},
            publishing=True,
        )
        return _positions(await self._transport.request(call))


async def _ahead(source: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The items of `source`, each next one being made while the last one is in use."""

    async def following() -> T | None:
        return await anext(source, None)

    upcoming = asyncio.create_task(following())
    try:
        while (item := await upcoming) is not None:
            upcoming = asyncio.create_task(following())
            yield item
    finally:
        upcoming.cancel()
        await asyncio.gather(upcoming, return_exceptions=True)
        await source.aclose()


def _positions(response: httpx.Response) -> tuple[PositionRange, ...]:
    try:
        listed = json_of(response)["positions"]
        return tuple(PositionRange(each["segment"], each["offset"], each["count"]) for each in listed)
    except (KeyError, TypeError) as failure:
        raise NotABroker(f"{response.request.url} answered a publish without positions") from failure
