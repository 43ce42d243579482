"""A worker of a queue group: claims messages ahead, hands them out, and keeps their leases running until done."""

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, cast

from braidmq.consume.claim_size import ClaimSize
from braidmq.consume.claims import Claim
from braidmq.consume.decision_sender import DecisionSender
from braidmq.consume.decisions import MOST_PARTS, Ack, Outcome, Part, Release, Taken, parts_of, taken_of
from braidmq.consume.delivery import BEHIND, GIVEN_BACK, STOPPED, UNTOUCHED, AsyncDelivery, BaseDelivery, Handler
from braidmq.consume.group_calls import GroupCalls
from braidmq.consume.loops import Loop
from braidmq.consume.signals import stopped_by_signals
from braidmq.consume.turns import Turns
from braidmq.errors import (
    BraidMQError,
    ClaimLost,
    ClientClosed,
    GroupNotFound,
    InvalidArgument,
    InvalidConfig,
    InvalidRequest,
)
from braidmq.forks import Birthplace
from braidmq.message import Message
from braidmq.short_tracebacks import short_tracebacks, shortened
from braidmq.transport.retry import NEVER_GIVE_UP, ONE_ROUND, Retry

WAIT_SECONDS = 20.0
MOST_CLAIMED = 10_000
_EXTENSIONS_PER_LEASE = 3
_MOST_LOST_NAMED = 100
_MOST_NAME_CHARS = 100
# A claim this old waits for messages, since there are none: its answer is not on the way.
_ANSWER_SECONDS = 0.5
# A worker may have so many messages, also those whose acks are not answered yet.
_MOST_HELD = 20_000

# The worker whose handler runs here.
_at_work: ContextVar["AsyncWorker | None"] = ContextVar("_at_work", default=None)

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
    """The default for an error of a handler: log it."""
    _log.warning("message %s of %s was released: %r", delivery.id, delivery.topic, error, exc_info=error)


@short_tracebacks
class AsyncWorker:
    """Works through a topic together with all other workers of its group: iterate over it for deliveries.

    Each message goes to one worker. It is done when it is acked, and comes again if it is released or its worker dies.
    If the group does not exist, it is created with its defaults. Leases run on in the background until messages are
    acked or released, also while you work for hours; in asyncio, work must not block the event loop for longer than a
    lease.

    Acks and releases are sent in the background, many at a time. They are durable when `flush` returns. `close`, the
    end of the `async with` block, `run`, and closing the client wait for them too.

    In a group with `order: key`, the next message of a key comes when the one before is acked, and its handler has
    returned. If that one is released, or lost, all others of the key that the worker has go back untouched: they come
    again behind it, in their order. Messages of other keys, and those without a key, wait for none of them.

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
        self._turns = Turns()
        self._birthplace = Birthplace()
        self._lost: list[str] = []
        self._waiters: set[asyncio.Future[None]] = set()
        self._wanted = asyncio.Event()
        self._doubted = asyncio.Event()
        # The group's order, as its description has it, if claims do not.
        self._order: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._claiming: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._hands: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._lease_seconds = 0.0
        self._asking = 0
        self._asked_seconds = self._news_seconds = 0.0
        self._back: deque[tuple[Taken, Outcome]] = deque()
        self._is_idle = self._is_stopped = self._is_closed = False
        self._failure: Exception | None = None
        self._entered = self._loops = 0
        self.acked = self.released = self.lost = 0
        """How many messages were acked or released, durably, and for how many that came too late."""

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

    def __aiter__(self) -> Loop[AsyncDelivery]:
        return Loop(self.take, begin=self.begin_loop, end=self.end_loop, let_go=self._close_later)

    async def __anext__(self) -> AsyncDelivery:
        if (delivery := await self.take()) is None:
            raise StopAsyncIteration
        return delivery

    def deliver_as(self, make: Callable[[Message, Claim, "AsyncWorker"], Any]) -> None:
        """Hand out deliveries of another kind: for the blocking client."""
        self._make = make

    async def take(self) -> AsyncDelivery | None:
        """Wait for a message; None once the worker is stopped, or idle. A wait that is cancelled costs nothing.

        It is idle once there was nothing to claim for `idle_seconds`. Raises `ClientClosed` after `close`, and
        `TopicNotFound`, `InvalidConfig` (for a lease that is longer than the group's) or other errors that end a
        worker.
        """
        self._start()
        if not self._waiters:
            self._is_idle, self._news_seconds = False, self._clock.monotonic_seconds()
        while True:
            self._check()
            if self._is_stopped or (delivery := self.take_now()) is not None or self._is_idle:
                return None if self._is_stopped else delivery
            if self._turns.must_ask(self._clock.monotonic_seconds()):
                self._doubted.set()
            await self._wait()

    def take_now(self) -> AsyncDelivery | None:
        """Return a message that was claimed ahead; None if there is none. May be called from any thread."""
        self._birthplace.check()
        if self._is_stopped or (delivery := self._turns.take(self._clock.monotonic_seconds())) is None:
            return None
        self._size.took(1)
        if not self._wanted.is_set() and self._size.is_half_gone(len(self._turns)):
            self._in_loop(self._wanted.set)
        return cast("AsyncDelivery", delivery)

    def stop(self) -> None:
        """Hand out nothing more: iteration ends, and `run` returns when the messages in hand are done.

        May be called from any thread, and by a signal's handler.
        """
        self._is_stopped = True
        # Not within a signal's handler, which may have interrupted anything.
        if self._loop is not None and not self._birthplace.is_elsewhere:
            with suppress(RuntimeError):  # the loop is closed, and has nothing to hand out
                self._loop.call_soon_threadsafe(self._stop_claiming)

    async def flush(self) -> None:
        """Wait until all acks and releases so far are answered: then they are durable.

        Raises `ClaimLost` if an ack or release since the last flush came too late, and any other error. Another worker
        has such a message: this one does not ack it.
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
        """Give back all messages in hand, wait until acks and releases are answered, and stop.

        Handlers of a `run` keep their messages to the end: it waits for them. Called by a handler, it stops the worker,
        and `run` closes it. While no broker answers, it waits for 5 seconds more, and raises `NoConnection` or another
        error.
        """
        if self._is_closed:
            return
        self._is_stopped = True
        self._stop_claiming()
        if self._hands:
            if _at_work.get() is self:
                return
            await asyncio.wait(self._hands)
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
        """Note that a loop over the worker begins."""
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

    def _close_later(self) -> None:
        """Close later: a loop over the worker was left where nothing can be awaited."""
        self._in_loop(self._begin_to_close)

    def _begin_to_close(self) -> None:
        self._closing = asyncio.create_task(self._ended_by_failure(self.end_loop()))

    async def run(
        self,
        handler: Handler,
        *,
        concurrency: int = 16,
        on_error: OnError | None = None,
        signals: bool = True,
    ) -> None:
        """Call `handler` with each delivery, `concurrency` at a time; returns when the worker is stopped or idle.

        A message is acked when its handler returns, unless the handler has acked or released it. If the handler raises,
        the message is released with the reason, and `on_error` is called with the delivery and the error; by default
        the error is logged (logger `braidmq.worker`). With `signals`, the first SIGTERM or SIGINT stops it: messages in
        hand are finished, the others released at once. All acks are durable when it returns. Raises as `take`, and
        `InvalidArgument`.
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
            for hand in hands:
                self._hands.add(hand)
                hand.add_done_callback(self._hands.discard)
            try:
                await asyncio.wait(hands)
            except BaseException:
                for hand in hands:
                    hand.cancel()
                await asyncio.gather(*hands, return_exceptions=True)
                raise
            # Each exception is retrieved, though all are the same: asyncio complains of each that was not.
            failures = [failure for hand in hands if (failure := hand.exception()) is not None]
            if failures:
                raise failures[0]

    async def _work(self, handler: Handler, on_error: OnError) -> None:
        _at_work.set(self)  # in the context of this task
        while (delivery := await self.take()) is not None:
            delivery.in_handler = True
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
            finally:
                delivery.in_handler = False
                self._end_turn(delivery)

    # -- decisions of deliveries -------------------------------------------------------------------------------

    def decide(self, delivery: BaseDelivery, outcome: Outcome) -> None:
        """Ack or release a delivery in the background. May be called from any thread.

        Raises `ClientClosed` in a forked process: nothing there would send it.
        """
        self._birthplace.check()
        if outcome in (STOPPED, UNTOUCHED):
            self._back.append((delivery.taken, outcome))
            self._in_loop(self._send_back)
        else:
            self._sender.add(delivery.taken, outcome)
            self._in_loop(self._sender.wake)
        # A handler that has acked a message may still work on it, until it returns.
        if not delivery.in_handler:
            self._end_turn(delivery)

    def _end_turn(self, delivery: BaseDelivery) -> None:
        """Let the next message of its key go on; if this one will come again, only after that is done."""
        if delivery.turn_key is not None:
            goes_on = isinstance(delivery.outcome, Ack) and not delivery.is_lost
            self._give_back_behind(self._turns.over(delivery, goes_on=goes_on))
            self._in_loop(self._wake)

    def _give_back_behind(self, waiting: Iterable[BaseDelivery]) -> None:
        """Release messages of a key, also while a claim is under way: they come behind the one that was ahead.

        Stopped before that is sent, they come again when their leases have run out, in the same order.
        """
        for each in waiting:
            if each.is_lost:
                self._held.pop(each.taken, None)
            else:
                self._put_back(each, BEHIND)

    def _send_back(self) -> None:
        """Release messages that no code works on, but not while a claim is under way: it would get the same ones again.

        Each time counts as a delivery, and a message has only so many.
        """
        if not self._asking:
            while self._back:
                self._sender.add(*self._back.popleft())
            self._sender.wake()

    async def extend(self, delivery: BaseDelivery, seconds: float | None) -> None:
        """Extend a lease. Raises `ClaimLost`."""
        lost = await self._calls.extend(parts_of([delivery.taken]), seconds, retry=None)
        if lost:
            delivery.is_lost = True
            raise ClaimLost(f"message {delivery.id} is with another worker of group {self.group!r}, or done")

    def _answered(self, messages: Iterable[Taken], lost: set[Taken]) -> None:
        """Note that acks or releases were answered."""
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
        if isinstance(delivery.outcome, Ack):
            self._give_back_behind(self._turns.give_up(delivery))
        self.lost += 1
        # Bounded, for workers that never flush.
        if delivery.outcome not in GIVEN_BACK and len(self._lost) < _MOST_HELD:
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
        if self._loop is None or self._birthplace.is_elsewhere:
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

        A broker that has messages answers at once. One that waits for some learns that the client no longer wants them.
        """
        left_seconds = self._asked_seconds + _ANSWER_SECONDS - self._clock.monotonic_seconds()
        if self._asking and left_seconds > 0:
            await asyncio.wait([claiming], timeout=left_seconds)
        claiming.cancel()
        await asyncio.wait([claiming])

    def _give_back_ready(self) -> None:
        for each in self._turns.clear():
            self._put_back(each, UNTOUCHED)

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
            # Let all callers that want something say so first.
            await self._clock.sleep(0)
            now_seconds = self._clock.monotonic_seconds()
            wanted = min(
                self._size.wanted(len(self._waiters), len(self._turns), now_seconds),
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
        """Claim messages, give them to waiting callers, and return how many there were."""
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
            self._tasks += [asyncio.create_task(work) for work in (self._extend_leases(), self._ask_in_doubt())]
        self._lease_seconds = claimed.lease_seconds
        order = claimed.order or self._order
        for message, claim in claimed.messages:
            # In doubt they take turns, which is right for any group.
            self._hold(message, claim, turn_key=None if order == "none" else message.key)
        now_seconds = self._clock.monotonic_seconds()
        idle_seconds = self._settings.idle_seconds
        if claimed.messages:
            self._news_seconds = now_seconds
        elif idle_seconds is not None and now_seconds - self._news_seconds >= idle_seconds:
            self._is_idle = True
        if self._claiming is None:
            self._give_back_ready()
        self._wake()
        if claimed.messages and order is None:
            await self._learn_order()
        return len(claimed.messages)

    async def _learn_order(self) -> None:
        """Ask for the order of the group, since a broker before version 0.2 does not report it with claims."""
        with suppress(BraidMQError):  # the next claim asks again
            self._order = (await self._calls.describe(retry=ONE_ROUND)).settings.get("order")

    def _hold(self, message: Message, claim: Claim, *, turn_key: bytes | None) -> None:
        delivery = self._make(message, claim, self)
        delivery.turn_key = turn_key
        delivery.sure_until_seconds = self._asked_seconds + self._lease_seconds
        self._held[delivery.taken] = delivery
        self._turns.add(delivery)

    async def _extend_leases(self) -> None:
        """Extend all leases, three times in each: so one failed extension does no harm."""
        while True:
            await self._clock.sleep(self._lease_seconds / _EXTENSIONS_PER_LEASE)
            await self._extend_all()

    async def _ask_in_doubt(self) -> None:
        """Extend leases at once if one may have run out. Tries until a broker answers."""
        while True:
            await self._doubted.wait()
            await self._extend_all()
            self._doubted.clear()
            self._wake()

    async def _extend_all(self) -> None:
        if self._held:
            with suppress(BraidMQError):  # it is tried again soon, and an ack reports lost messages
                self._lose_all(await self._extend(list(self._held)))

    async def _extend(self, held: list[Taken]) -> set[Taken]:
        retry = Retry(give_up_after_seconds=self._lease_seconds / _EXTENSIONS_PER_LEASE)
        asked_seconds = self._clock.monotonic_seconds()
        parts = parts_of(held)
        lost: set[Taken] = set()
        for start in range(0, len(parts), MOST_PARTS):
            lost |= await self._extended(parts[start : start + MOST_PARTS], retry)
        for taken in held:
            if (delivery := self._held.get(taken)) is not None:
                delivery.sure_until_seconds = asked_seconds + self._lease_seconds
        return lost

    async def _extended(self, parts: list[Part], retry: Retry) -> set[Taken]:
        """Extend leases, and return the lost messages: also those of a group that was deleted, or created anew.

        A broker refuses a request that names one of the latter among others.
        """
        try:
            return await self._calls.extend(parts, self._settings.lease_seconds, retry=retry)
        except InvalidConfig:
            raise
        except (GroupNotFound, InvalidRequest):
            if len(parts) == 1:
                return set(taken_of(parts))
            half = len(parts) // 2
            return await self._extended(parts[:half], retry) | await self._extended(parts[half:], retry)

    def _lose_all(self, lost: Iterable[Taken]) -> None:
        """Note that other workers have messages. The answer to an ack reports a message that is being acked."""
        gone = [delivery for taken in lost if (delivery := self._held.get(taken)) and delivery.outcome is None]
        for delivery in gone:
            delivery.is_lost = True
        for delivery in gone:
            self._give_back_behind(self._turns.give_up(delivery))
