"""Publishing: messages and tables as requests of bounded size, each key in order."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

import anyio.to_thread

from braidmq.cluster.routes import Routes
from braidmq.errors import BraidMQError
from braidmq.models import Route
from braidmq.names import topic_path
from braidmq.positions import PositionRange, Published
from braidmq.publish.delivery import Body, Delivery, ProduceRequest
from braidmq.publish.encoding.json_body import fits_json, json_body
from braidmq.publish.encoding.outgoing import OutgoingMessage, Row, Upload, Value, check_several, row_of
from braidmq.publish.encoding.row_columns import RowColumns
from braidmq.publish.identity import Identity, IdentityPool
from braidmq.publish.row_names import OF_REQUEST, message_of_many, rename_row, row_of_table
from braidmq.publish.uploads import Uploader
from braidmq.transport.trace_context import TraceHeaders
from braidmq.transport.transport import ARROW, JSON
from filer.slots import keyless_slot, slot_of

if TYPE_CHECKING:
    import pyarrow as pa

    from braidmq.publish.encoding.tables import TablePlan
    from braidmq.publish.table_requests import Request

Progress = Callable[[int, int], None]
T = TypeVar("T")

REQUEST_BYTES = 8 * 1024 * 1024
_CONCURRENT_SHARES = 32


class Publisher:
    """Sends rows to brokers. The requests of one call follow each other, so that each key keeps its order.

    Without `identities`, a request is repeated only if nothing of it can be stored yet. Without `routes`, it goes to
    any broker.
    """

    def __init__(
        self,
        delivery: Delivery,
        uploader: Uploader,
        identities: IdentityPool | None,
        routes: Routes | None,
        *,
        upload_threshold_bytes: int,
    ) -> None:
        self._delivery = delivery
        self._uploader = uploader
        self._identities = identities
        self._routes = routes
        self.upload_threshold_bytes = upload_threshold_bytes

    async def row(self, topic: str, message: OutgoingMessage) -> Row:
        """Return the row of a message. A value above the threshold is uploaded first and sent by reference."""
        value, now_us = message.value, self._delivery.now_us()
        if isinstance(value, Upload):
            return row_of(message, upload=value, now_us=now_us)
        if hasattr(value, "read"):
            upload = await self._uploader.upload(topic, cast(BinaryIO, value))
            return row_of(message, upload=upload, now_us=now_us)
        row = row_of(message, upload=None, now_us=now_us)
        if row.value is None or len(row.value) <= self.upload_threshold_bytes:
            return row
        upload = await self._uploader.upload(topic, row.value, is_text=row.is_text)
        return row_of(message, upload=upload, now_us=now_us)

    async def publish(self, topic: str, message: OutgoingMessage) -> tuple[PositionRange, ...]:
        """Publish one message."""
        row = await self.row(topic, message)
        _, route_seconds = await self._route(topic)
        with self._borrowed_identity() as identity:
            return await self.send_rows(topic, RowColumns.of([row]), identity, route_seconds=route_seconds)

    async def publish_as(
        self, topic: str, message: OutgoingMessage, producer_id: str, sequence: int
    ) -> tuple[PositionRange, ...]:
        """Publish one message with that producer and sequence. If it is stored already, return where."""
        identity = Identity(producer_id, first_sequence=sequence)
        row = await self.row(topic, message)
        _, route_seconds = await self._route(topic)
        return await self.send_rows(topic, RowColumns.of([row]), identity, route_seconds=route_seconds)

    async def send_rows(
        self,
        topic: str,
        rows: RowColumns,
        identity: Identity | None,
        *,
        trace: TraceHeaders | None = None,
        route_seconds: float = 0.0,
    ) -> tuple[PositionRange, ...]:
        """Send one request to the owner of the first key among the rows. `trace` as for `Call`.

        `route_seconds` is how long it took to find the owners.
        """
        key = next((each for each in rows.keys if each is not None), None)
        slot = None if key is None else slot_of(key)
        body = Body(json_body(rows), JSON) if fits_json(rows) else _arrow_body(rows)
        return await self._send(topic, slot, body, identity, trace, route_seconds=route_seconds)

    async def publish_many(self, topic: str, messages: Iterable[OutgoingMessage | Value]) -> Published:
        """Publish all messages, in order, in as few requests as their bytes allow."""
        check_several(messages)
        published = Published()
        rows = RowColumns()
        with self._borrowed_identity() as identity, _failures_carry(lambda: published, message_of_many):
            for message in messages:
                given = message if isinstance(message, OutgoingMessage) else OutgoingMessage(message)
                row = await self.row(topic, given)
                if len(rows) and rows.size_bytes + row.size_bytes > REQUEST_BYTES:
                    published += await self._send_many(topic, rows, identity)
                    rows = RowColumns()
                rows.add(row)
            if len(rows):
                published += await self._send_many(topic, rows, identity)
        return published

    async def _send_many(self, topic: str, rows: RowColumns, identity: Identity | None) -> Published:
        """Send rows to the owners of their keys: a few together to one of them, which passes on those of others."""
        route, seconds = await self._route(topic)
        if fits_json(rows):
            return Published(len(rows), await self.send_rows(topic, rows, identity, route_seconds=seconds))
        from braidmq.publish.encoding.wire import rows_table
        from braidmq.publish.table_requests import request_of

        return await self._send_request(topic, request_of(rows_table(rows), route, seconds), identity)

    async def publish_table(self, topic: str, frame: Any, plan: "TablePlan", progress: Progress | None) -> Published:
        """Publish each row as a message. The next request is prepared while one is in flight."""
        from braidmq.publish.encoding.tables import arrow_table

        topic_path(topic)
        table = arrow_table(frame)
        published = Published()

        def name(row: int) -> str:
            return row_of_table(plan.first_row + row)

        with self._borrowed_identity() as identity, _failures_carry(lambda: published, name):
            async with aclosing(_prefetched(self._requests(topic, table, plan))) as requests:
                async for request in requests:
                    published += await self._send_request(topic, request, identity)
                    if progress is not None:
                        progress(published.count, table.num_rows)
        return published

    async def publish_request(self, topic: str, table: "pa.Table", producer_id: str, sequence: int) -> Published:
        """Publish the rows as one request with exactly this id and sequence.

        They are not cut by segments: after a change of route the same rows would get other sequences.
        """
        from braidmq.publish.encoding.wire import ipc_bytes

        body = ipc_bytes(await self._by_reference(topic, table)).to_pybytes()
        request = ProduceRequest(topic, Body(body, ARROW), None, producer_id, sequence)
        return Published(table.num_rows, await self._delivery.deliver(request))

    async def _requests(self, topic: str, table: "pa.Table", plan: "TablePlan") -> AsyncGenerator["Request"]:
        from braidmq.publish.encoding.tables import message_tables
        from braidmq.publish.encoding.wire import cut
        from braidmq.publish.table_requests import request_of

        tables = message_tables(table, plan, slice_bytes=REQUEST_BYTES)
        while (columns := await anyio.to_thread.run_sync(next, tables, None)) is not None:
            sliced = await self._by_reference(topic, columns)
            route, seconds = await self._route(topic)
            requests = (request_of(rows, route, seconds) for rows in cut(sliced, REQUEST_BYTES))
            while (request := await anyio.to_thread.run_sync(next, requests, None)) is not None:
                yield request

    async def _by_reference(self, topic: str, columns: "pa.Table") -> "pa.Table":
        """Return the table with the values above the threshold uploaded and replaced by references."""
        from braidmq.publish.encoding.wire import with_uploads
        from braidmq.publish.table_requests import large_values

        uploads = {
            row: await self._uploader.upload(topic, value)
            for row, value in large_values(columns, self.upload_threshold_bytes)
        }
        return with_uploads(columns, uploads) if uploads else columns

    async def _send_request(self, topic: str, request: "Request", identity: Identity | None) -> Published:
        """Send all bodies of a request concurrently: no two of them hold the same key."""
        permits = asyncio.Semaphore(_CONCURRENT_SHARES)

        async def send(slot: int | None, body: Body, numbers: Sequence[int] | None) -> tuple[PositionRange, ...]:
            async with permits:
                try:
                    return await self._send(topic, slot, body, identity, route_seconds=request.route_seconds)
                except BraidMQError as failure:
                    if numbers is not None:
                        rename_row(failure, OF_REQUEST, lambda row: f"row {numbers[row]} of the request")
                    raise

        sending = [send(*body, numbers) for body, numbers in zip(request.bodies, request.numbers, strict=True)]
        if len(sending) == 1:
            return Published(request.rows, await sending[0])
        outcomes = await asyncio.gather(*sending, return_exceptions=True)
        failures = [each for each in outcomes if isinstance(each, BaseException)]
        positions = [position for each in outcomes if not isinstance(each, BaseException) for position in each]
        if not failures:
            return Published(request.rows, tuple(positions))
        if isinstance(failures[0], BraidMQError):
            failures[0].published = Published(0, tuple(positions))
        raise failures[0]

    async def _send(
        self,
        topic: str,
        slot: int | None,
        body: Body,
        identity: Identity | None,
        trace: TraceHeaders | None = None,
        *,
        route_seconds: float,
    ) -> tuple[PositionRange, ...]:
        if identity is None:
            request = ProduceRequest(topic, body, slot, trace=trace)
            return await self._delivery.deliver(request, spent_seconds=route_seconds)
        # From here on the sequence belongs to these bytes, whatever their outcome is.
        sequence = identity.next_sequence()
        if slot is None:
            slot = keyless_slot(identity.producer_id, sequence)
        request = ProduceRequest(topic, body, slot, identity.producer_id, sequence, trace)
        return await self._delivery.deliver(request, spent_seconds=route_seconds)

    async def _route(self, topic: str) -> tuple[Route | None, float]:
        """The owners of the topic's segments, if any broker reports them, and how many seconds it took to find them."""
        if self._routes is None:
            return None, 0.0
        return await self._delivery.timed(self._routes.of(topic).current())

    @contextmanager
    def _borrowed_identity(self) -> Iterator[Identity | None]:
        if self._identities is None:
            yield None
        else:
            with self._identities.borrow() as identity:
                yield identity


def _arrow_body(rows: RowColumns) -> Body:
    # Imported here: a program that sends few messages starts sooner without Arrow.
    from braidmq.publish.encoding.wire import ipc_bytes, rows_table

    return Body(ipc_bytes(rows_table(rows)).to_pybytes(), ARROW)


@contextmanager
def _failures_carry(published: Callable[[], Published], name: Callable[[int], str]) -> Iterator[None]:
    """Make a failure report, in its `published`, what was acknowledged before it.

    A row of the request that failed gets the `name` of its number among all that were given.
    """
    try:
        yield
    except BraidMQError as failure:
        rename_row(failure, OF_REQUEST, name, before=published().count)
        failure.published = published() + (failure.published or Published())
        raise


async def _prefetched(source: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The items of `source`; the next one is made while the current one is in use."""

    async def next_item() -> T | None:
        return await anext(source, None)

    next_task = asyncio.create_task(next_item())
    try:
        while (item := await next_task) is not None:
            next_task = asyncio.create_task(next_item())
            yield item
    finally:
        next_task.cancel()
        await asyncio.gather(next_task, return_exceptions=True)
        await source.aclose()
