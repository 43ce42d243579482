"""Serves one socket: takes its messages, piece by piece, and ends it with a reason."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial

import orjson

from filer.errors import BraidError
from mq.base.errors import Malformed
from mq.bodies.intake import Intake
from mq.broker import Broker
from mq.http.endpoints.publish import Publisher
from mq.http.hidden_names import HiddenNames
from mq.http.problems import problem_of
from mq.http.reply import cut_off, logged_problem
from mq.http.routes import PUBLISH as PUBLISH_ROUTE
from mq.http.routes import SOCKET, RouteMatch
from mq.http.sockets.answers import Answers
from mq.http.sockets.busy_sockets import BusySockets
from mq.http.sockets.credit import MOST_CREDIT
from mq.http.sockets.group_requests import GroupRequest, GroupRequests
from mq.http.sockets.like_requests import like_group_request, like_subscribe
from mq.http.sockets.publishes import MOST_IN_FLIGHT, Publishes
from mq.http.sockets.requests import (
    CREDIT,
    LET_GO,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    BadMessage,
    Id,
    Request,
    may_publish,
    parse_binary,
    parse_text,
)
from mq.http.sockets.subscription import Outlet
from mq.http.sockets.subscriptions import MOST_SUBSCRIPTIONS, Subscriptions, body_of
from mq.http.sockets.wire import GOING_AWAY, INVALID_DATA, POLICY_VIOLATION, Message, Wire
from mq.limits.quotas import Share
from mq.security.needs import Need
from mq.security.standing import Standing, is_over
from mq.service.groups.group_service import GroupService
from mq.service.groups.long_bodies import LONG_BYTES

PING_SECONDS = 15.0
SILENT_PINGS = 3
"""A client that answers none of so many pings is gone."""

MOST_ASKING, MOST_ASKING_BYTES = 256, 4 * 1024 * 1024
"""Requests about groups that wait for their answer, or for the client to take it. A client that sends more keeps it in
its own buffer. All sockets together share `Broker.asked` with bodies that come over HTTP."""
_ASKING_BYTES = 8 * 1024
"""Memory of such a request besides its text."""
LAST_ANSWERS_SECONDS = 2.0
"""So long a draining broker waits for answers of groups. Without an answer, the client may ask another broker."""

LONGEST_REST_SECONDS = 0.5
"""The longest time between looks at a socket that is over its quota."""

Permit = Callable[[RouteMatch], Awaitable[BraidError | None]]
"""Why the client may not do what the same HTTP request would do. The refusal is in the audit trail then."""

RecordEnd = Callable[[BraidError], Awaitable[None]]
"""Records in the audit trail that the socket ends because of a refusal."""


class Session:
    """One socket, of the principal that `owner` stands for (`Principal.owner`)."""

    def __init__(
        self,
        broker: Broker,
        publisher: Publisher,
        topic: str,
        owner: str,
        wire: Wire,
        permit: Permit,
        hidden: HiddenNames | None,
        tasks: set[asyncio.Task[None]],
        busy: BusySockets,
    ) -> None:
        self._broker, self._topic, self._wire, self._permit = broker, topic, wire, permit
        self._busy = busy
        self._loop = asyncio.get_running_loop()
        self._answers = Answers(wire, hidden)
        self._publishes = Publishes(broker, publisher, topic, owner, self._answers, tasks)
        self.consumer = broker.clock.ulid()
        self._path, self._publishing = SOCKET.of(topic).path, PUBLISH_ROUTE.of(topic)
        groups = GroupService(broker)
        self._subscriptions = Subscriptions(Outlet(broker, wire, self._answers), topic, groups, self.consumer)
        self._groups = GroupRequests(broker, topic, groups, self._subscriptions, self._answers)
        self._asking: set[asyncio.Task[None]] = set()
        self._asking_bytes = 0
        self._count = 0
        self._permitted: set[Need] = set()
        self._standing: Standing | None = None
        # Why the client's messages are not read any more.
        self._invalid: Malformed | None = None
        self._share: Callable[[], Share | None] = lambda: None

    async def run(self, standing: Standing | None, share: Callable[[], Share | None], record_end: RecordEnd) -> None:
        """Serve the socket until either side ends it, or the permission to open it is over."""
        self._standing, self._share, self._record_end = standing, share, record_end
        if standing is not None:
            standing.over.add_done_callback(lambda _: self._wire.wake())
        self._answers.write([orjson.dumps({"hello": self._hello()})])
        draining = asyncio.create_task(self._wake_when_draining(), name="draining of a socket")
        self._pinging = self._loop.call_later(PING_SECONDS, self._ping)
        try:
            while not self._broker.draining.is_set() and self._refusal() is None and self._invalid is None:
                messages = self._wire.take()
                if not messages and (self._wire.is_broken or not self._wire.is_open):
                    break
                self._permitted.clear()
                for message in messages:
                    await self._serve(message)
                    if self._invalid is not None:
                        break
                if messages:
                    await self._publishes.flush()
                    await self._wire.drained()
                    await self._rest(share, sum(len(message.data) for message in messages), len(messages))
                    # Publishes that have begun are answered meanwhile.
                    await self._busy.next_piece(self)
                else:
                    self._busy.rests(self)
                    await self._wire.news()
            await self._end()
        finally:
            self._busy.rests(self)
            draining.cancel()
            self._pinging.cancel()
            for task in self._asking:
                task.cancel()
            await self._subscriptions.stop("closed")

    async def _rest(self, share: Callable[[], Share | None], size_bytes: int, count: int) -> None:
        """Take no more of the client while its principal is over its quota."""
        found = share()
        if found is None:
            return
        found.published(size_bytes, count)
        while wait_seconds := found.publishing_waits_seconds():
            if self._broker.draining.is_set() or self._refusal() is not None or not self._wire.is_open:
                return
            await self._broker.clock.sleep(min(wait_seconds, LONGEST_REST_SECONDS))

    def _hello(self) -> dict[str, object]:
        limits = {
            "message_bytes": self._broker.settings.max_json_bytes,
            "in_flight": MOST_IN_FLIGHT,
            "subscriptions": MOST_SUBSCRIPTIONS,
            "credit": MOST_CREDIT,
        }
        return {"topic": self._topic, "consumer": self.consumer, "limits": limits}

    async def _serve(self, message: Message) -> None:
        self._count += 1
        if len(message.data) > LONG_BYTES and not may_publish(message.data):
            # It takes a millisecond to parse, and others' publishes go first.
            await self._broker.turns.others.wait()
        try:
            request = parse_text(message.data) if message.is_text else parse_binary(message.data)
        except BadMessage as bad:
            if message.is_text and not is_utf8(message.data):
                self._invalid = Malformed(f"message {self._count}: a text is UTF-8, and this is not")
            elif bad.id is None:
                self._answers.problem(None, problem_of(type(bad.error)(f"message {self._count}: {bad.error}")))
            else:
                self._answers.problem(bad.id, problem_of(bad.error))
            return
        try:
            if request.kind == PUBLISH:
                await self._check(self._publishing)
                await self._publishes.begin(request)
                return
            # A request behind a publish finds it appended.
            await self._publishes.flush()
            await self._do(request)
        except Exception as error:
            self._answers.problem(request.id, logged_problem(error, "SOCKET", self._path))

    async def _do(self, request: Request) -> None:
        """Do what a request asks for. Work that needs a wait runs in a task, and other requests come first."""
        kind = request.kind
        if kind == SUBSCRIBE:
            for like in like_subscribe(self._topic, body_of(request)):
                await self._check(like)
                if self._standing is not None:
                    self._standing.add(like.need)
            self._subscriptions.subscribe(request)
        elif kind == UNSUBSCRIBE:
            self._subscriptions.unsubscribe(request)
        elif kind == CREDIT:
            self._subscriptions.give_credit(request)
        elif kind == LET_GO:
            self._groups.let_go(request)
        else:
            group = self._groups.group_of(request)
            await self._check(like_group_request(self._topic, group, kind))
            await self._begin_asking(request.id, self._groups.asked_of(request, group))

    async def _begin_asking(self, id_: Id | None, asked: GroupRequest) -> None:
        """Ask the group as soon as there is room for the request."""
        size_bytes = len(asked.text) + _ASKING_BYTES
        while self._asking and (
            len(self._asking) >= MOST_ASKING or self._asking_bytes + size_bytes > MOST_ASKING_BYTES
        ):
            await asyncio.wait(self._asking, return_when=asyncio.FIRST_COMPLETED)
        with ExitStack() as stack:
            room = stack.enter_context(Intake(self._broker.asked, size_bytes, None, wait=True))
            await room.hold(size_bytes)
            task = asyncio.create_task(self._ask(id_, asked), name=f"{asked.operation.name} of a socket")
            self._asking.add(task)
            self._asking_bytes += size_bytes
            task.add_done_callback(partial(self._has_asked, size_bytes, stack.pop_all()))

    def _has_asked(self, size_bytes: int, room: ExitStack, task: asyncio.Task[None]) -> None:
        self._asking.discard(task)
        self._asking_bytes -= size_bytes
        room.close()

    async def _ask(self, id_: Id | None, asked: GroupRequest) -> None:
        try:
            await self._groups.serve(id_, asked)
        except asyncio.CancelledError:
            self._answers.problem(id_, cut_off())
            raise
        except Exception as error:
            self._answers.problem(id_, logged_problem(error, "SOCKET", self._path))
        # Until the client reads, its answers take as much room as its requests.
        await self._wire.drained()

    async def _check(self, like: RouteMatch) -> None:
        """Raise `Forbidden` for a request that HTTP would refuse as well. Asks once for all that came together."""
        if like.need in self._permitted:
            return
        if (refusal := await self._permit(like)) is not None:
            raise refusal
        if like is self._publishing:
            self._publishes.share = share = self._share()
            if share is not None:
                share.check_storage(self._topic)
        self._permitted.add(like.need)

    def _fail(self, error: BraidError, code: int) -> None:
        """Report a breach of the protocol to the client, and close the socket."""
        self._answers.problem(None, problem_of(error))
        self._close(code, "see the message before")

    def _close(self, code: int, reason: str) -> None:
        self._answers.flush()
        self._wire.close(code, reason)

    def _refusal(self) -> BraidError | None:
        """Why the socket may not go on: its token has ended, or does not allow its requests any more."""
        return None if self._standing is None else is_over(self._standing.over)

    async def _end(self) -> None:
        """End the socket: the broker drains, or the client has broken the protocol, or is gone.

        Requests that have begun are answered before the socket is closed.
        """
        await self._publishes.flush()
        if self._wire.is_open and (refusal := self._refusal()) is not None:
            await self._subscriptions.stop("refused")
            await self._publishes.finished()
            await self._record_end(refusal)
            self._fail(refusal, POLICY_VIOLATION)
        elif self._wire.is_open:
            is_faulty = self._wire.is_broken or self._invalid is not None
            await self._subscriptions.stop("closed" if is_faulty else "draining")
            if self._asking:
                await asyncio.wait(self._asking, timeout=LAST_ANSWERS_SECONDS)
            await self._publishes.finished()
            if self._invalid is not None:
                self._fail(self._invalid, INVALID_DATA)
            else:
                self._close(GOING_AWAY, "draining")

    async def _wake_when_draining(self) -> None:
        await self._broker.draining.wait()
        self._wire.wake()

    def _ping(self) -> None:
        silent_seconds = self._loop.time() - self._wire.heard_seconds
        if silent_seconds > SILENT_PINGS * PING_SECONDS and not self._wire.is_held_up:
            self._close(POLICY_VIOLATION, "silent")
            return
        self._wire.ping()
        self._pinging = self._loop.call_later(PING_SECONDS, self._ping)


def is_utf8(data: bytes) -> bool:
    """Whether the data is text."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
