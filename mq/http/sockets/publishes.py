"""Publishes of a socket: each begins as it comes, and is answered when it is acknowledged.

Most are of one message. Those that come one behind the other are appended together, as soon as all that has arrived is
parsed: no task, no wait. All others are published as over HTTP.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from filer.errors import OutcomeUnknown
from filer.format.requests import Position, RequestId
from filer.format.schema import MessageSchema
from filer.segment.next_file import Single
from mq.base.errors import PublishIncomplete, Repeatable
from mq.bodies.intake import Intake
from mq.bodies.json_body import rows_of, rows_of_long, single_message
from mq.bodies.rows import Rows
from mq.broker import Broker
from mq.forms.formats import ARROW, JSON, PUBLISH_FORMATS
from mq.http.endpoints.publish import (
    Publisher,
    intake_of,
    positions_body,
    single_position_body,
    wants_replicated,
)
from mq.http.problems import problem_of
from mq.http.producer_sequence import of_owner
from mq.http.reply import cut_off, logged_problem
from mq.http.routes import SOCKET
from mq.http.sockets.answers import Answers
from mq.http.sockets.requests import NO_FIELDS, PUBLISH, Id, Request, acks_of, messages_of, producer_of
from mq.limits.quotas import Share
from mq.limits.steps import Steps
from mq.limits.storage_meter import Taken
from mq.topic.topic_publisher import PublishedTogether, TopicPublisher
from mq.topic.topic_view import TopicView

MOST_IN_FLIGHT = 8_192
"""Publishes of one socket without an answer yet. A client that sends more keeps it in its own buffer."""
OVERHEAD_BYTES = 1024
"""Memory of a publish under way besides its message: counted, since one connection has thousands."""
_JSON, _ARROW = PUBLISH_FORMATS[JSON.encode()], PUBLISH_FORMATS[ARROW.encode()]


class _Run:
    """Publishes of one message each that came one behind the other, and are appended together.

    Nothing is awaited while the run grows: what held for its first message holds for all. `schema` is the topic's, if
    plain messages without other fields may join; else None.
    """

    __slots__ = ("ids", "replicated", "schema", "singles", "size_bytes")

    def __init__(self, schema: MessageSchema | None, *, replicated: bool) -> None:
        self.schema, self.replicated = schema, replicated
        self.ids: list[Id | None] = []
        self.singles: list[Single] = []
        self.size_bytes = 0

    def add(self, request: Request, single: Single) -> None:
        """Add the message of a request."""
        self.ids.append(request.id)
        self.singles.append(single)
        self.size_bytes += request.size_bytes

    @property
    def held_bytes(self) -> int:
        """The bytes that it holds of the front store."""
        return self.size_bytes + OVERHEAD_BYTES * len(self.ids)


class _Begun(NamedTuple):
    """Messages that are appended, and not acknowledged yet. `taken` is their part of a limited storage."""

    ids: list[Id | None]
    together: PublishedTogether
    publisher: TopicPublisher
    taken: Taken | None


class Publishes:
    """The publishes of one socket to its topic. Ids of producers belong to that `owner` (`Principal.owner`).

    A publish that has begun goes on when its socket is gone, as over HTTP: `tasks` outlive it.
    """

    def __init__(
        self,
        broker: Broker,
        publisher: Publisher,
        topic: str,
        owner: str,
        answers: Answers,
        tasks: set[asyncio.Task[None]],
    ) -> None:
        self._broker, self._publisher, self._topic, self._answers = broker, publisher, topic, answers
        self._owner = owner
        self._front_store, self._turns, self._tasks = broker.front_store, broker.turns, tasks
        self._limit_bytes = broker.settings.max_json_bytes
        self.share: Share | None = None
        """The share of its principal, as it was when the newest publish was let in."""
        self._in_flight = 0
        self._run: _Run | None = None
        self._waiting: list[Request] = []
        self._again: deque[tuple[_Begun, int]] = deque()
        self._going_on: asyncio.Task[None] | None = None
        self._has_ended = asyncio.Event()

    async def begin(self, request: Request) -> None:
        """Begin a publish behind all that came before it, at the latest with the next `flush`.

        An error that keeps it from that is its answer.
        """
        try:
            if self.joins(request):
                return
            await self.flush()
            await self._may_go_on()
            await self._begin_rows(request)
        except Exception as error:
            self._refuse(request.id, error)

    async def flush(self) -> None:
        """Begin the publishes that wait to begin together."""
        run, waiting = self._run, self._waiting
        if run is None:
            return
        self._run, self._waiting = None, []
        await self._may_go_on()
        if self._begin_run(run):
            return
        for request in waiting:
            try:
                await self._begin_rows(request)
            except Exception as error:
                self._refuse(request.id, error)

    async def finished(self) -> None:
        """Return when all publishes are answered."""
        await self._until(lambda: not self._in_flight)

    async def _may_go_on(self) -> None:
        """Wait while others are sent again because their segments have moved: no publish may overtake them."""
        await self._until(lambda: self._in_flight < MOST_IN_FLIGHT and self._going_on is None)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._has_ended.clear()
            await self._has_ended.wait()

    # -- one message each --------------------------------------------------------------------------------------------

    def joins(self, request: Request) -> bool:
        """Add the one message of a request to those that are appended together; False if it cannot join them.

        Raises `InvalidInput`.
        """
        run, schema = self._run, None if self._run is None else self._run.schema
        if run is not None and schema is not None and request.fields is NO_FIELDS:
            single = single_message(request.asked, schema, 0, PUBLISH)
            if single is None:
                return False
            run.add(request, single)
            self._waiting.append(request)
            return True
        return self._joins_as_first(request)

    def _joins_as_first(self, request: Request) -> bool:
        runtime = self._broker.topics.get(self._topic)
        is_single = isinstance(request.asked, dict) and request.arrow is None
        if runtime is None or runtime.state.deleted or not is_single or self._broker.draining.is_set():
            return False
        if runtime.state.is_grouped:
            return False  # refused: messages are published to one of the group's topics
        config = runtime.state.config
        replicated = wants_replicated(acks_of(request), config)
        if producer_of(request) is not None:
            return False
        is_plain = request.fields is NO_FIELDS
        received_us = 0 if is_plain else self._broker.clock.now_us()
        single = single_message(request.asked, runtime.schema, received_us, PUBLISH)
        run = self._run
        if single is None or (run is not None and run.replicated is not replicated):
            return False
        if run is None:
            run = self._run = _Run(runtime.schema if is_plain else None, replicated=replicated)
        run.add(request, single)
        self._waiting.append(request)
        return True

    def _begin_run(self, run: _Run) -> bool:
        """Append all of them, if none needs a wait. Returns False otherwise, and has done nothing."""
        runtime = self._broker.topics.get(self._topic)
        if runtime is None or runtime.state.deleted or self._broker.draining.is_set():
            return False
        if not self._front_store.try_reserve(run.held_bytes):
            return False
        publisher, left_bytes = runtime.publisher, run.held_bytes
        try:
            begun = publisher.begin_together(run.singles, run.size_bytes, replicated=run.replicated)
        except BaseException:
            # It raises before it appends anything. So the path of all other publishes meets the same error, and answers
            # it.
            begun = []
        if not begun:
            self._front_store.release(left_bytes)
            return False
        # From here on the messages may be stored, whatever becomes of the socket: they may not be appended again. If
        # the process stops, the client has no answer, and knows as much as it does about any request without one.
        for number, together in enumerate(begun):
            ids = [run.ids[each] for each in together.numbers]
            share_bytes = left_bytes if number == len(begun) - 1 else together.size_bytes + OVERHEAD_BYTES * len(ids)
            left_bytes -= share_bytes
            self._enter(len(ids))
            taken = None if self.share is None else self.share.taking(self._topic, together.size_bytes)
            has_outcome = partial(self._has_outcome, _Begun(ids, together, publisher, taken), share_bytes)
            together.waiter.add_done_callback(has_outcome)
        return True

    def _has_outcome(self, begun: _Begun, held_bytes: int, waiter: "asyncio.Future[list[Position]]") -> None:
        """The waiter is done: answer if the messages are acknowledged, else go on."""
        if waiter.cancelled() or waiter.exception() is not None:
            self._again.append((begun, held_bytes))
            if self._going_on is None:
                self._going_on = self._new_task(self._go_on())
            return
        together = begun.together
        if begun.taken is not None:
            begun.taken.end(stored=True)
        try:
            together.group.waiters.discard(waiter)
            first = waiter.result()[0]
            self._publisher.note([first], together.size_bytes, together.began_seconds, replicated=together.replicated)
            for number, id_ in enumerate(begun.ids):
                self._answers.ok(id_, single_position_body(first.segment, first.offset + number))
        finally:
            self._leave(len(begun.ids), held_bytes)

    async def _go_on(self) -> None:
        """Send again those whose segment has moved, in the order in which they came, and answer those that failed."""
        try:
            while self._again:
                begun, held_bytes = self._again.popleft()
                try:
                    await self._finish(begun)
                finally:
                    if begun.taken is not None:
                        # Failed messages may be stored all the same, until the storage is measured.
                        begun.taken.end(stored=True)
                    self._leave(len(begun.ids), held_bytes)
        finally:
            self._going_on = None
            self._has_ended.set()

    async def _finish(self, begun: _Begun) -> None:
        try:
            outcomes = await begun.publisher.finish_together(begun.together)
        except asyncio.CancelledError:
            # The process ends. HTTP answers then too.
            for id_ in begun.ids:
                self._answers.problem(id_, cut_off())
            raise
        except Exception as error:
            for id_ in begun.ids:
                self._refuse(id_, error)
            return
        for id_, outcome in zip(begun.ids, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self._refuse(id_, outcome)
            else:
                self._answers.ok(id_, positions_body((outcome,)))

    # -- several messages --------------------------------------------------------------------------------------------

    async def _begin_rows(self, request: Request) -> None:
        """Decode the messages, and append them before anything that comes behind them."""
        broker = self._broker
        view = await self._publisher.topic(self._topic)
        config = view.state.config
        replicated = wants_replicated(acks_of(request), config)
        producer = of_owner(producer_of(request), self._owner)
        decode = _decoding(request, view.runtime.schema, broker.clock.now_us())
        with ExitStack() as stack:
            intake = intake_of(broker, self._topic, self._limit_bytes, wait=config.overflow == "block")
            stack.enter_context(intake)
            await intake.hold(request.size_bytes)
            body_format = _JSON if request.arrow is None else _ARROW
            rows = await self._publisher.decoded(decode, request.size_bytes, body_format)
            self._enter(1)
            if self.share is not None and (taken := self.share.taking(self._topic, request.size_bytes)) is not None:
                stack.push(partial(_settle, taken))
            store = self._store(view, rows, intake, request, producer, stack.pop_all(), replicated=replicated)
            self._new_task(store)
        # The rows are appended once their task has begun, which is before this one goes on.
        await broker.clock.sleep(0)

    async def _store(
        self,
        view: TopicView,
        rows: Rows,
        intake: Intake,
        request: Request,
        producer: RequestId | None,
        room: ExitStack,
        *,
        replicated: bool,
    ) -> None:
        began_seconds = self._broker.clock.monotonic_seconds()
        size_bytes, id_ = request.size_bytes, request.id
        try:
            with room:
                positions = await self._publisher.store_rows(view, rows, intake, producer, replicated=replicated)
            reply = self._publisher.acknowledge(positions, size_bytes, began_seconds, replicated=replicated)
            self._answers.ok(id_, reply.body)
        except asyncio.CancelledError:
            self._answers.problem(id_, cut_off())
        except (OutcomeUnknown, PublishIncomplete) as error:
            self._refuse(id_, error if producer is None else Repeatable(error))
        except Exception as error:
            self._refuse(id_, error)
        finally:
            self._leave(1, 0)

    # -- accounts ----------------------------------------------------------------------------------------------------

    @property
    def _path(self) -> str:
        return SOCKET.of(self._topic).path

    def _refuse(self, id_: Id | None, error: Exception) -> None:
        self._publisher.count_refused(error)
        self._answers.problem(id_, logged_problem(error, "PUBLISH", self._path))

    def _new_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work, name="publish of a socket")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _enter(self, publishes: int) -> None:
        self._turns.publishing.__enter__()
        self._in_flight += publishes

    def _leave(self, publishes: int, held_bytes: int) -> None:
        """Give back the resources of so many publishes that have their outcome."""
        self._turns.publishing.__exit__(None, None, None)
        self._front_store.release(held_bytes)
        self._in_flight -= publishes
        self._has_ended.set()


def _settle(taken: Taken, _: object, error: BaseException | None, trace: object) -> None:
    """Settle the storage of a publish that is over."""
    if isinstance(error, Exception):
        taken.answered(problem_of(error).status)
    else:
        # A publish that is cut off may have been stored.
        taken.end(stored=True)


def _decoding(request: Request, schema: MessageSchema, received_us: int) -> Steps[Rows]:
    if request.arrow is not None:
        assert _ARROW.decode is not None
        body: Any = request.arrow
        return _ARROW.decode(body, schema, received_us)
    if request.start:
        return rows_of_long(request.text, request.start, schema, received_us)
    return rows_of(messages_of(request), schema, received_us)
