"""Publishes to one topic: cuts a request by key range, appends it, and retries after a transition."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

import pyarrow as pa

from filer import tracing
from filer.backoff import backoff_seconds
from filer.clock import Clock
from filer.errors import (
    BraidError,
    CorruptFile,
    InvalidInput,
    ProducerTaken,
    SegmentMoved,
    SequenceExpired,
    UnreadableObject,
)
from filer.format.requests import Position, RequestId
from filer.format.schema import TOPIC_FIELD
from filer.segment.cut_rows import CutRows
from filer.segment.next_file import Payload, Single, columns_of
from filer.slots import SLOTS, slot_of
from filer.topic.topic_schema import schema_of
from filer.topic.topic_state import Segment, TopicState
from mq.base.errors import PublishIncomplete, Repeatable
from mq.topic.publish_deadlines import DeadlineGroup, PublishDeadlines
from mq.topic.routing import Appender, Route
from mq.topic.topic_state_watch import TopicStateWatch

# Retry at least 10 times and for at least 5 s: states of the topic that arrive meanwhile cut single waits short.
RETRIES = 10
RETRY_SECONDS = 5.0
# How long to wait for a newer state before the record is read. The wait doubles with each retry.
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.02, 1.0
MOST_CUT_AT_ONCE = 32_768
"""A request of more messages is cut into the shares of segments in a thread."""
SENT_AGAIN_TOGETHER = 256
"""If messages that were appended as one have to be sent again, so many of them wait for their answers at a time."""


@dataclass(frozen=True, slots=True)
class _Share:
    """The messages of a request that go to one segment. Before the request is cut: all messages to store."""

    payload: Payload
    size_bytes: int
    segment: int = -1
    appender: Appender | None = None


@dataclass(slots=True)
class SinglePublish:
    """A single message that was appended to its segment; `waiter` gets its position, or its error.

    With a `number` it shares the waiter with others, and is so many behind the position in the waiter.
    """

    single: Single
    size_bytes: int
    request: RequestId | None
    replicated: bool
    waiter: asyncio.Future[list[Position]]
    group: DeadlineGroup
    began_seconds: float
    null_slot: int
    version: int
    number: int | None = None

    def position(self, got: Position) -> Position:
        """Return its own position, if its waiter got that one."""
        return got if self.number is None else Position(got.segment, got.offset + self.number, 1)


@dataclass(slots=True)
class PublishedTogether:
    """Single messages that were appended to one segment as one; `waiter` gets the position of the first of them.

    `numbers` are the places of these messages among those that came together, in order.
    """

    numbers: list[int]
    singles: list[Single]
    size_bytes: int
    replicated: bool
    waiter: asyncio.Future[list[Position]]
    group: DeadlineGroup
    began_seconds: float
    version: int


class TopicPublisher:
    """Stores messages in the open segments of one topic.

    Callers reserve room in the front store before they read a body, and release it when they have the answer.
    `appender_of` returns the appender of an open segment. `watch` waits for newer states of the topic. `deadlines`
    limits how long publishers wait for the store. `fault_of` names the object that keeps the topic from being repaired,
    if there is one: then publishers get that error instead of a move. `check_end` raises if an open segment can have no
    owner. `take_up` opens writers here for open segments without one, in a broker without a cluster, and returns
    whether there is anything new. All methods belong to the event loop's thread.
    """

    def __init__(
        self,
        state: TopicState,
        *,
        broker: str,
        clock: Clock,
        clustered: bool,
        appender_of: Callable[[Segment], Appender],
        watch: TopicStateWatch,
        deadlines: PublishDeadlines,
        fault_of: Callable[[str], UnreadableObject | None],
        check_end: Callable[[int], Awaitable[None]],
        take_up: Callable[[Sequence[int]], Awaitable[bool]],
    ) -> None:
        self._state, self._schema, self._deadlines = state, schema_of(state), deadlines
        self._broker, self._clock, self._clustered = broker, clock, clustered
        self._appender_of, self._watch = appender_of, watch
        self._fault_of, self._check_end, self._take_up = fault_of, check_end, take_up
        self._route = Route([])
        self._last_null_slot = 0

    def apply(self, state: TopicState) -> None:
        """Publish by that state from now on."""
        self._state, self._schema = state, schema_of(state)
        self.reroute()

    def reroute(self) -> None:
        """Get the appenders of all open segments again: one of them takes no more messages."""
        self._route = Route([(s.id, s.start_slot, self._appender_of(s)) for s in self._state.open_segments])

    async def publish_single(
        self, single: Single, size_bytes: int, request: RequestId | None = None, *, replicated: bool = False
    ) -> Position:
        """Store one message, or find it stored already by its request's id.

        Raises `SegmentMoved` if this broker cannot store it; the message is not in the log then. Raises `StoreTimeout`
        if the store does not take it in time; it may be in the log later. Raises `SequenceExpired` and
        `ProducerTaken`.
        """
        begun = self.begin_single(single, size_bytes, request, replicated=replicated)
        if begun is not None:
            return await self.finish_single(begun)
        attempts = self._attempts(0, self._clock.monotonic_seconds() + RETRY_SECONDS)
        share = _Share(single, size_bytes)
        return (await self._publish(share, self._null_slot(request), request, replicated, attempts))[0]

    def begin_single(
        self,
        single: Single,
        size_bytes: int,
        request: RequestId | None = None,
        *,
        replicated: bool = False,
        gather: bool = False,
    ) -> SinglePublish | None:
        """Begin the usual case: one message, one segment, no wait before it is appended. None if that takes a wait.

        Nothing is appended then, nor if this raises `Repeatable`. Otherwise `finish_single` has the outcome. A caller
        that sees a result in the waiter before that may take its first position, and has to remove the waiter from its
        group.

        `gather`: it may share the waiter with others that are begun so. No caller may await, or cancel, that waiter
        before it is done.
        """
        began_seconds = self._clock.monotonic_seconds()
        route, version = self._route, self._state.version
        null_slot = self._null_slot(request) if single.key is None else 0
        index = route.segment_index(null_slot if single.key is None else slot_of(single.key))
        appender = route.appenders[index] if index >= 0 else None
        if appender is None or not appender.is_open or not (request is None or appender.inheritance.complete):
            return None
        group = self._deadlines.group()
        number: int | None = None
        try:
            # Requests that expire together wait together.
            gathered = appender.gather(single, size_bytes, group) if gather and request is None else None
            if gathered is not None:
                waiter, number = gathered
            else:
                waiter = appender.append(single, size_bytes, request, replicated=replicated)
        except Exception as error:
            waiter = asyncio.get_running_loop().create_future()
            waiter.set_exception(error)
        if not number:
            group.waiters.add(waiter)
        return SinglePublish(
            single, size_bytes, request, replicated, waiter, group, began_seconds, null_slot, version, number
        )

    async def finish_single(self, begun: SinglePublish) -> Position:
        """Return the position of a message that was begun. Raises as `publish_single`."""
        try:
            try:
                return begun.position((await begun.waiter)[0])
            finally:
                begun.group.waiters.discard(begun.waiter)
        except SegmentMoved:
            async with self._deadlines.within(begun.group):
                await self._after_move(0, begun.version)
        attempts = self._attempts(1, begun.began_seconds + RETRY_SECONDS)
        share = _Share(begun.single, begun.size_bytes)
        return (await self._publish(share, begun.null_slot, begun.request, begun.replicated, attempts))[0]

    def begin_together(
        self, singles: Sequence[Single], size_bytes: int, *, replicated: bool = False
    ) -> list[PublishedTogether]:
        """As `begin_single`, for several messages without an id: those of one segment are appended as one.

        Empty if any of them takes a wait: nothing is appended then. A caller that sees a result in a waiter before
        `finish_together` may take its first position, and has to remove the waiter from its group.
        """
        began_seconds = self._clock.monotonic_seconds()
        route, version = self._route, self._state.version
        numbers_of: dict[int, list[int]] = {}
        for number, single in enumerate(singles):
            slot = self._next_null_slot() if single.key is None else slot_of(single.key)
            numbers_of.setdefault(route.segment_index(slot), []).append(number)
        appenders = [route.appenders[index] if index >= 0 else None for index in numbers_of]
        if any(appender is None or not appender.is_open for appender in appenders):
            return []
        group = self._deadlines.group()
        schema = self._schema.published
        shares = [[singles[number] for number in numbers] for numbers in numbers_of.values()]
        # Everything that could fail comes before the first is appended.
        payloads: list[Payload] = [own[0] if len(own) == 1 else columns_of(own, schema) for own in shares]
        begun = []
        for appender, numbers, own, payload in zip(appenders, numbers_of.values(), shares, payloads, strict=True):
            assert appender is not None
            own_bytes = size_bytes * len(own) // len(singles)
            try:
                waiter = appender.append(payload, own_bytes, replicated=replicated)
            except Exception as error:
                waiter = asyncio.get_running_loop().create_future()
                waiter.set_exception(error)
            group.waiters.add(waiter)
            begun.append(
                PublishedTogether(numbers, own, own_bytes, replicated, waiter, group, began_seconds, version=version)
            )
        return begun

    async def finish_together(self, begun: PublishedTogether) -> list[Position | Exception]:
        """Return the outcome of each message: its position, or the error that `publish_single` would raise.

        If their segment has moved, none of them was stored. They are sent again one by one, in order: they may belong
        to several segments now.
        """
        try:
            try:
                first = (await begun.waiter)[0]
                return [Position(first.segment, first.offset + number, 1) for number in range(first.count)]
            finally:
                begun.group.waiters.discard(begun.waiter)
        except SegmentMoved:
            pass
        except BraidError as error:
            return [error for _ in begun.singles]
        try:
            async with self._deadlines.within(begun.group):
                await self._after_move(0, begun.version)
        except BraidError as error:
            return [error for _ in begun.singles]
        outcomes: list[Position | Exception] = []
        for start in range(0, len(begun.singles), SENT_AGAIN_TOGETHER):
            again = map(partial(self._send_again, begun), begun.singles[start : start + SENT_AGAIN_TOGETHER])
            outcomes += await asyncio.gather(*again)
        return outcomes

    async def _send_again(self, begun: PublishedTogether, single: Single) -> Position | Exception:
        attempts = self._attempts(1, begun.began_seconds + RETRY_SECONDS)
        share = _Share(single, begun.size_bytes // len(begun.singles))
        null_slot = self._next_null_slot()
        try:
            return (await self._publish(share, null_slot, None, begun.replicated, attempts))[0]
        except BraidError as error:
            return error

    async def publish_rows(
        self, rows: pa.RecordBatch, size_bytes: int, request: RequestId | None = None, *, replicated: bool = False
    ) -> list[Position]:
        """Store the rows of one request, in their order within each segment; returns a position per segment touched.

        If a request with an id is repeated, only what is not stored yet is stored. Raises `SegmentMoved` if nothing of
        the request was stored, `PublishIncomplete` (with the positions that were stored) if some of it was,
        `StoreTimeout`, `SequenceExpired` and `ProducerTaken`.
        """
        if (TOPIC_FIELD.name in rows.schema.names) != self._state.is_grouped:
            # Else its file could not be written, and nothing more could be published to the segment.
            raise InvalidInput(
                "messages for a topic group, and no others, say to which of its topics they belong: publish to a topic "
                f"of {self._state.topic!r}"
            )
        attempts = self._attempts(0, self._clock.monotonic_seconds() + RETRY_SECONDS)
        return await self._publish(_Share(rows, size_bytes), self._null_slot(request), request, replicated, attempts)

    async def _publish(
        self, waiting: _Share, null_slot: int, request: RequestId | None, replicated: bool, attempts: Iterator[int]
    ) -> list[Position]:
        """Append the messages to their segments; repeats it for those that a transition has kept from being stored."""
        done: list[Position] = []
        group = self._deadlines.group()
        for attempt in attempts:
            if group.expired:
                break
            route, version = self._route, self._state.version
            shares = await _cut_aside(waiting, route, null_slot)
            appenders = [s.appender for s in shares if s.appender and s.appender.is_open]
            if len(appenders) < len(shares):
                async with self._in_time(group, done):
                    await self._await_owner(shares, attempt, version, done)
                continue
            if request is not None and await self._must_check_again(appenders, shares, request, group, done):
                continue
            # Nothing is awaited since the check of the appenders. So either all of them accept their share, or none
            # does. An open appender takes its slots, even if the topic has a newer route by now.
            futures = [
                appender.append(share.payload, share.size_bytes, request, replicated=replicated)
                for appender, share in zip(appenders, shares, strict=True)
            ]
            group.waiters.update(futures)
            try:
                outcomes = await asyncio.gather(*futures, return_exceptions=True)
            finally:
                group.waiters.difference_update(futures)
            try:
                moved = _moved_shares(shares, outcomes, done)
            finally:
                del futures, outcomes  # see `end_tasks`
            if not moved:
                # Shares that were cut again after a split may have been stored as one before.
                return sorted(done if request is None else set(done))
            # A segment accepts all messages that a request with an id has for it at once. If a merge joins two shares
            # they must come as one, so the whole request is sent again. Messages that are stored already are
            # recognised.
            if request is None:
                waiting = _rest(waiting, route, moved, null_slot)
            async with self._in_time(group, done):
                await self._after_move(attempt, version)
        if group.expired:
            _give_up(done, self._deadlines.nothing_stored())
        async with self._in_time(group, done):
            await self._check_ends(await _cut_aside(waiting, self._route, null_slot), done)
        _give_up(done, self._cannot_store(f"topic {self._state.topic!r}: its segments keep moving; try again"))

    def _attempts(self, first: int, until_seconds: float) -> Iterator[int]:
        """Yield the numbers of attempts from `first` on, until there were enough and the time is up as well."""
        attempt = first
        while attempt < RETRIES or self._clock.monotonic_seconds() < until_seconds:
            yield min(attempt, RETRIES)
            attempt += 1

    async def _must_check_again(
        self,
        appenders: Sequence[Appender],
        shares: Sequence[_Share],
        request: RequestId,
        group: DeadlineGroup,
        done: Sequence[Position],
    ) -> bool:
        """Wait until all producer windows are complete; returns whether that took time.

        Raises `SequenceExpired` for a request that is too old, and `ProducerTaken` if the producer is another's, before
        any segment accepts its share.
        """
        if not all(appender.inheritance.complete for appender in appenders):
            async with self._in_time(group, done):
                await asyncio.gather(*(appender.inheritance.wait() for appender in appenders))
            return True
        if len(shares) > 1 or done:
            try:
                for appender, share in zip(appenders, shares, strict=True):
                    appender.check_sequence(share.payload, request)
            except (SequenceExpired, ProducerTaken) as error:
                _give_up(done, error)
        return False

    @contextlib.asynccontextmanager
    async def _in_time(self, group: DeadlineGroup, done: Sequence[Position]) -> AsyncIterator[None]:
        """A context for a wait before the rest of a request is appended. Raises when the group's time is over."""
        try:
            async with self._deadlines.within(group):
                yield
        except Repeatable as error:
            _give_up(done, error)

    async def _await_owner(
        self, shares: Sequence[_Share], attempt: int, version: int, done: Sequence[Position]
    ) -> None:
        """Wait for a transition that is under way, or in a cluster for an owner. Raises if neither can come.

        `version` is that of the state by which the appenders were chosen.
        """
        tracing.current().event("waits for an owner")
        state, appenders = self._state, [share.appender for share in shares]
        sealing = any(a is not None and (a.is_sealing or a.is_sealed) for a in appenders)
        moving = sealing or state.transition is not None or self._clustered
        if not state.deleted and moving:
            await self._await_newer_state(attempt, version)
            return
        why = ""
        if not state.deleted:
            try:
                took_up = await self._take_up([share.segment for share in shares if share.segment >= 0])
                if took_up or self._state.version != version:
                    return
            except BraidError as error:
                # Nothing of the message was stored, so the publisher may try again. A damaged segment keeps no other
                # from having a successor.
                if self._state.version != version:
                    return
                why = f": {error}"
        await self._check_ends(shares, done)
        owners = {s.owner for s in state.open_segments if s.owner != self._broker}
        taken = f"now owned by broker {', '.join(sorted(owners))}" if owners else "no longer owned by this broker"
        _give_up(done, self._cannot_store(f"topic {state.topic!r}: the segment for these messages is {taken}{why}"))

    def _cannot_store(self, moved: str) -> BraidError:
        """Return why no segment takes these messages: a fault that has to be repaired, or a move, which passes."""
        fault = self._fault_of(self._state.topic)
        # The same error is raised for many requests: without this, their frames would pile up in it.
        return SegmentMoved(moved) if fault is None else fault.with_traceback(None)

    async def _check_ends(self, shares: Sequence[_Share], done: Sequence[Position]) -> None:
        """Raise `CorruptFile` if a segment cannot be handed over, because its last file is damaged."""
        for share in shares:
            if share.segment >= 0:
                try:
                    await self._check_end(share.segment)
                except CorruptFile as error:
                    _give_up(done, error)

    async def _after_move(self, attempt: int, version: int) -> None:
        """Wait after a move: our segment has successors in a moment; another broker's owner may be gone for a while."""
        tracing.current().event("segment moved")
        if self._clustered:
            await self._await_newer_state(attempt, version)

    async def _await_newer_state(self, attempt: int, version: int) -> None:
        """Give the leader, or a new owner, time: a newer state may be on its way, or its broadcast was lost.

        A state newer than `version` is tried first: the end of a segment becomes known before its last answers arrive.
        """
        if self._state.version == version:
            seconds = backoff_seconds(
                attempt + 1, first_seconds=FIRST_WAIT_SECONDS, longest_seconds=LONGEST_WAIT_SECONDS
            )
            await self._watch.wait_for_newer(seconds)
        if self._state.version == version:
            self.reroute()

    def _null_slot(self, request: RequestId | None) -> int:
        """Return the slot of a request's messages without a key. A repetition must find the segment that has them."""
        return self._next_null_slot() if request is None else request.null_slot

    def _next_null_slot(self) -> int:
        """Return a slot for messages without a key. Slots of consecutive requests are far apart."""
        self._last_null_slot = (self._last_null_slot + 40_503) % SLOTS  # 2^16 / golden ratio
        return self._last_null_slot


async def _cut_aside(whole: _Share, route: Route, null_slot: int) -> list[_Share]:
    """As `_cut`. In a thread if so many messages would make others wait: 60 ms for a million."""
    if isinstance(whole.payload, Single) or whole.payload.num_rows <= MOST_CUT_AT_ONCE:
        return _cut(whole, route, null_slot)
    return await asyncio.to_thread(_cut, whole, route, null_slot)


def _cut(whole: _Share, route: Route, null_slot: int) -> list[_Share]:
    """Return the shares of the open segments. Without a route nothing is cut, and the share has no appender."""
    payload = whole.payload
    if not route.ids:
        return [whole]
    if isinstance(payload, Single):
        index = route.segment_index(null_slot if payload.key is None else slot_of(payload.key))
        return [_Share(payload, whole.size_bytes, route.ids[index], route.appenders[index])]
    rows_of_all = _columns(payload)
    return [
        _Share(
            rows,
            whole.size_bytes * rows.num_rows // rows_of_all.num_rows,
            route.ids[index],
            route.appenders[index],
        )
        for index, rows in route.cut(rows_of_all, null_slot=null_slot)
    ]


def _columns(payload: Payload) -> pa.RecordBatch:
    """Return a payload of more than one message as rows. A moved share is a part of a request by then."""
    assert not isinstance(payload, Single), "one message has one segment"
    return payload.batch() if isinstance(payload, CutRows) else payload


def _rest(whole: _Share, route: Route, moved: Sequence[_Share], null_slot: int) -> _Share:
    """Return these shares as one, in the order of the request: a merge may join them in one segment."""
    if len(moved) == 1:
        return moved[0]
    rows = route.rows_of(_columns(whole.payload), [share.segment for share in moved], null_slot=null_slot)
    return _Share(rows, sum(share.size_bytes for share in moved))


def _moved_shares(
    shares: Sequence[_Share], outcomes: Sequence[list[Position] | BaseException], done: list[Position]
) -> list[_Share]:
    """Add what was stored to `done`; returns the shares that certainly were not stored and may go to a successor.

    `SegmentMoved` means that another file stands at the offset this share was given, so the share is not in the log and
    never will be: sending it again cannot store it twice.
    """
    done += [position for outcome in outcomes if isinstance(outcome, list) for position in outcome]
    moved = [share for share, outcome in zip(shares, outcomes, strict=True) if isinstance(outcome, SegmentMoved)]
    failures = [each for each in outcomes if not isinstance(each, list | SegmentMoved)]
    del outcomes  # see `end_tasks`
    if failures:
        _give_up(done, failures.pop())
    return moved


def _give_up(done: Sequence[Position], error: BaseException) -> NoReturn:
    try:
        if done:
            raise PublishIncomplete(str(error), sorted(set(done))) from error
        raise error
    finally:
        del error  # see `end_tasks`
