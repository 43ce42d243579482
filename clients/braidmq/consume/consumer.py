"""A member of a stream group: reads its assigned segments, and commits how far its caller has come."""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from braidmq.consume.loops import Loop
from braidmq.consume.member_calls import MemberCalls, Told, Under
from braidmq.errors import BraidMQError, ClientClosed, InvalidArgument, MemberFenced, PositionExpired
from braidmq.forks import Birthplace
from braidmq.message import Message
from braidmq.short_tracebacks import short_tracebacks, shortened
from braidmq.transport.retry import NEVER_GIVE_UP, Retry

WAIT_SECONDS = 20.0
MOST_PREFETCHED = 10_000
_LEAVE_SECONDS = 5.0
_QUICK_SECONDS = 0.5

_log = logging.getLogger("braidmq.consumer")


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """How a consumer reads and commits. Raises `InvalidArgument` for settings that make no sense."""

    member_id: str
    prefetch: int
    commit_seconds: float | None
    idle_seconds: float | None

    def __post_init__(self) -> None:
        if not 1 <= self.prefetch <= MOST_PREFETCHED:
            raise InvalidArgument(f"prefetch is {self.prefetch}: it must be from 1 to {MOST_PREFETCHED} messages")
        if self.commit_seconds is not None and not self.commit_seconds > 0:
            raise InvalidArgument(
                f"commit_seconds is {self.commit_seconds:g}: it must be above 0, or None to commit by hand"
            )
        if self.idle_seconds is not None and not self.idle_seconds >= 0:
            raise InvalidArgument(f"idle_seconds is {self.idle_seconds:g}: it must be 0 or more")


@dataclass(slots=True, eq=False)
class _Held:
    """A segment in hand: it is read up to `read`, handed out up to `handed`, done up to `done`."""

    under: Under
    read: int
    handed: int
    done: int
    committed: int
    ready: deque[Message] = field(default_factory=deque)
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    reading: asyncio.Task[None] | None = None
    is_leaving: bool = False


@short_tracebacks
class AsyncConsumer:
    """Reads a topic together with all other members of its stream group: iterate over it for messages.

    Members divide the topic's segments, and messages of a key come in order. If the group does not exist, it is created
    with its defaults. A message is done when the next one is asked for. Done messages are committed in the background,
    or with `commit_seconds=None` when you call `commit`. Uncommitted messages come again, here or at another member. So
    does the message that is in hand when a loop is left.

    Heartbeats keep it in the group while you work, for as long as that takes; in asyncio, work must not block the event
    loop for longer than a session. If another process joins under the same `member_id`, this one ends with
    `MemberReplaced`. A segment goes to another member when the message in hand is done. Broken connections and broker
    restarts are waited out. `close`, and the end of the `async with` block, commit and leave.
    """

    def __init__(self, calls: MemberCalls, settings: ConsumerSettings) -> None:
        self._calls, self._settings = calls, settings
        self._clock = calls.transport.clock
        self._retry = calls.transport.retry
        if not self._retry.for_all_calls:
            self._retry = replace(self._retry, give_up_after_seconds=NEVER_GIVE_UP)
        self._told: Told | None = None
        self._held: dict[int, _Held] = {}
        self._turns: deque[_Held] = deque()
        self._in_hand: _Held | None = None
        # Segments that others got before their handed-out messages were committed by hand.
        self._lost: set[int] = set()
        self._let_go: set[Under] = set()
        self._released: set[Under] = set()
        # Its session runs until then, whatever brokers report meanwhile.
        self._until_seconds = self._assigned_seconds = 0.0
        self._hurry = asyncio.Event()
        self._changed: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._joining: asyncio.Task[Told] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_stopped = self._is_closed = False
        self._entered = 0
        self._committing = asyncio.Lock()
        self._birthplace = Birthplace()
        self.fenced = 0
        """How often a commit came too late: another member had the segment, which goes on from the last commit."""

    def __repr__(self) -> str:
        return f"AsyncConsumer({self.topic!r}, group={self.group!r})"

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self._calls.topic

    @property
    def group(self) -> str:
        """The name of the group."""
        return self._calls.group

    @property
    def member_id(self) -> str:
        """The name of this member."""
        return self._settings.member_id

    @property
    def segments(self) -> list[int]:
        """The segments that this member has now."""
        return sorted(self._held)

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

    def __aiter__(self) -> Loop[Message]:
        return Loop(self.take, end=self._end_loop, let_go=self._close_later)

    async def __anext__(self) -> Message:
        if (message := await self.take()) is None:
            raise StopAsyncIteration
        return message

    async def _end_loop(self) -> None:
        if not self._entered:
            await self.close()

    def _close_later(self) -> None:
        """Close later: a loop over the consumer was left where nothing can be awaited."""
        if self._loop is not None and not self._is_closed and not self._birthplace.is_elsewhere:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._begin_to_close)

    def _begin_to_close(self) -> None:
        self._closing = asyncio.create_task(self._close_quietly())

    async def _close_quietly(self) -> None:
        try:
            await self._end_loop()
        except BraidMQError as error:
            _log.warning("the last commits of member %s may be lost: %s", self.member_id, error)

    async def take(self) -> Message | None:
        """Wait for a message; the one before is done. None once the consumer is stopped or idle.

        A wait that is cancelled, by a time-out say, loses nothing: the next one goes on.

        It is idle once there was no message for `idle_seconds`. Raises `ClientClosed` after `close`, and
        `TopicNotFound`, `Conflict` (for a queue group) or what else ends a consumer.
        """
        return next(iter(await self.take_some(1)), None)

    async def take_some(self, most: int) -> list[Message]:
        """As `take`, for up to `most` messages of one segment: as many as are there. All of them are in hand."""
        self._start()
        self._finish()
        begun_seconds = self._clock.monotonic_seconds()
        while True:
            if self._failure is not None:
                raise shortened(self._failure) if isinstance(self._failure, BraidMQError) else self._failure
            if self._is_stopped:
                return []
            if messages := self._next(most):
                return messages
            until_seconds = self._idle_from(begun_seconds)
            if until_seconds is not None and self._clock.monotonic_seconds() >= until_seconds:
                return []
            await self._change(until_seconds)

    def _idle_from(self, begun_seconds: float) -> float | None:
        """When it is idle, if nothing comes; None if it has no segments yet, or never is idle."""
        idle = self._settings.idle_seconds
        return None if idle is None or self._told is None else max(begun_seconds, self._assigned_seconds) + idle

    def stop(self) -> None:
        """Hand out nothing more: iteration ends. May be called from any thread, and by a signal's handler."""
        self._is_stopped = True
        if self._loop is not None and not self._birthplace.is_elsewhere:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake)

    async def commit(self) -> None:
        """Commit all messages that were handed out, also the one in hand: when it returns, that is durable.

        Raises `MemberFenced` if another member had a segment by then: its messages come again there.
        """
        self._check_open()
        for held in self._held.values():
            held.done = held.handed if held.ready else held.read
        fenced = {each.segment for each in await self._commit(list(self._held.values()))} | self._lost
        self._lost.clear()
        if fenced:
            named = ", ".join(map(str, sorted(fenced)))
            raise MemberFenced(f"segments {named} are with other members of group {self.group!r} by now")

    async def close(self) -> None:
        """Commit the messages that are done, unless you commit yourself; then leave the group, and stop."""
        if self._is_closed:
            return
        self._is_stopped = self._is_closed = True
        self._wake()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._await_join()
        if self._told is None:
            return
        self._retry = Retry(give_up_after_seconds=_LEAVE_SECONDS)
        try:
            if self._settings.commit_seconds is not None:
                await self._commit(list(self._held.values()))
        finally:
            with suppress(BraidMQError):  # its session ends then
                await self._calls.leave(self._told, retry=self._retry)

    async def _await_join(self) -> None:
        """Wait for a join that was sent: it makes a member in any case, and only its answer names the member to leave.

        Stopped before that, or without an answer for so long, the member's session ends by itself.
        """
        if self._joining is None:
            return
        if self._calls.may_have_joined:
            await asyncio.wait([self._joining], timeout=_LEAVE_SECONDS)
        self._joining.cancel()
        (told,) = await asyncio.gather(self._joining, return_exceptions=True)
        if isinstance(told, Told):
            self._told = told

    # -- messages ------------------------------------------------------------------------------------------------

    def _next(self, most: int) -> list[Message]:
        if self._clock.monotonic_seconds() >= self._until_seconds:
            return []  # others may have its segments by now: a heartbeat will show it
        for _ in range(len(self._turns)):
            held = self._turns[0]
            if held.ready and not held.is_leaving:
                messages = [held.ready.popleft() for _ in range(min(most, len(held.ready)))]
                held.handed = messages[-1].offset + 1
                self._in_hand = held
                if len(held.ready) <= self._settings.prefetch // 2:
                    held.wanted.set()
                return messages
            self._turns.rotate(-1)
        return []

    def _finish(self) -> None:
        """Note that the message in hand is done."""
        held, self._in_hand = self._in_hand, None
        if held is not None:
            if self._settings.commit_seconds is not None:
                held.done = held.handed
            if held.is_leaving or not held.ready:
                self._wake()

    def _caught_up(self, held: _Held) -> None:
        """If nothing is in hand and nothing is left of the messages read, note that gaps are done too."""
        is_by_hand = self._settings.commit_seconds is None
        if not held.ready and self._in_hand is not held and not is_by_hand:
            held.done = held.read

    async def _read(self, held: _Held) -> None:
        """Read ahead until the end of the segment."""
        while True:
            if len(held.ready) > self._settings.prefetch // 2:
                held.wanted.clear()
                await held.wanted.wait()
            try:
                page = await self._calls.read(
                    held.under.segment,
                    held.read,
                    limit=self._settings.prefetch,
                    wait_seconds=WAIT_SECONDS,
                    retry=self._retry,
                )
            except PositionExpired:
                # Retention has overtaken the group: a heartbeat shows from where on there are messages.
                self._hurry.set()
                await self._clock.sleep(1.0)
                continue
            held.ready.extend(self._calls.messages(page.table))
            held.read = page.next_offset
            self._wake()
            if page.end_offset is not None and held.read >= page.end_offset:
                while held.ready or self._in_hand is held:
                    await self._change(None)
                # Its successors come once all of it is committed.
                self._caught_up(held)
                if self._settings.commit_seconds is not None:
                    await self._commit([held])
                return

    # -- commits -------------------------------------------------------------------------------------------------

    async def _commit(self, all_held: Iterable[_Held]) -> set[Under]:
        """Commit the done messages of these; returns, and drops, the segments that other members have."""
        told = self._told
        if told is None:
            return set()
        async with self._committing:
            for held in all_held:
                self._caught_up(held)
            wanted = {held.under: held.done for held in all_held if held.done > held.committed}
            if not wanted:
                return set()
            fenced = await self._calls.commit(told.member_id, wanted, retry=self._retry)
        self.fenced += len(fenced)
        for held in all_held:
            if held.under in fenced:
                self._drop(held)
            elif held.under in wanted:
                held.committed = wanted[held.under]
        self._wake()
        if fenced:
            _log.warning("commits of segments %s came too late", sorted(each.segment for each in fenced))
            self._hurry.set()
        return fenced

    async def _commit_on(self, seconds: float) -> None:
        while True:
            await self._clock.sleep(seconds)
            await self._commit(list(self._held.values()))

    # -- membership ----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._check_open()
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._go(self._stay())
            if self._settings.commit_seconds is not None:
                self._go(self._commit_on(self._settings.commit_seconds))

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the consumer has been closed")

    async def _stay(self) -> None:
        """Join, send heartbeats, and join again whenever this start of the member is over."""
        while True:
            sent_seconds = self._clock.monotonic_seconds()
            self._joining = asyncio.create_task(self._calls.join(self.member_id, retry=self._retry))
            self._told = told = await asyncio.shield(self._joining)
            self._joining = None
            self._let_go, self._released = set(), set()
            while True:
                self._until_seconds = sent_seconds + told.session_seconds
                self._heed(told)
                try:
                    sent_seconds, told = await self._next_told(told)
                except MemberFenced:
                    _log.warning("member %s of group %s was fenced: it joins again", self.member_id, self.group)
                    for held in list(self._held.values()):
                        self._drop(held)
                    break

    async def _next_told(self, told: Told) -> tuple[float, Told]:
        """The answer to the next heartbeat, and when that was sent. Heartbeats keep a pause between them.

        While a segment is to be released, a broker answers at once.
        """
        if any(held.is_leaving for held in self._held.values()):
            await self._pause(told.heartbeat_seconds / 2)
        begun_seconds = self._clock.monotonic_seconds()
        sent_seconds, after = await self._beat(told)
        is_quick = self._clock.monotonic_seconds() - begun_seconds < _QUICK_SECONDS
        if is_quick and after[4:] == told[4:] and not self._hurry.is_set():
            await self._pause(min(1.0, told.heartbeat_seconds / 2))
        return sent_seconds, after

    async def _pause(self, seconds: float) -> None:
        """Pause for that long, unless there is something to report."""
        hurrying = asyncio.create_task(self._hurry.wait())
        timer = asyncio.create_task(self._clock.sleep(seconds))
        try:
            await asyncio.wait([hurrying, timer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurrying.cancel()
            timer.cancel()

    async def _beat(self, told: Told) -> tuple[float, Told]:
        """The answer to a heartbeat, and when that was sent. It is cut short when there is something to report."""
        wait_seconds = told.heartbeat_seconds
        while True:
            if self._hurry.is_set():
                wait_seconds = 0.0
                self._hurry.clear()
            sent_seconds = self._clock.monotonic_seconds()
            beating = asyncio.create_task(
                self._calls.beat(
                    told,
                    holds=[held.under for held in self._held.values()],
                    released=self._released,
                    wait_seconds=wait_seconds,
                    retry=self._retry,
                )
            )
            hurrying = asyncio.create_task(self._hurry.wait())
            try:
                await asyncio.wait([beating, hurrying], return_when=asyncio.FIRST_COMPLETED)
                if beating.done():
                    return sent_seconds, beating.result()
            finally:
                for task in (beating, hurrying):
                    task.cancel()
                await asyncio.gather(beating, hurrying, return_exceptions=True)

    def _heed(self, told: Told) -> None:
        """Take the assigned segments, except those it has released, which it names again."""
        self._released = {each for each in (*told.release, *told.segments) if each in self._let_go}
        for held in list(self._held.values()):
            if held.under in told.release and not held.is_leaving:
                held.is_leaving = True
                self._go(self._leave(held))
            elif held.under not in told.segments and not held.is_leaving:
                self._drop(held)
        for under, position in told.segments.items():
            if under in self._let_go:
                continue
            known = self._held.get(under.segment)
            if known is None or known.under != under:
                self._take(under, position)
            elif position > known.read:
                self._drop(known)
                self._take(under, position)
        # A segment that is asked back and not known was never read.
        unknown = {each for each in told.release if each.segment not in self._held and each not in self._let_go}
        if unknown:
            self._let_go |= unknown
            self._released |= unknown
            self._hurry.set()
        self._wake()

    def _take(self, under: Under, position: int) -> None:
        if (before := self._held.get(under.segment)) is not None:
            self._drop(before)
        self._assigned_seconds = self._clock.monotonic_seconds()
        held = _Held(under, position, position, position, position)
        self._held[under.segment] = held
        self._turns.append(held)
        held.reading = self._go(self._read(held))

    async def _leave(self, held: _Held) -> None:
        """Release a segment when the message in hand is done: commit it, and report that.

        A caller that commits by hand has a session's time to do so; uncommitted messages come again at another member.
        """
        if held.reading is not None:
            held.reading.cancel()
        if held.ready:
            held.read = held.ready[0].offset
            held.ready.clear()
        is_by_hand, session_seconds = self._settings.commit_seconds is None, self._session_seconds
        until_seconds = self._clock.monotonic_seconds() + session_seconds if is_by_hand else None
        while self._in_hand is held or (is_by_hand and held.committed < held.handed):
            if until_seconds is not None and self._clock.monotonic_seconds() >= until_seconds:
                break
            await self._change(until_seconds)
        if not is_by_hand:
            await self._commit([held])
        if self._held.get(held.under.segment) is held:
            self._drop(held)
        self._let_go.add(held.under)
        self._released.add(held.under)
        self._hurry.set()

    def _drop(self, held: _Held) -> None:
        """Drop a segment that it no longer has."""
        if held.reading is not None and held.reading is not asyncio.current_task():
            held.reading.cancel()
        held.ready.clear()
        held.read = held.done  # what was read and not handed out is not done
        held.is_leaving = True
        if self._settings.commit_seconds is None and held.handed > held.committed:
            self._lost.add(held.under.segment)
        with suppress(ValueError):
            self._turns.remove(held)
        if self._held.get(held.under.segment) is held:
            del self._held[held.under.segment]
        self._wake()

    @property
    def _session_seconds(self) -> float:
        return 0.0 if self._told is None else self._told.session_seconds

    # -- tasks ---------------------------------------------------------------------------------------------------

    def _go(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failure = failure if isinstance(failure, Exception) else RuntimeError(repr(failure))
            self._wake()

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def _change(self, until_seconds: float | None) -> None:
        """Wait until something has changed, or until then."""
        if self._changed is None or self._changed.done():
            self._changed = asyncio.get_running_loop().create_future()
        changed = self._changed
        if until_seconds is None:
            await asyncio.shield(changed)
            return
        timer = asyncio.create_task(self._clock.sleep(max(until_seconds - self._clock.monotonic_seconds(), 0)))
        try:
            await asyncio.wait([changed, timer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
