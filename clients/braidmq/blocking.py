"""What the blocking client is made of: its event loop, and iterators, files and producers that wait for it."""

import asyncio
import io
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa
from anyio.from_thread import BlockingPortal, start_blocking_portal

from braidmq.errors import BraidMQError, ClientClosed
from braidmq.message import Message
from braidmq.positions import Acknowledgement, Published
from braidmq.publish.encoding.outgoing import Headers, Key, OutgoingMessage, Row, Value, in_batches, is_inline, row_of
from braidmq.publish.producer import AsyncProducer
from braidmq.publish.receipts import AsyncReceipt
from braidmq.read.cursors import AsyncMessages, AsyncTables, MessageCursor
from braidmq.read.payload import AsyncPayload
from braidmq.short_tracebacks import shortened

T = TypeVar("T")

_ITEMS_PER_CALL = 100
_QUEUED_MESSAGES = 256
_QUEUED_VALUE_BYTES = 32 * 1024


class LoopThread:
    """An event loop in a thread of its own, and calls into it."""

    def __init__(self) -> None:
        stack = ExitStack()
        self._portal = stack.enter_context(start_blocking_portal("asyncio", name="braidmq client"))
        # For clients that nobody closes: this also runs at the end of the program, while threads still run.
        self._stop = weakref.finalize(self, _stop, self._portal, stack)

    @property
    def is_open(self) -> bool:
        """Whether calls can be made."""
        return self._stop.alive

    def call(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """Run an asynchronous function and return its result. An interrupted wait cancels it."""
        if not self.is_open:
            raise ClientClosed()
        future = self._portal.start_task_soon(partial(function, *args, **kwargs))
        try:
            return future.result()
        except CancelledError:
            raise ClientClosed("the client or the producer was closed during the call") from None
        except BraidMQError as error:
            raise shortened(error) from error.__cause__
        finally:
            future.cancel()

    def start(self, function: Callable[[], Awaitable[None]]) -> None:
        """Start an asynchronous function and do not wait for it."""
        if not self.is_open:
            raise ClientClosed()
        self._portal.start_task_soon(function)

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Iterate over an asynchronous iterator."""
        while batch := self.call(_next_items, items):
            yield from batch

    def close(self) -> None:
        """Stop the loop, cancel other threads' calls into it, and wait for its thread."""
        self._stop()


def _stop(portal: BlockingPortal, stack: ExitStack) -> None:
    portal.call(portal.stop, True)
    stack.close()


async def _next_items(items: AsyncIterator[T]) -> list[T]:
    """The next few items: fewer crossings between threads than one for each item."""
    batch: list[T] = []
    async for item in items:
        batch.append(item)
        if len(batch) == _ITEMS_PER_CALL:
            break
    return batch


def publish_in_batches(
    loop: LoopThread,
    publish_many: Callable[[str, Iterable[OutgoingMessage | Value]], Awaitable[Published]],
    topic: str,
    messages: Iterable[OutgoingMessage | Value],
) -> Published:
    """Publish messages in order, iterating over them in the caller's thread.

    Not in the loop's thread: the caller's iterator may well use the same blocking client.
    """
    published = Published()
    for batch in in_batches(messages):
        try:
            published += loop.call(publish_many, topic, batch)
        except BraidMQError as failure:
            failure.published = published + (failure.published or Published())
            raise
    return published


class Messages(MessageCursor, Iterator[Message]):
    """Messages in order; `marker` says where to go on."""

    def __init__(self, loop: LoopThread, messages: AsyncMessages) -> None:
        super().__init__(messages.reader)
        self._loop = loop

    def __next__(self) -> Message:
        while (message := self.take()) is None:
            if not self._loop.call(self.next_page):
                raise StopIteration
        return message


class Tables(Iterator[pa.Table]):
    """Pages as pyarrow tables; `marker` says where to go on after the last one returned."""

    def __init__(self, loop: LoopThread, tables: AsyncTables) -> None:
        self._loop = loop
        self._tables = tables

    def __repr__(self) -> str:
        return f"Tables({self._tables.topic!r})"

    @property
    def marker(self) -> str | None:
        """Where to go on; None before the first page if iteration started at a time, `earliest` or `latest`."""
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
        self._unread = memoryview(b"")
        loop.call(payload.__aenter__)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer as far as the next chunk reaches, and return the number of bytes; 0 at the end."""
        while not self._unread:
            chunk = self._loop.call(anext, self._payload, None)
            if chunk is None:
                return 0
            self._unread = memoryview(chunk)
        target = memoryview(buffer).cast("B")
        count = min(len(target), len(self._unread))
        target[:count] = self._unread[:count]
        self._unread = self._unread[count:]
        return count

    def close(self) -> None:
        """Give the connection back."""
        if not self.closed:
            self._loop.call(self._payload.aclose)
        super().close()


class Receipt:
    """The acknowledgement of one message, to wait for.

    If nobody asks for a failed receipt, the producer's `flush` raises the failure, or the end of its `with` block.
    """

    def __init__(self, loop: LoopThread, handed_over: Callable[[], Awaitable[None]]) -> None:
        self._loop = loop
        self._handed_over = handed_over
        self._outcome: AsyncReceipt | Exception | None = None

    def __repr__(self) -> str:
        outcome = self._outcome
        return repr(outcome) if isinstance(outcome, AsyncReceipt) else f"<Receipt {outcome or 'pending'}>"

    def set_outcome(self, outcome: AsyncReceipt | Exception) -> None:
        """Set what sending the message led to. Called in the loop's thread."""
        self._outcome = outcome

    def done(self) -> bool:
        """Whether the acknowledgement, or the failure, has arrived."""
        outcome = self._outcome
        return outcome.done() if isinstance(outcome, AsyncReceipt) else outcome is not None

    def result(self) -> Acknowledgement:
        """Wait for the acknowledgement and return it. Raises what the publish raised."""
        outcome = self._outcome
        if isinstance(outcome, AsyncReceipt) and outcome.done() and not outcome.cancelled():
            return outcome.result()
        return self._loop.call(self._result)

    async def _result(self) -> Acknowledgement:
        await self._handed_over()
        if isinstance(self._outcome, AsyncReceipt):
            return await self._outcome
        raise self._outcome or ClientClosed("the producer has been closed")


class Producer:
    """Sends messages of one topic in batches, with one request in flight for each open segment; see `AsyncProducer`.

    Threads may share it. Small messages are handed to the loop's thread several at a time: one crossing for each
    message would cost more than sending it.
    """

    def __init__(self, loop: LoopThread, producer: AsyncProducer) -> None:
        self._loop = loop
        self._producer = producer
        self._queue: deque[tuple[Row, Receipt]] = deque()
        self._hand_over_started = False
        self._hand_over_lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"Producer({self._producer.topic!r}, id={self.producer_id!r})"

    @property
    def producer_id(self) -> str | None:
        """The id that brokers know this producer by; None if it is not idempotent."""
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
        """Take a message, waiting for room if necessary, and return its receipt.

        A value longer than the client's upload threshold is uploaded first. Raises `InvalidArgument` for a message
        that cannot be sent, `ClientClosed` after `close`, and whatever an upload raises.
        """
        self._producer.check_open()
        receipt = Receipt(self._loop, self._hand_over)
        message = OutgoingMessage(value, key, headers or {}, event_time)
        if is_inline(value, min(_QUEUED_VALUE_BYTES, self._producer.upload_threshold_bytes)):
            self._queue.append((row_of(message, upload=None), receipt))
            if len(self._queue) >= _QUEUED_MESSAGES:
                self._loop.call(self._hand_over)
            elif not self._hand_over_started:
                self._hand_over_started = True
                self._loop.start(self._hand_over)
        else:
            receipt.set_outcome(self._loop.call(self._after_queue, self._producer.send_message, message))
        return receipt

    def flush(self) -> None:
        """Send what is waiting and wait for all answers. Raises the first failure that nobody asked its receipt for."""
        self._loop.call(self._after_queue, self._producer.flush)

    def close(self) -> None:
        """Flush, then refuse further messages. Raises as `flush` does."""
        self._loop.call(self._after_queue, self._producer.close)

    async def _hand_over(self) -> None:
        """Give the queued messages to the producer, in order."""
        async with self._hand_over_lock:
            self._hand_over_started = False  # first: a message queued from here on starts the next hand-over
            while self._queue:
                row, receipt = self._queue.popleft()
                try:
                    receipt.set_outcome(await self._producer.send_row(row))
                except Exception as failure:
                    receipt.set_outcome(failure)

    async def _after_queue(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        await self._hand_over()
        return await function(*args)
