"""What the blocking client hands out: iterators, files and producers that wait for the loop's thread."""

import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa
from anyio.from_thread import start_blocking_portal

from braidmq.cursors import AsyncTables, MessageCursor
from braidmq.errors import ClientClosed
from braidmq.message import Message
from braidmq.outgoing import Headers, Key, Value
from braidmq.payload import AsyncPayload
from braidmq.positions import Acknowledgement
from braidmq.producer import AsyncProducer, AsyncReceipt
from braidmq.reader import Reader

T = TypeVar("T")

_ITEMS_A_CALL = 100


class LoopThread:
    """An event loop in a thread of its own, and calls into it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal("asyncio", name="braidmq client"))
        self.is_open = True

    def call(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """The result of an asynchronous function; an interrupted wait cancels it."""
        if not self.is_open:
            raise ClientClosed()
        future = self._portal.start_task_soon(partial(function, *args, **kwargs))
        try:
            return future.result()
        finally:
            future.cancel()

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items of an asynchronous iterator."""
        while batch := self.call(_some, items):
            yield from batch

    def close(self) -> None:
        """Stop the loop and wait for its thread."""
        self.is_open = False
        self._stack.close()


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
            if not self.turn(self._loop.call(self.reader.next_page)):
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

    def __init__(self, loop: LoopThread, receipt: AsyncReceipt) -> None:
        self._loop = loop
        self._receipt = receipt

    def done(self) -> bool:
        """Whether the answer is there."""
        return self._receipt.done()

    def result(self) -> Acknowledgement:
        """The acknowledgement, waiting for it if need be; raises what the publish raised."""
        return self._receipt.result() if self._receipt.done() else self._loop.call(_outcome, self._receipt)


async def _outcome(receipt: AsyncReceipt) -> Acknowledgement:
    return await receipt


class Producer:
    """Messages of one topic in batches, one request in flight; see `AsyncProducer`."""

    def __init__(self, loop: LoopThread, producer: AsyncProducer) -> None:
        self._loop = loop
        self._producer = producer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call(self._producer.__aexit__, kind, error, traceback)

    def send(
        self,
        value: Value,
        *,
        key: Key = None,
        headers: Headers | None = None,
        event_time: datetime | None = None,
    ) -> Receipt:
        """Take a message, waiting for room if need be; its receipt gives the acknowledgement."""
        sent = self._loop.call(self._producer.send, value, key=key, headers=headers, event_time=event_time)
        return Receipt(self._loop, sent)

    def flush(self) -> None:
        """Send what waits, wait for all answers; raises the first failure that nobody asked for."""
        self._loop.call(self._producer.flush)

    def close(self) -> None:
        """Flush, then take no more; raises as `flush` does."""
        self._loop.call(self._producer.close)
