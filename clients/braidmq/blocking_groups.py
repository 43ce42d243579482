"""Workers, their deliveries and groups for blocking code."""

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Literal, Self, Unpack, cast

from braidmq.blocking import LoopThread
from braidmq.consume.claims import Claim
from braidmq.consume.delivery import AsyncDelivery, BaseDelivery, Desk
from braidmq.consume.group import AsyncGroup
from braidmq.consume.signals import stopped_by_signals
from braidmq.consume.worker import AsyncWorker, log_failure
from braidmq.group_settings import GroupSettings
from braidmq.message import Message
from braidmq.models import GroupDescription, GroupMessage
from braidmq.short_tracebacks import short_tracebacks


class Delivery(BaseDelivery):
    """A message that was handed out to this worker: see `BaseDelivery`. Any thread may work on it.

    `with delivery:` acks it at the end, and releases it with the reason on an exception, which goes on.
    """

    __slots__ = ("_loop",)

    def __init__(self, loop: LoopThread, message: Message, claim: Claim, desk: Desk) -> None:
        super().__init__(message, claim, desk)
        self._loop = loop

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end(error)

    def extend(self, seconds: float | None = None) -> None:
        """Make the lease run for so many seconds from now on; without a number, for the group's `lease_seconds`.

        The worker does so by itself while you work. Call it to learn whether the message is still yours: raises
        `ClaimLost` if it is not, and `InvalidConfig` for more than the group's `lease_seconds`.
        """
        self._loop.call(self._desk.extend, self, seconds)


@short_tracebacks
class Worker:
    """Works through a topic together with all other workers of its group: iterate over it for deliveries.

    See `AsyncWorker`, which does the work in the client's thread: leases run on while your thread is busy. Threads may
    iterate over one worker. A loop over it that ends, also by `break` or an exception, closes it: its acks are durable
    then, and messages that were claimed ahead go to others. Within `with worker:` the block does so.
    """

    def __init__(self, loop: LoopThread, worker: AsyncWorker) -> None:
        self._loop, self._worker = loop, worker
        worker.deliver_as(partial(Delivery, loop))

    def __repr__(self) -> str:
        return repr(self._worker).removeprefix("Async")

    def __enter__(self) -> Self:
        self._loop.call(self._worker.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_at_end(self._worker.__aexit__, kind, error, traceback)

    def __iter__(self) -> Iterator[Delivery]:
        return self._deliveries()

    def _deliveries(self) -> Generator[Delivery]:
        worker = self._worker
        worker.begin_loop()
        try:
            while delivery := worker.take_now() or self._loop.call(worker.take):
                yield cast("Delivery", delivery)
        finally:
            if self._loop.is_open:
                self._loop.call(worker.end_loop)

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self._worker.topic

    @property
    def group(self) -> str:
        """The name of the group."""
        return self._worker.group

    @property
    def acked(self) -> int:
        """How many messages were acked, durably."""
        return self._worker.acked

    @property
    def released(self) -> int:
        """How many messages were released, durably."""
        return self._worker.released

    @property
    def lost(self) -> int:
        """How many acks or releases came too late: another worker had the message by then."""
        return self._worker.lost

    def run(
        self,
        handler: Callable[[Delivery], object],
        *,
        concurrency: int = 16,
        on_error: Callable[[Delivery, Exception], object] | None = None,
        signals: bool = True,
    ) -> None:
        """Call `handler` with each delivery, in `concurrency` threads; returns when the worker is stopped or idle.

        A message is acked when its handler returns, unless the handler has acked or released it. If the handler raises,
        the message is released with the reason, and `on_error` is called with the delivery and the error, in the
        handler's thread; by default the error is logged (logger `braidmq.worker`). With `signals`, the first SIGTERM or
        SIGINT stops it: messages in hand are finished, the others released at once. All acks are durable when it
        returns. Raises `TopicNotFound`, `InvalidArgument`, and other errors that end a worker.
        """
        report = on_error or log_failure

        def work(delivery: Delivery) -> None:
            try:
                handler(delivery)
            except Exception as error:
                delivery.end(error)
                report(delivery, error)
            else:
                delivery.end(None)

        with (
            ThreadPoolExecutor(max(concurrency, 1), thread_name_prefix="braidmq worker") as pool,
            stopped_by_signals(self.stop) if signals else nullcontext(),
        ):

            async def in_thread(delivery: AsyncDelivery) -> None:
                # In the context of the handler: so a call that the handler makes is known to be its own.
                here = partial(copy_context().run, work, cast("Delivery", delivery))
                working = asyncio.get_running_loop().run_in_executor(pool, here)
                try:
                    await asyncio.shield(working)
                except asyncio.CancelledError:
                    # A thread cannot be stopped: no other worker may get the message while it runs.
                    await asyncio.wait([working])
                    raise

            self._loop.call(self._worker.run, in_thread, concurrency=concurrency, signals=False)

    def stop(self) -> None:
        """Hand out nothing more: iteration ends, and `run` returns when the messages in hand are done.

        May be called from any thread, and by a signal's handler.
        """
        self._worker.stop()

    def flush(self) -> None:
        """Wait until all acks and releases so far are answered: then they are durable.

        Raises `ClaimLost` if an ack or release since the last flush came too late, and any other error. Another worker
        has such a message: this one does not ack it.
        """
        self._loop.call(self._worker.flush)

    def close(self) -> None:
        """Give back all messages in hand, wait until acks and releases are answered, and stop.

        Handlers of a `run` keep their messages to the end: it waits for them. Called by a handler, it stops the worker,
        and `run` closes it. While no broker answers, it waits for 5 seconds more, and raises `NoConnection` or another
        error.
        """
        self._loop.call_at_end(self._worker.close)


@short_tracebacks
class Group:
    """A consumer group of a topic, by its name: it need not exist."""

    def __init__(self, loop: LoopThread, group: AsyncGroup) -> None:
        self._loop, self._group = loop, group

    def __repr__(self) -> str:
        return repr(self._group).removeprefix("Async")

    @property
    def topic(self) -> str:
        """The name of its topic."""
        return self._group.topic

    @property
    def name(self) -> str:
        """Its name."""
        return self._group.name

    def create(self, *, from_: str | datetime | None = None, **settings: Unpack[GroupSettings]) -> GroupDescription:
        """Create the group, or change the settings of an existing one; see `AsyncGroup.create`."""
        return self._loop.call(self._group.create, from_=from_, **settings)

    def describe(self) -> GroupDescription:
        """Return its settings, its lag (messages, seconds), and counts of messages. Raises `GroupNotFound`."""
        return self._loop.call(self._group.describe)

    def messages(
        self, state: Literal["backlog", "in_flight", "dead"], *, limit: int | None = None
    ) -> Iterator[GroupMessage]:
        """Look at messages without claiming them; see `AsyncGroup.messages`."""
        return self._loop.iterate(self._group.messages(state, limit=limit))

    def redrive(self, ids: Iterable[str] | None = None, *, limit: int | None = None, discard: bool = False) -> int:
        """Publish dead letters to their topic again, once each, and return how many; see `AsyncGroup.redrive`."""
        return self._loop.call(self._group.redrive, ids, limit=limit, discard=discard)

    def reset(
        self, to: str | datetime | None = None, *, marker: str | None = None, force: bool = False
    ) -> GroupDescription:
        """Make the group begin anew; see `AsyncGroup.reset`."""
        return self._loop.call(self._group.reset, to, marker=marker, force=force)

    def delete(self) -> None:
        """Delete the group; messages stay in their topics. Raises `GroupNotFound`."""
        self._loop.call(self._group.delete)
