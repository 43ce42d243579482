"""The parts of the blocking client: its event loop, and iterators and files that wait for it."""

import asyncio
import io
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, TypeVar

import anyio
import pyarrow as pa
from anyio.from_thread import BlockingPortal

from braidmq.errors import FORKED, BraidMQError, ClientClosed
from braidmq.message import Message
from braidmq.positions import Published
from braidmq.publish.encoding.outgoing import OutgoingMessage, Value, in_batches
from braidmq.publish.row_names import OF_MESSAGES, message_of_many, rename_row
from braidmq.read.cursors import AsyncMessages, AsyncTables, MessageCursor
from braidmq.read.payload import AsyncPayload
from braidmq.read.plain_polls import PlainPolls
from braidmq.short_tracebacks import shortened

T = TypeVar("T")

_ITEMS_PER_CALL = 100
_SIGNAL_SECONDS = 0.5


class Running:
    """Whether a thread with an event loop runs in this process. Each message checks it.

    In a forked process no such thread runs: `is_forked`.
    """

    __slots__ = ("__weakref__", "is_forked", "is_open", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_open, self.is_forked = True, False
        self.loop = loop

    def check_process(self) -> None:
        """Raise `ClientClosed` in a forked process: the client belongs to the parent."""
        if self.is_forked:
            raise ClientClosed(FORKED)


_all_running: "weakref.WeakSet[Running]" = weakref.WeakSet()
_inherited: list[asyncio.Task[Any]] = []


def _forked() -> None:
    """Note in a forked process that it has none of these threads."""
    for each in list(_all_running):
        each.is_open, each.is_forked = False, True
        # asyncio complains of tasks that are collected before they are done.
        _inherited.extend(asyncio.all_tasks(each.loop))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class LoopThread:
    """An event loop in a thread of its own, and calls into it.

    A forked process has no such thread. There it counts as closed, since no thread would ever answer a call. Closing or
    collecting it there does nothing: the thread is the parent's.
    """

    def __init__(self) -> None:
        started: Future[tuple[BlockingPortal, asyncio.AbstractEventLoop]] = Future()
        # Not by anyio's own way: a program that collects its result waits for the thread, also in a fork.
        thread = threading.Thread(target=_run, args=(started,), daemon=True, name="braidmq client")
        thread.start()
        self._portal, self._loop = started.result()
        self._started: set[asyncio.Task[None]] = set()
        self.running = Running(self._loop)
        _all_running.add(self.running)
        # For clients that are never closed: this also runs at the end of the program, while threads still run.
        self._stop = weakref.finalize(self, _stop, self._portal, thread, self.running)

    @property
    def is_open(self) -> bool:
        """Whether calls can be made."""
        return self.running.is_open

    def call(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """Run an asynchronous function and return its result. An interrupted wait cancels it."""
        self.check_open()
        future = self._portal.start_task_soon(partial(function, *args, **kwargs))
        try:
            return _result(future)
        except CancelledError:
            raise ClientClosed("the client or the producer was closed during the call") from None
        except BraidMQError as error:
            raise shortened(error) from error.__cause__
        finally:
            future.cancel()

    def start(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start an asynchronous function and wait neither for it nor for its start. A failure of it is not reported."""
        self.check_open()
        try:
            self._loop.call_soon_threadsafe(self._begin, function)
        except RuntimeError:  # the loop has just been closed
            raise ClientClosed() from None

    def _begin(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._loop.create_task(function())
        self._started.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._started.discard(task)
        if not task.cancelled():
            task.exception()

    def call_at_end(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """As `call`, for functions that close something: in a forked process it does nothing."""
        if not self.running.is_forked:
            self.call(function, *args)

    def check_open(self) -> None:
        """Raise `ClientClosed` if no calls can be made."""
        self.running.check_process()
        if not self.running.is_open:
            raise ClientClosed()

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Iterate over an asynchronous iterator."""
        while batch := self.call(_next_items, items):
            yield from batch

    def close(self) -> None:
        """Stop the loop, cancel other threads' calls into it, and wait for its thread."""
        self._stop()


def _result(future: Future[T]) -> T:
    """Wait for it. A signal that comes just before a wait does not end it: Ctrl-C would wait for the call as well."""
    while True:
        try:
            return future.result(_SIGNAL_SECONDS)
        except TimeoutError:
            if future.done():  # by now, or with this very error
                return future.result()


def _run(started: "Future[tuple[BlockingPortal, asyncio.AbstractEventLoop]]") -> None:
    """Run an event loop until its portal is stopped."""

    async def serve() -> None:
        async with BlockingPortal() as portal:
            started.set_result((portal, asyncio.get_running_loop()))
            await portal.sleep_until_stopped()

    try:
        anyio.run(serve)
    except BaseException as error:  # no threads, or no descriptors, are left: the caller that starts it gets this
        if started.done():
            raise
        started.set_exception(error)


def _stop(portal: BlockingPortal, thread: threading.Thread, running: Running) -> None:
    if not running.is_open:
        return  # there is no thread that could stop
    running.is_open = False
    portal.call(portal.stop, True)
    thread.join()


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
            rename_row(failure, OF_MESSAGES, message_of_many, before=published.count)
            failure.published = published + (failure.published or Published())
            raise
    return published


class Messages(MessageCursor, Iterator[Message]):
    """Messages in order; `marker` is where to go on."""

    def __init__(self, loop: LoopThread, messages: AsyncMessages, polls: PlainPolls) -> None:
        super().__init__(messages.reader)
        self._loop, self._polls = loop, polls
        self._running = loop.running

    def __next__(self) -> Message:
        if self._running.is_forked:
            self._running.check_process()
        while (message := self.take()) is None:
            if not self._go_on():
                raise StopIteration
        return message

    def _go_on(self) -> bool:
        """Get the next page: by a poll from this thread, or through the loop. False if there is none.

        An interrupt at any line loses nothing, and returns nothing twice: one step takes the page.
        """
        self.settle()
        page = self._polls.page(self.reader)
        if page is None:
            has_page: bool = self._loop.call(self.next_page)
            return has_page
        self.begin_polled(page)
        return True


class Tables(Iterator[pa.Table]):
    """Pages as pyarrow tables; `marker` is where to go on after the last one returned."""

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
        """Return the connection."""
        if not self.closed:
            self._loop.call_at_end(self._payload.aclose)
        super().close()
