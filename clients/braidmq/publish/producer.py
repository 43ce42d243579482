"""A producer: collects messages for a moment, sends them in batches, and acknowledges each."""

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from braidmq.cluster.routes import TopicRoute
from braidmq.errors import BraidMQError, ClientClosed, InvalidArgument
from braidmq.positions import PositionRange
from braidmq.publish.encoding.outgoing import Headers, Key, OutgoingMessage, Value
from braidmq.publish.encoding.row_columns import RowColumns, joined
from braidmq.publish.identity import Identity
from braidmq.publish.pending import Pending, PendingMessages
from braidmq.publish.publisher import Publisher
from braidmq.publish.ranges import SegmentRanges
from braidmq.publish.receipts import Answer, AsyncReceipt, OneReceipt, Receipts, UnaskedFailures
from braidmq.publish.row_positions import row_positions
from braidmq.publish.segment_sender import BatchTiming, SegmentSender
from braidmq.publish.segment_senders import MAX_KEYLESS_SENDERS, SegmentSenders
from braidmq.publish.unsettled import forget, note
from braidmq.short_tracebacks import short_tracebacks
from braidmq.transport.trace_context import TraceHeaders, trace_headers
from filer.clock import Clock


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How a producer makes batches. Raises `InvalidArgument` for settings that make no sense."""

    linger_seconds: float
    batch_bytes: int
    max_pending_bytes: int

    def __post_init__(self) -> None:
        if not (0 <= self.linger_seconds < math.inf and 0 < self.batch_bytes <= self.max_pending_bytes):
            raise InvalidArgument(
                "a producer needs linger_seconds of 0 or more, and batch_bytes of 1 up to max_pending_bytes, not "
                f"{self.linger_seconds}, {self.batch_bytes} and {self.max_pending_bytes}"
            )


@short_tracebacks
class AsyncProducer:
    """Sends messages of one topic in batches of up to `batch_bytes`, one request in flight for each open segment.

    A batch goes when it is full, when its oldest message is `linger_seconds` old, or when `flush` is called. While a
    request is in flight, the next batch collects messages. Messages of one key are sent in the order of `send`.
    At most `max_pending_bytes` wait for their acknowledgement; above that, `send` waits.

    With an `identity`, a request whose answer was lost is sent again, to the broker that owns its keys by then, and is
    stored once. With a `route`, each request goes straight to the owner of its segment. Without one, all requests go
    to the client's own addresses, one after the other.
    """

    def __init__(
        self,
        publisher: Publisher,
        ranges: SegmentRanges,
        route: TopicRoute | None,
        topic: str,
        *,
        clock: Clock,
        settings: ProducerSettings,
        identity: Identity | None,
    ) -> None:
        self.topic = topic
        self.upload_threshold_bytes = publisher.upload_threshold_bytes
        self._publisher = publisher
        self._ranges = ranges
        self._route = route
        self._identity = identity
        numbers = range(1, MAX_KEYLESS_SENDERS + 1)
        self._keyless_identities = [] if identity is None else [identity.numbered(each) for each in numbers]
        self.timing = BatchTiming(clock, settings.linger_seconds, settings.batch_bytes)
        self._senders = SegmentSenders(self.timing, self._follow_route, self._send_batch)
        self.pending = PendingMessages(settings.max_pending_bytes)
        self._failures = UnaskedFailures()
        self._order = asyncio.Lock()
        self.gathered: Callable[[], int] = int
        """How many messages wait to be given to this producer."""

    def __repr__(self) -> str:
        return f"AsyncProducer({self.topic!r}, id={self.producer_id!r})"

    @property
    def producer_id(self) -> str | None:
        """The id by which brokers know this producer; None if it is not idempotent."""
        return None if self._identity is None else self._identity.producer_id

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        elif isinstance(error, Exception):
            with suppress(BraidMQError):  # the error that ended the block says more
                await self.close()
        else:
            await self.abandon()

    async def send(
        self,
        value: Value,
        *,
        key: Key = None,
        headers: Headers | None = None,
        event_time: datetime | None = None,
        deliver_at: datetime | None = None,
        delay: timedelta | None = None,
        expires_at: datetime | None = None,
    ) -> AsyncReceipt:
        """Take a message, waiting for room if necessary, and return its receipt: await it for the acknowledgement.

        A value longer than the client's upload threshold is uploaded first. Raises `InvalidArgument` for a message
        that cannot be sent, `ClientClosed` after `close`, and whatever an upload raises.
        """
        times = (event_time, deliver_at, delay, expires_at)
        return await self.send_message(OutgoingMessage(value, key, headers or {}, *times))

    async def send_message(self, message: OutgoingMessage) -> AsyncReceipt:
        """As `send`, for an `OutgoingMessage`."""
        receipt = AsyncReceipt()
        await self.send_to(message, OneReceipt(receipt))
        return receipt

    async def send_to(self, message: OutgoingMessage, receipts: Receipts) -> None:
        """As `send`, for a message that is the only one of these receipts."""
        async with self._order:
            rows = RowColumns.of([await self._publisher.row(self.topic, message)])
            await self._send_rows(rows, receipts, self.due_seconds(), trace_headers())

    def due_seconds(self) -> float:
        """The time by which a message that comes now is sent."""
        return self.timing.clock.monotonic_seconds() + self.timing.linger_seconds

    async def send_rows(self, rows: RowColumns, receipts: Receipts, due_seconds: float, trace: TraceHeaders) -> None:
        """Take messages that came together, waiting for room if necessary; they go when they are due.

        `trace` is that of the first one that is in a trace. Raises `ClientClosed` after `close`, and takes none.
        """
        async with self._order:
            await self._send_rows(rows, receipts, due_seconds, trace)

    async def _send_rows(self, rows: RowColumns, receipts: Receipts, due_seconds: float, trace: TraceHeaders) -> None:
        if not self.pending.has_room(rows.size_bytes):
            await self._flush_until(lambda: self.pending.has_room(rows.size_bytes))
        self.check_open()
        self._senders.put(self.pending.add(rows, receipts, due_seconds, trace))
        note(self)

    def unsettled(self) -> int:
        """How many messages have no acknowledgement, and no error that was reported to the caller."""
        return self.gathered() + self.pending.unanswered + self._failures.count()

    async def flush(self) -> None:
        """Send waiting messages, and return when all of them have been answered.

        Raises the first failure since the last flush whose receipt was not asked for.
        """
        flush = self.pending.start_flush()
        await self._flush_until(lambda: self.pending.is_flushed(flush))
        try:
            await self._failures.raise_first()
        finally:
            note(self)

    async def close(self) -> None:
        """Flush, then refuse further messages. Raises as `flush` does."""
        self.pending.is_closed = True
        try:
            await self.flush()
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Stop at once. Messages without an answer may or may not be stored; their receipts raise `ClientClosed`.

        So does a flush that waits for them, or comes later.
        """
        self.pending.is_closed = True
        for pending in await self._senders.stop():
            self._failures.abandon(pending.receipts, pending.numbers)
        await self.pending.abandon()
        forget(self)

    def check_open(self) -> None:
        """Raise `ClientClosed` if the producer has been closed."""
        if self.pending.is_closed:
            raise ClientClosed("the producer has been closed")

    async def _flush_until(self, reached: Callable[[], bool]) -> None:
        """Send without lingering until `reached`."""
        self.timing.flushes += 1
        try:
            self._senders.flush()
            await self.pending.wait_until(reached)
        finally:
            self.timing.flushes -= 1

    async def _follow_route(self) -> None:
        """Rearrange the senders by the newest route."""
        if self._route is not None:
            self._senders.follow(await self._route.current())

    async def _send_batch(self, sender: SegmentSender, batch: list[Pending], route_seconds: float) -> None:
        self._senders.rotate_keyless(sender)
        try:
            identity = self._identity
            if sender.number and self._keyless_identities:
                identity = self._keyless_identities[sender.number - 1]
            rows = joined([pending.rows for pending in batch])
            # A request is in one trace, that of its first message that is in one. It is not in that of the first caller
            # of all, in whose context this task was started.
            trace = next((pending.trace for pending in batch if pending.trace), {})
            answered = await self._publisher.send_rows(
                self.topic, rows, identity, trace=trace, route_seconds=route_seconds
            )
            await self._acknowledge(batch, rows.keys, answered)
        except Exception as failure:  # whatever it is, it belongs to the callers that await the receipts
            for pending in batch:
                self._failures.fail(pending.receipts, pending.numbers, failure)
        await self.pending.remove(batch)
        note(self)

    async def _acknowledge(
        self, batch: Sequence[Pending], keys: Sequence[bytes | None], answered: tuple[PositionRange, ...]
    ) -> None:
        positions = None
        if len(answered) != 1 or answered[0].count != len(keys):
            ranges = await self._ranges.of([each.segment for each in answered]) if len(answered) > 1 else {}
            positions = row_positions(keys, answered, ranges)
        answer, first_row = Answer(self.topic, answered, positions), 0
        for pending in batch:
            pending.receipts.acknowledge(pending.numbers, answer, first_row)
            first_row += len(pending.rows)
