"""A producer: collects messages for a moment, sends them in batches, hands each its acknowledgement."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self

from braidmq.errors import BraidMQError, ClientClosed, InvalidArgument
from braidmq.identity import Identity
from braidmq.lane import Lane, Pace
from braidmq.lanes import MAX_KEYLESS_LANES, Lanes
from braidmq.outgoing import Headers, Key, OutgoingMessage, Row, Value
from braidmq.placement import place
from braidmq.positions import Acknowledgement, PositionRange
from braidmq.publisher import Publisher
from braidmq.ranges import SegmentRanges
from braidmq.receipts import AsyncReceipt, Pending
from braidmq.routes import TopicRoute
from filer.clock import Clock

_MAX_UNASKED_FAILURES = 1000


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How a producer batches; raises `InvalidArgument` for what makes no sense."""

    linger_seconds: float
    batch_bytes: int
    max_pending_bytes: int

    def __post_init__(self) -> None:
        if self.linger_seconds < 0 or not 0 < self.batch_bytes <= self.max_pending_bytes:
            raise InvalidArgument(
                "a producer needs linger_seconds of 0 or more, and batch_bytes of 1 up to max_pending_bytes"
            )


class AsyncProducer:
    """Messages of one topic in batches of up to `batch_bytes`, one request in flight for each open segment.

    A batch goes when it is full, when its oldest message is `linger_seconds` old, or when `flush` is called;
    while a request is under way the next batch gathers. Messages of one key are sent in the order of `send`.
    At most `max_pending_bytes` wait for their acknowledgement: beyond, `send` waits.

    With an `identity` a request whose answer is lost is sent again, to whichever broker owns its keys by then,
    and stored once. With a `route` each goes straight to the owner of its segment; without, all go one after the
    other to the client's own addresses.
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
        self._clock = clock
        self._settings = settings
        self._identity = identity
        self._keyless = [] if identity is None else [identity.aside(each + 1) for each in range(MAX_KEYLESS_LANES)]
        self._pace = Pace(clock, settings.linger_seconds, settings.batch_bytes)
        self._lanes = Lanes(self._pace, self._look, self._ship)
        self._held_bytes = 0
        self._taken = 0
        self._era = 0
        self._unanswered: Counter[int] = Counter()
        self._failed: list[AsyncReceipt] = []
        self._closed = False
        self._turn = asyncio.Lock()
        self._batch_done = asyncio.Condition()

    @property
    def producer_id(self) -> str | None:
        """The id that brokers know this producer by; None for one that is not idempotent."""
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
    ) -> AsyncReceipt:
        """Take a message, waiting for room if need be; await what it returns for the acknowledgement.

        A value past the client's upload threshold is uploaded first. Raises `InvalidArgument` for a message
        that cannot be sent, `ClientClosed` after `close`, and what uploads raise.
        """
        return await self.send_message(OutgoingMessage(value, key, headers or {}, event_time))

    async def send_message(self, message: OutgoingMessage) -> AsyncReceipt:
        """As `send`, for a message that is one already."""
        async with self._turn:
            return await self._send_row(await self._publisher.row(self.topic, message))

    async def send_row(self, row: Row) -> AsyncReceipt:
        """As `send`, for a row that is ready."""
        async with self._turn:
            return await self._send_row(row)

    async def _send_row(self, row: Row) -> AsyncReceipt:
        size_bytes = row.size_bytes
        if self._held_bytes + size_bytes > self._settings.max_pending_bytes:
            await self._room_for(size_bytes)
        self.check_open()
        receipt = AsyncReceipt(loop=asyncio.get_running_loop())
        due_seconds = self._clock.monotonic_seconds() + self._settings.linger_seconds
        self._taken += 1
        self._held_bytes += size_bytes
        self._unanswered[self._era] += 1
        self._lanes.put(Pending(row, size_bytes, receipt, due_seconds, self._taken, self._era))
        return receipt

    async def flush(self) -> None:
        """Send what waits and return when all of it is answered.

        Raises the first failure since the last flush that nobody has asked its receipt for.
        """
        era = self._era
        self._era += 1
        await self._hurriedly(lambda: all(each > era for each in self._unanswered))
        failed, self._failed = self._failed, []
        unasked = [receipt for receipt in failed if not receipt.asked]
        errors = [asyncio.Future.exception(receipt) for receipt in unasked]
        for error in errors:
            if error is not None:
                raise error

    async def close(self) -> None:
        """Flush, then take no more; raises as `flush` does."""
        self._closed = True
        try:
            await self.flush()
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Stop at once; messages without an answer may or may not be stored, their receipts are cancelled."""
        self._closed = True
        for pending in await self._lanes.stop():
            pending.receipt.cancel()
        self._unanswered.clear()
        await self._tell()

    def check_open(self) -> None:
        """Raise `ClientClosed` once the producer has been closed."""
        if self._closed:
            raise ClientClosed("the producer has been closed")

    async def _room_for(self, size_bytes: int) -> None:
        def fits() -> bool:
            held = self._held_bytes
            return held == 0 or held + size_bytes <= self._settings.max_pending_bytes or self._closed

        if not fits():
            await self._hurriedly(fits)

    async def _hurriedly(self, reached: Callable[[], bool]) -> None:
        """Send without lingering until `reached`."""
        self._pace.hurried += 1
        try:
            self._lanes.hurry()
            async with self._batch_done:
                await self._batch_done.wait_for(reached)
        finally:
            self._pace.hurried -= 1

    async def _tell(self) -> None:
        async with self._batch_done:
            self._batch_done.notify_all()

    async def _look(self) -> None:
        """Cut the lanes by the newest route."""
        if self._route is not None:
            self._lanes.follow(await self._route.current())

    async def _ship(self, lane: Lane, batch: list[Pending]) -> None:
        self._lanes.take_turns(lane)
        try:
            identity = self._keyless[lane.number - 1] if lane.number and self._keyless else self._identity
            rows = [pending.row for pending in batch]
            await self._acknowledge(batch, await self._publisher.send_rows(self.topic, rows, identity))
        except Exception as failure:  # whatever it is, it belongs to whoever awaits the receipts
            self._fail(batch, failure)
        await self._settle(batch)

    async def _settle(self, batch: Sequence[Pending]) -> None:
        """The batch has come to an end: make room, and tell those who wait for it."""
        self._held_bytes -= sum(pending.size_bytes for pending in batch)
        for era, count in Counter(pending.era for pending in batch).items():
            self._unanswered[era] -= count
            if not self._unanswered[era]:
                del self._unanswered[era]
        await self._tell()

    async def _acknowledge(self, batch: Sequence[Pending], answered: tuple[PositionRange, ...]) -> None:
        ranges = await self._ranges.of([each.segment for each in answered]) if len(answered) > 1 else {}
        positions = place([pending.row.key for pending in batch], answered, ranges)
        for pending, position in zip(batch, positions, strict=True):
            if not pending.receipt.done():
                pending.receipt.set_result(Acknowledgement(self.topic, position, answered))

    def _fail(self, batch: Sequence[Pending], failure: Exception) -> None:
        failed = [pending.receipt for pending in batch if not pending.receipt.done()]
        for receipt in failed:
            receipt.set_exception(failure)
        # Bounded for producers that never flush: what falls out is logged by asyncio if nobody asks for it.
        unasked = [receipt for receipt in self._failed if not receipt.asked]
        self._failed = (unasked + failed)[:_MAX_UNASKED_FAILURES]
