"""What the blocking client hands out: iterators, files and producers that wait for the loop's thread."""

import asyncio
import io
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa
from anyio.from_thread import BlockingPortal, start_blocking_portal

from braidmq.cursors import AsyncTables, MessageCursor
from braidmq.errors import ClientClosed
from braidmq.message import Message
from braidmq.outgoing import Headers, Key, OutgoingMessage, Row, Value, is_inline, row_of
from braidmq.payload import AsyncPayload
from braidmq.positions import Acknowledgement
from braidmq.producer import AsyncProducer
from braidmq.reader import Reader
from braidmq.receipts import AsyncReceipt

T = TypeVar("T")

_ITEMS_A_CALL = 100
_QUEUED_MESSAGES = 256
_QUEUED_VALUE_BYTES = 32 * 1024


class LoopThread:
    """An event loop in a thread of its own, and calls into it."""

    def __init__(self) -> None:
        stack = ExitStack()
        self._portal = stack.enter_context(start_blocking_portal("asyncio", name="braidmq client"))
        # Also for clients that nobody closes: at the end of the program, while threads still run.
        self._stop = weakref.finalize(self, _stop, self._portal, stack)

    @property
    def is_open(self) -> bool:
        """Whether calls can be made."""
        return self._stop.alive

    def call(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """The result of an asynchronous function; an interrupted wait cancels it."""
        if not self.is_open:
            raise ClientClosed()
        future = self._portal.start_task_soon(partial(function, *args, **kwargs))
        try:
            return future.result()
        except CancelledError:
            raise ClientClosed("the client or the producer was closed meanwhile") from None
        finally:
            future.cancel()

    def soon(self, function: Callable[[], Awaitable[None]]) -> None:
        """Start an asynchronous function and do not wait for it."""
        if not self.is_open:
            raise ClientClosed()
        self._portal.start_task_soon(function)

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items of an asynchronous iterator."""
        while batch := self.call(_some, items):
            yield from batch

    def close(self) -> None:
        """Stop the loop, and calls of other threads in it, and wait for its thread."""
        self._stop()


def _stop(portal: BlockingPortal, stack: ExitStack) -> None:
    portal.call(portal.stop, True)
    stack.close()


async def _some(items: AsyncIterator[T]) -> list[T]:
    """The next few items, so that not each of them crosses between threads by itself."""
    taken: list[T] = []
    async for item in items:
        taken.append(item)
        if len(taken) == _ITEMS_A_CALL:
            break
    return taken


class Messages(MessageCursor, Iterator[Message]):
    """Messages in order; `marker` says where to go on."""

    def __init__(self, loop: LoopThread, reader: Reader) -> None:
        super().__init__(reader)
        self._loop = loop

    def __next__(self) -> Message:
        while (message := self.take()) is None:
            if not self._loop.call(self.turn):
                raise StopIteration
        return message


class Tables(Iterator[pa.Table]):
    """Pages as pyarrow tables; `marker` says where to go on after the last one handed out."""

    def __init__(self, loop: LoopThread, tables: AsyncTables) -> None:
        self._loop = loop
        self._tables = tables

    @property
    def marker(self) -> str | None:
        """Where to go on; None before the first page where iterating started from a time or a word."""
        return self._tables.marker

    def __next__(self) -> pa.Table:
        table = self._loop.call(self._tables.next_table)
        if table is None:
            raise StopIteration
        return table


class Payload(io.RawIOBase):
    """The payload of a message as a raw binary file; the last read checks it against its reference."""

    def __init__(self, loop: LoopThread, payload: AsyncPayload) -> None:
        super().__init__()
        self._loop = loop
        self._payload = payload
        self._rest = memoryview(b"")
        loop.call(payload.__aenter__)

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer with what is at hand; 0 at the end."""
        while not self._rest:
            chunk = self._loop.call(anext, self._payload, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        target = memoryview(buffer).cast("B")
        count = min(len(target), len(self._rest))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        """Give the connection back."""
        if not self.closed:
            self._loop.call(self._payload.aclose)
        super().close()


class Receipt:
    """The acknowledgement of one message, to be waited for.

    A failure that nobody asks for is raised by the producer's `flush`, or when its block is left.
    """

    def __init__(self, loop: LoopThread, taken: Callable[[], Awaitable[None]]) -> None:
        self._loop = loop
        self._taken = taken
        self._outcome: AsyncReceipt | Exception | None = None

    def settle(self, outcome: AsyncReceipt | Exception) -> None:
        """What sending it has come to; called in the loop's thread."""
        self._outcome = outcome

    def done(self) -> bool:
        """Whether the answer is there."""
        outcome = self._outcome
        return outcome.done() if isinstance(outcome, AsyncReceipt) else outcome is not None

    def result(self) -> Acknowledgement:
        """The acknowledgement, waiting for it if need be; raises what the publish raised."""
        outcome = self._outcome
        if isinstance(outcome, AsyncReceipt) and outcome.done() and not outcome.cancelled():
            return outcome.result()
        return self._loop.call(self._result)

    async def _result(self) -> Acknowledgement:
        await self._taken()
        if isinstance(self._outcome, AsyncReceipt):
            return await self._outcome
        raise self._outcome or ClientClosed("the producer has been closed")


class Producer:
    """Messages of one topic in batches, one request in flight for each open segment; see `AsyncProducer`.

    May be shared by threads. Small messages are handed to the loop's thread some at a time: crossing over for
    each would cost more than sending it.
    """

    def __init__(self, loop: LoopThread, producer: AsyncProducer) -> None:
        self._loop = loop
        self._producer = producer
        self._queue: deque[tuple[Row, Receipt]] = deque()
        self._asked = False
        self._taking = asyncio.Lock()

    @property
    def producer_id(self) -> str | None:
        """The id that brokers know this producer by; None for one that is not idempotent."""
        return self._producer.producer_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        leave = self._producer.__aexit__
        if error is None or isinstance(error, Exception):
            self._loop.call(self._after_queue, leave, kind, error, traceback)
        else:
            self._loop.call(leave, kind, error, traceback)

    def send(
        self,
        value: Value,
        *,
        key: Key = None,
        headers: Headers | None = None,
        event_time: datetime | None = None,
    ) -> Receipt:
        """Take a message, waiting for room if need be; its receipt gives the acknowledgement.

        A value past the client's upload threshold is uploaded first. Raises `InvalidArgument` for a message
        that cannot be sent, `ClientClosed` after `close`, and what uploads raise.
        """
        self._producer.check_open()
        receipt = Receipt(self._loop, self._take_queue)
        message = OutgoingMessage(value, key, headers or {}, event_time)
        if is_inline(value, min(_QUEUED_VALUE_BYTES, self._producer.upload_threshold_bytes)):
            self._queue.append((row_of(message, upload=None), receipt))
            if len(self._queue) >= _QUEUED_MESSAGES:
                self._loop.call(self._take_queue)
            elif not self._asked:
                self._asked = True
                self._loop.soon(self._take_queue)
        else:
            receipt.settle(self._loop.call(self._after_queue, self._producer.send_message, message))
        return receipt

    def flush(self) -> None:
        """Send what waits, wait for all answers; raises the first failure that nobody asked for."""
        self._loop.call(self._after_queue, self._producer.flush)

    def close(self) -> None:
        """Flush, then take no more; raises as `flush` does."""
        self._loop.call(self._after_queue, self._producer.close)

    async def _take_queue(self) -> None:
        """Give the queue to the producer, in order."""
        async with self._taking:
            self._asked = False  # first: what is queued from here on asks again
            while self._queue:
                row, receipt = self._queue.popleft()
                try:
                    receipt.settle(await self._producer.send_row(row))
                except Exception as failure:
                    receipt.settle(failure)

    async def _after_queue(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        await self._take_queue()
        return await function(*args)
