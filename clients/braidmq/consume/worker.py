"""A worker of a queue group: claims messages ahead, hands them out, and has their leases run on until they are done."""

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from braidmq.consume.claim_size import ClaimSize
from braidmq.consume.claims import Claim
from braidmq.consume.decision_sender import DecisionSender
from braidmq.consume.decisions import MOST_PARTS, Outcome, Release, Taken, parts_of
from braidmq.consume.delivery import STOPPED, UNTOUCHED, AsyncDelivery, BaseDelivery, Handler
from braidmq.consume.group_calls import GroupCalls
from braidmq.consume.signals import stopped_by_signals
from braidmq.errors import BraidMQError, ClaimLost, ClientClosed, InvalidArgument
from braidmq.message import Message
from braidmq.short_tracebacks import short_tracebacks, shortened
from braidmq.transport.retry import NEVER_GIVE_UP, Retry

WAIT_SECONDS = 20.0
MOST_CLAIMED = 10_000
_EXTENSIONS_PER_LEASE = 3
_MOST_LOST_NAMED = 100
_MOST_NAME_CHARS = 100
# So old is a claim that waits for messages, since there are none: its answer is not on the way.
_ANSWER_SECONDS = 0.5
# So many messages may be with a worker, also those whose acks are not answered yet.
_MOST_HELD = 20_000

_log = logging.getLogger("braidmq.worker")
OnError = Callable[[Any, Exception], object]


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker claims messages. Raises `InvalidArgument` for settings that make no sense."""

    prefetch: int
    lease_seconds: float | None
    idle_seconds: float | None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None and not 1 <= len(self.name) <= _MOST_NAME_CHARS:
            raise InvalidArgument(f"name is {self.name!r:.120}: it must have from 1 to {_MOST_NAME_CHARS} characters")
        if not 0 <= self.prefetch <= MOST_CLAIMED:
            raise InvalidArgument(f"prefetch is {self.prefetch}: it must be from 0 to {MOST_CLAIMED} messages")
        if self.lease_seconds is not None and not self.lease_seconds >= 1:
            raise InvalidArgument(f"lease_seconds is {self.lease_seconds:g}: it must be at least 1")
        if self.idle_seconds is not None and not self.idle_seconds >= 0:
            raise InvalidArgument(f"idle_seconds is {self.idle_seconds:g}: it must be 0 or more")


def log_failure(delivery: BaseDelivery, error: Exception) -> None:
    """What happens to an error of a handler, unless its caller says otherwise."""
    _log.warning("message %s of %s was released: %r", delivery.id, delivery.topic, error, exc_info=error)


@short_tracebacks
class AsyncWorker:
    """Works through a topic together with all other workers of its group: iterate over it for deliveries.

    Each message goes to one worker. It is done when it is acked, and comes again if it is released or its worker dies.
    The group is made with its defaults if it is not there. Leases run on in the background until messages are
    acked or released, also while you work for hours; in asyncio, work must not block the event loop for longer than
    a lease.

    Acks and releases are sent in the background, many at a time. They are durable when `flush` returns. `close`, the
    end of the `async with` block, `run`, and closing the client wait for them too.

    It claims as much ahead as is worked on in half a second, `prefetch` messages at most: slow work is not hoarded.
    Claims wait out broken connections and broker restarts.
    """

    def __init__(self, calls: GroupCalls, settings: WorkerSettings) -> None:
        self._calls, self._settings = calls, settings
        self._clock = calls.transport.clock
        self._retry = calls.transport.retry
        if not self._retry.for_all_calls:
            self._retry = replace(self._retry, give_up_after_seconds=NEVER_GIVE_UP)
        self._size = ClaimSize(settings.prefetch)
        self._sender = DecisionSender(calls, self._answered)
        self._make: Callable[[Message, Claim, AsyncWorker], AsyncDelivery] = AsyncDelivery
        self._held: dict[Taken, AsyncDelivery] = {}
        self._ready: deque[AsyncDelivery] = deque()
        self._lost: list[str] = []
        self._waiters: set[asyncio.Future[None]] = set()
        self._wanted = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._claiming: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._lease_seconds = 0.0
        self._asking = 0
        self._asked_seconds = self._news_seconds = 0.0
        self._back: deque[tuple[Taken, Outcome]] = deque()
        self._is_idle = self._is_stopped = self._is_closed = False
        self._failure: Exception | None = None
        self._entered = self._loops = 0
        self.acked = self.released = self.lost = 0
        """How many messages were acked or released, durably, and of how many that came too late."""

    def __repr__(self) -> str:
        return f"AsyncWorker({self.topic!r}, group={self.group!r})"

    @property
    def name(self) -> str:
        """The name under which the group's description shows it."""
        return (
            f"{socket.gethostname()}:{os.getpid()}"[-_MOST_NAME_CHARS:]
            if self._settings.name is None
            else self._settings.name
        )

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self._calls.topic

    @property
    def group(self) -> str:
        """The name of the group."""
        return self._calls.group

    async def __aenter__(self) -> Self:
        self._entered += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered -= 1
        if error is None:
            await self.close()
        else:
            with suppress(BraidMQError):  # the error that ended the block says more
                await self.close()

    def __aiter__(self) -> AsyncGenerator[AsyncDelivery]:
        return self._deliveries()

    async def _deliveries(self) -> AsyncGenerator[AsyncDelivery]:
        self.begin_loop()
        try:
            while (delivery := await self.take()) is not None:
                yield delivery
        finally:
            await self.end_loop()

    def deliver_as(self, make: Callable[[Message, Claim, "AsyncWorker"], Any]) -> None:
        """Hand out deliveries of another kind: for the blocking client."""
        self._make = make

    async def take(self) -> AsyncDelivery | None:
        """Wait for a message; None once the worker is stopped, or idle.

        It is idle once there was nothing to claim for `idle_seconds`. Raises `ClientClosed` after `close`, and
        `TopicNotFound`, `InvalidConfig` (for a lease that is longer than the group's) or what else ends a worker.
        """
        self._start()
        if not self._waiters:
            self._is_idle, self._news_seconds = False, self._clock.monotonic_seconds()
        while True:
            self._check()
            if self._is_stopped or (delivery := self.take_now()) is not None or self._is_idle:
                return None if self._is_stopped else delivery
            await self._wait()

    def take_now(self) -> AsyncDelivery | None:
        """Return a message that was claimed ahead; None if there is none. May be called from any thread."""
        if self._is_stopped:
            return None
        try:
            delivery = self._ready.popleft()
        except IndexError:
            return None
        self._size.took(1)
        if not self._wanted.is_set() and self._size.is_half_gone(len(self._ready)):
            self._in_loop(self._wanted.set)
        return delivery

    def stop(self) -> None:
        """Hand out nothing more: iteration ends, and `run` returns when what is in hand is done.

        May be called from any thread, and by a signal's handler.
        """
        self._is_stopped = True
        # Not within a signal's handler, which may have interrupted anything.
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and has nothing to hand out
                self._loop.call_soon_threadsafe(self._stop_claiming)

    async def flush(self) -> None:
        """Wait until all acks and releases so far are answered: then they are durable.

        Raises `ClaimLost` if some messages since the last flush were with another worker by then, and what else went
        wrong. Such a message is not acked by this worker; it is worked on elsewhere.
        """
        if self._is_closed:
            raise ClientClosed("the worker has been closed")
        await self._sender.flush()
        lost, self._lost = self._lost, []
        if lost:
            raise ClaimLost(
                f"{len(lost)} messages had gone to other workers of group {self.group!r} before their acks came: "
                f"{', '.join(lost[:_MOST_LOST_NAMED])}"
            )

    async def close(self) -> None:
        """Give back all that is in hand, wait until acks and releases are answered, and stop.

        While no broker answers, it waits for 5 seconds more, and raises `NoConnection` or what else it was.
        """
        if self._is_closed:
            return
        self._is_stopped = True
        self._stop_claiming()
        await asyncio.gather(*self._ending)
        self._sender.is_closing = True
        for delivery in list(self._held.values()):
            self._put_back(delivery, STOPPED)
        try:
            if self._tasks:
                await self._sender.flush()
        finally:
            self._is_closed = True
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def begin_loop(self) -> None:
        """A loop over the worker begins."""
        self._loops += 1

    async def end_loop(self) -> None:
        """A loop over the worker has ended: close it, unless a `with` block will, or another loop goes on."""
        self._loops -= 1
        if self._loops:
            return
        if not self._entered:
            await self.close()
            return
        self._stop_claiming()

    async def run(
        self,
        handler: Handler,
        *,
        concurrency: int = 16,
        on_error: OnError | None = None,
        signals: bool = True,
    ) -> None:
        """Call `handler` with each delivery, `concurrency` at a time; returns when the worker is stopped or idle.

        A message is acked when its handler returns, unless that has acked or released it. If it raises, the message is
        released with the reason, and `on_error` is called with the delivery and the error; by default it is logged
        (logger `braidmq.worker`). With `signals`, the first SIGTERM or SIGINT stops it: what is in hand is finished,
        the rest released at once. All acks are durable when it returns. Raises as `take`, and `InvalidArgument`.
        """
        if concurrency < 1:
            raise InvalidArgument(f"concurrency is {concurrency}: it must be at least 1")
        if signals:
            with stopped_by_signals(self.stop):
                await self._run(handler, concurrency, on_error or log_failure)
        else:
            await self._run(handler, concurrency, on_error or log_failure)

    async def _run(self, handler: Handler, concurrency: int, on_error: OnError) -> None:
        async with self:
            hands = [asyncio.create_task(self._work(handler, on_error)) for _ in range(concurrency)]
            try:
                await asyncio.wait(hands)
            except BaseException:
                for hand in hands:
                    hand.cancel()
                await asyncio.gather(*hands, return_exceptions=True)
                raise
            # All are asked for, though all have the same to tell: asyncio complains of each that nobody has asked.
            failures = [failure for hand in hands if (failure := hand.exception()) is not None]
            if failures:
                raise failures[0]

    async def _work(self, handler: Handler, on_error: OnError) -> None:
        while (delivery := await self.take()) is not None:
            try:
                await handler(delivery)
            except Exception as error:
                delivery.end(error)
                on_error(delivery, error)
            except BaseException as error:
                delivery.end(error)
                raise
            else:
                delivery.end(None)

    # -- what deliveries tell ----------------------------------------------------------------------------------

    def decide(self, delivery: BaseDelivery, outcome: Outcome) -> None:
        """Ack or release a delivery in the background. May be called from any thread."""
        if outcome in (STOPPED, UNTOUCHED):
            self._back.append((delivery.taken, outcome))
            self._in_loop(self._send_back)
        else:
            self._sender.add(delivery.taken, outcome)
            self._in_loop(self._sender.wake)

    def _send_back(self) -> None:
        """Release what nobody works on, but not while a claim is under way: it would take the same messages again.

        Each time counts as a delivery, and a message has only so many.
        """
        if not self._asking:
            while self._back:
                self._sender.add(*self._back.popleft())
            self._sender.wake()

    async def extend(self, delivery: BaseDelivery, seconds: float | None) -> None:
        """Have a lease run longer. Raises `ClaimLost`."""
        lost = await self._calls.extend(parts_of([delivery.taken]), seconds, retry=None)
        if lost:
            delivery.is_lost = True
            raise ClaimLost(f"message {delivery.id} is with another worker of group {self.group!r}, or done")

    def _answered(self, messages: Iterable[Taken], lost: set[Taken]) -> None:
        """Acks or releases were answered."""
        for taken in messages:
            delivery = self._held.pop(taken, None)
            if delivery is None:
                continue
            if taken in lost:
                self._lose(delivery)
            elif isinstance(delivery.outcome, Release):
                self.released += 1
            else:
                self.acked += 1
        self._wanted.set()

    def _lose(self, delivery: BaseDelivery) -> None:
        delivery.is_lost = True
        self.lost += 1
        # Bounded, for workers that never flush.
        if delivery.outcome not in (STOPPED, UNTOUCHED) and len(self._lost) < _MOST_HELD:
            self._lost.append(delivery.id)

    # -- tasks ---------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._is_closed:
            raise ClientClosed("the worker has been closed")
        if not self._tasks:
            self._loop = asyncio.get_running_loop()
            self._tasks = [asyncio.create_task(self._sender.run())]
        if self._claiming is None and not self._is_stopped:
            self._claiming = asyncio.create_task(self._ended_by_failure(self._claim_ahead()))

    def _check(self) -> None:
        failure = self._failure or self._sender.failure
        if isinstance(failure, BraidMQError):
            raise shortened(failure)
        if failure is not None:
            raise failure

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        self._wanted.set()
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _in_loop(self, function: Callable[[], None]) -> None:
        """Call a function in the thread of the worker's loop, if that has begun."""
        if self._loop is None:
            return
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            function()
        else:
            with suppress(RuntimeError):  # the loop is closed, and the leases of what is held run out
                self._loop.call_soon_threadsafe(function)

    def _stop_claiming(self) -> None:
        if self._claiming is not None:
            self._ending.add(ending := asyncio.create_task(self._end_claim(self._claiming)))
            ending.add_done_callback(self._ending.discard)
            self._claiming = None
        self._give_back_ready()
        self._wake()

    async def _end_claim(self, claiming: asyncio.Task[None]) -> None:
        """End a claim under way. If its answer were not read, its messages would come again only after a lease.

        A broker that has messages answers at once. One that waits for some learns that nobody wants them any more.
        """
        left_seconds = self._asked_seconds + _ANSWER_SECONDS - self._clock.monotonic_seconds()
        if self._asking and left_seconds > 0:
            await asyncio.wait([claiming], timeout=left_seconds)
        claiming.cancel()
        await asyncio.wait([claiming])

    def _give_back_ready(self) -> None:
        while self._ready:
            with suppress(IndexError):  # another thread has taken it
                self._put_back(self._ready.popleft(), UNTOUCHED)

    def _put_back(self, delivery: BaseDelivery, outcome: Release) -> None:
        if delivery.outcome is None:
            delivery.outcome = outcome
            self.decide(delivery, outcome)

    async def _ended_by_failure(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as failure:
            self._failure = failure
            self._wake()

    async def _claim_ahead(self) -> None:
        quick_answers = 0
        while self._claiming is asyncio.current_task():
            # All who want something say so first.
            await self._clock.sleep(0)
            now_seconds = self._clock.monotonic_seconds()
            wanted = min(
                self._size.wanted(len(self._waiters), len(self._ready), now_seconds),
                MOST_CLAIMED,
                _MOST_HELD - len(self._held),
            )
            if wanted <= 0:
                self._wanted.clear()
                await self._wanted.wait()
                continue
            found = await self._claim(wanted)
            self._size.answered(self._clock.monotonic_seconds())
            # A broker that is about to end answers at once: that must not become a busy loop.
            is_quick = not found and self._clock.monotonic_seconds() - now_seconds < min(1.0, self._wait_seconds)
            quick_answers = quick_answers + 1 if is_quick else 0
            if quick_answers:
                await self._clock.sleep(self._calls.transport.pause_seconds(quick_answers, self._retry))

    @property
    def _wait_seconds(self) -> float:
        idle = self._settings.idle_seconds
        return WAIT_SECONDS if idle is None else min(WAIT_SECONDS, idle)

    async def _claim(self, most: int) -> int:
        """Claim messages, hand them to whoever waits, and return how many there were."""
        self._asking += 1
        self._asked_seconds = self._clock.monotonic_seconds()
        try:
            claimed = await self._calls.claim(
                most,
                wait_seconds=self._wait_seconds,
                lease_seconds=self._settings.lease_seconds,
                consumer=self.name,
                retry=self._retry,
            )
        finally:
            self._asking -= 1
            self._send_back()
        if not self._lease_seconds:
            self._tasks.append(asyncio.create_task(self._extend_leases()))
        self._lease_seconds = claimed.lease_seconds
        for message, claim in claimed.messages:
            self._hold(message, claim)
        now_seconds = self._clock.monotonic_seconds()
        idle_seconds = self._settings.idle_seconds
        if claimed.messages:
            self._news_seconds = now_seconds
        elif idle_seconds is not None and now_seconds - self._news_seconds >= idle_seconds:
            self._is_idle = True
        if self._claiming is None:
            self._give_back_ready()
        self._wake()
        return len(claimed.messages)

    def _hold(self, message: Message, claim: Claim) -> None:
        delivery = self._make(message, claim, self)
        self._held[delivery.taken] = delivery
        self._ready.append(delivery)

    async def _extend_leases(self) -> None:
        """Have all leases run on, three times in each: so one that fails does no harm."""
        while True:
            await self._clock.sleep(self._lease_seconds / _EXTENSIONS_PER_LEASE)
            if self._held:
                with suppress(BraidMQError):  # it is tried again soon, and lost messages are told when they are acked
                    for lost in await self._extend(list(self._held)):
                        self._drop(lost)

    async def _extend(self, held: list[Taken]) -> set[Taken]:
        retry = Retry(give_up_after_seconds=self._lease_seconds / _EXTENSIONS_PER_LEASE)
        parts = parts_of(held)
        lost: set[Taken] = set()
        for start in range(0, len(parts), MOST_PARTS):
            some = parts[start : start + MOST_PARTS]
            lost |= await self._calls.extend(some, self._settings.lease_seconds, retry=retry)
        return lost

    def _drop(self, lost: Taken) -> None:
        """A message has gone to another worker. One that is being acked is told about by that."""
        delivery = self._held.get(lost)
        if delivery is None or delivery.outcome is not None:
            return
        delivery.is_lost = True
        with suppress(ValueError):  # somebody works on it
            self._ready.remove(delivery)
            del self._held[lost]
