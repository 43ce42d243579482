"""A producer: collects messages for a moment, sends them as one batch, hands each its acknowledgement."""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from braidmq.errors import BraidMQError, ClientClosed, InvalidArgument
from braidmq.outgoing import Headers, Key, OutgoingMessage, Row, Value
from braidmq.placement import place
from braidmq.positions import Acknowledgement, PositionRange
from braidmq.publisher import Publisher
from braidmq.ranges import SegmentRanges
from filer.clock import Clock

_MAX_UNASKED_FAILURES = 1000


class AsyncReceipt(asyncio.Future[Acknowledgement]):
    """The acknowledgement of one message, to be awaited.

    A failure that nobody asks for is raised by the producer's `flush`, or when its block is left.
    """

    asked = False

    def __await__(self) -> Generator[Any, None, Acknowledgement]:
        self.asked = True
        return super().__await__()

    def add_done_callback(self, *args: Any, **kwargs: Any) -> None:
        """As of any future: `asyncio.gather` and `asyncio.wait` come this way."""
        self.asked = True
        super().add_done_callback(*args, **kwargs)

    def result(self) -> Acknowledgement:
        """The acknowledgement; raises what the publish raised."""
        self.asked = True
        return super().result()

    def exception(self) -> BaseException | None:
        """What the publish raised, if anything."""
        self.asked = True
        return super().exception()


@dataclass(frozen=True, slots=True)
class _Pending:
    row: Row
    receipt: AsyncReceipt
    due_seconds: float


class AsyncProducer:
    """Messages of one topic in batches of up to `batch_bytes`, one request in flight.

    A batch goes when it is full, when its oldest message is `linger_seconds` old, or when `flush` is called;
    while a request is under way the next batch gathers. Messages are sent in the order of `send`, so each
    key's order is kept. At most `max_pending_bytes` wait for their acknowledgement: beyond, `send` waits.
    """

    def __init__(
        self,
        publisher: Publisher,
        ranges: SegmentRanges,
        topic: str,
        *,
        clock: Clock,
        linger_seconds: float,
        batch_bytes: int,
        max_pending_bytes: int,
    ) -> None:
        if linger_seconds < 0 or not 0 < batch_bytes <= max_pending_bytes:
            raise InvalidArgument(
                "a producer needs linger_seconds of 0 or more, and batch_bytes of 1 up to max_pending_bytes"
            )
        self.topic = topic
        self.upload_threshold_bytes = publisher.upload_threshold_bytes
        self._publisher = publisher
        self._ranges = ranges
        self._clock = clock
        self._linger_seconds = linger_seconds
        self._batch_bytes = batch_bytes
        self._max_pending_bytes = max_pending_bytes
        self._waiting: deque[_Pending] = deque()
        self._waiting_bytes = 0
        self._in_flight_bytes = 0
        self._in_flight: list[_Pending] = []
        self._failed: list[AsyncReceipt] = []
        self._taken = 0
        self._answered = 0
        self._urgent = 0
        self._closed = False
        self._turn = asyncio.Lock()
        self._more = asyncio.Event()
        self._batch_done = asyncio.Condition()
        self._worker: asyncio.Task[None] | None = None

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
        await self._room_for(row.size_bytes)
        self.check_open()
        receipt = AsyncReceipt(loop=asyncio.get_running_loop())
        due = self._clock.monotonic_seconds() + self._linger_seconds
        self._waiting.append(_Pending(row, receipt, due))
        self._waiting_bytes += row.size_bytes
        self._taken += 1
        self._wake()
        return receipt

    async def flush(self) -> None:
        """Send what waits and return when all of it is answered.

        Raises the first failure since the last flush that nobody has asked its receipt for.
        """
        newest = self._taken
        await self._urgently(lambda: self._answered >= newest)
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
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        for pending in (*self._in_flight, *self._waiting):
            pending.receipt.cancel()
        self._answered = self._taken
        self._waiting.clear()
        await self._tell()

    def check_open(self) -> None:
        """Raise `ClientClosed` once the producer has been closed."""
        if self._closed:
            raise ClientClosed("the producer has been closed")

    async def _room_for(self, size_bytes: int) -> None:
        def fits() -> bool:
            held = self._waiting_bytes + self._in_flight_bytes
            return held == 0 or held + size_bytes <= self._max_pending_bytes or self._closed

        if not fits():
            await self._urgently(fits)

    async def _urgently(self, reached: Callable[[], bool]) -> None:
        """Send without lingering until `reached`."""
        self._urgent += 1
        try:
            self._wake()
            async with self._batch_done:
                await self._batch_done.wait_for(reached)
        finally:
            self._urgent -= 1

    def _wake(self) -> None:
        self._more.set()
        if self._worker is None and self._waiting:
            self._worker = asyncio.create_task(self._work(), name=f"braidmq producer of {self.topic}")

    async def _work(self) -> None:
        while True:
            await self._gather_batch()
            self._in_flight = self._take()
            self._in_flight_bytes = sum(pending.row.size_bytes for pending in self._in_flight)
            await self._send_batch(self._in_flight)
            self._answered += len(self._in_flight)
            self._in_flight, self._in_flight_bytes = [], 0
            await self._tell()

    async def _tell(self) -> None:
        async with self._batch_done:
            self._batch_done.notify_all()

    async def _gather_batch(self) -> None:
        """Return once a batch should go."""
        while True:
            self._more.clear()
            if not self._waiting:
                await self._more.wait()
                continue
            rest = self._waiting[0].due_seconds - self._clock.monotonic_seconds()
            if rest <= 0 or self._urgent or self._waiting_bytes >= self._batch_bytes:
                return
            await self._sleep_or_more(rest)

    async def _sleep_or_more(self, seconds: float) -> None:
        waits = [
            asyncio.create_task(self._clock.sleep(seconds)),
            asyncio.create_task(self._full_or_urgent()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _full_or_urgent(self) -> None:
        while self._waiting_bytes < self._batch_bytes and not self._urgent:
            self._more.clear()
            await self._more.wait()

    def _take(self) -> list[_Pending]:
        """The oldest waiting messages that fit into a batch, one at least."""
        batch = [self._waiting.popleft()]
        size_bytes = batch[0].row.size_bytes
        while self._waiting and size_bytes + self._waiting[0].row.size_bytes <= self._batch_bytes:
            size_bytes += self._waiting[0].row.size_bytes
            batch.append(self._waiting.popleft())
        self._waiting_bytes -= size_bytes
        return batch

    async def _send_batch(self, batch: Sequence[_Pending]) -> None:
        try:
            answered = await self._publisher.send_rows(self.topic, [pending.row for pending in batch])
            await self._acknowledge(batch, answered)
        except Exception as failure:  # whatever it is, it belongs to whoever awaits the receipts
            self._fail(batch, failure)

    async def _acknowledge(self, batch: Sequence[_Pending], answered: tuple[PositionRange, ...]) -> None:
        ranges = await self._ranges.of([each.segment for each in answered]) if len(answered) > 1 else {}
        positions = place([pending.row.key for pending in batch], answered, ranges)
        for pending, position in zip(batch, positions, strict=True):
            if not pending.receipt.done():
                pending.receipt.set_result(Acknowledgement(self.topic, position, answered))

    def _fail(self, batch: Sequence[_Pending], failure: Exception) -> None:
        failed = [pending.receipt for pending in batch if not pending.receipt.done()]
        for receipt in failed:
            receipt.set_exception(failure)
        # Bounded for producers that never flush: what falls out is logged by asyncio if nobody asks for it.
        unasked = [receipt for receipt in self._failed if not receipt.asked]
        self._failed = (unasked + failed)[:_MAX_UNASKED_FAILURES]
