"""Publishes one message, if nothing has to be waited for before it is appended to its segment."""

import asyncio
from collections.abc import Callable
from functools import partial

from filer import request_ids
from filer.clock import Clock
from filer.errors import BraidError, InvalidInput
from filer.format.requests import Position
from filer.segment.next_file import Single
from filer.segment.writer.pending_request import Waiter
from mq.base.errors import QuotaExceeded
from mq.broker import Broker
from mq.http.access_lines import log_answered
from mq.http.endpoints.publish import Publisher, refuse_envelope, single_of, wants_replicated
from mq.http.fast_path.head import Head
from mq.http.fast_path.known_heads import KnownHeads
from mq.http.guard import Guard
from mq.http.problems import problem_of
from mq.http.producer_sequence import of_owner
from mq.http.reply import Reply, cut_off, problem_reply, reply_of
from mq.http.routes import PUBLISH
from mq.limits.quotas import HOLD_SECONDS, Share
from mq.limits.storage_meter import Taken
from mq.security.caller import Caller
from mq.security.principal import TRUSTED, Principal
from mq.topic.topic_publisher import SinglePublish, TopicPublisher
from mq.topic.topic_runtime import TopicRuntime

OnReply = Callable[[Reply, str], None]
"""Gets the answer to a publish, and the id of the request."""


class FastPublisher:
    """Serves publishes of one broker. Belongs to its event loop."""

    def __init__(self, broker: Broker, guard: Guard, publisher: Publisher) -> None:
        self._broker, self._guard, self._publisher = broker, guard, publisher
        self._topics, self._front_store, self._turns = broker.topics, broker.front_store, broker.turns
        self._quotas = broker.quotas
        self._limit_bytes = min(broker.settings.max_body_bytes, broker.front_store.limit_bytes)
        self._is_draining, self._new_id = broker.draining.is_set, broker.new_request_id
        self._tracer, self._logs_requests = broker.tracer, broker.settings.access_log == "on"
        self._finishing: set[asyncio.Task[None]] = set()
        self._gathered: dict[Waiter, list[_UnderWay]] = {}
        self.heads = KnownHeads()

    def admits(self, head: Head, caller: Caller) -> bool:
        """Whether nothing refuses a publish whose body is still to come. If something does, the app answers it now."""
        admitted = self._admitting(head, caller)
        if admitted is None or not self._front_store.has_room(head.size_bytes):
            return False
        runtime, _ = admitted
        try:
            wants_replicated(head.request.parameters.get("acks"), runtime.state.config)
        except InvalidInput:
            return False
        return True

    def _admitting(self, head: Head, caller: Caller) -> tuple[TopicRuntime, Principal] | None:
        """The topic, and the principal of the message, if nothing in the head refuses the message."""
        if self._is_draining() or (principal := self._principal(head, caller)) is None:
            return None
        runtime = self._topics.get(head.topic)
        if runtime is None or runtime.state.deleted or head.size_bytes > self._limit_bytes:
            return None
        if runtime.state.is_grouped:
            return None  # refused: messages are published to one of the group's topics
        return runtime, principal

    def _principal(self, head: Head, caller: Caller) -> Principal | None:
        """The principal that publishes; None if it may not."""
        if head.headers_allowed:
            return self._guard.publisher(caller, head.topic, head.authorization)
        try:
            return self._guard.admit(caller, PUBLISH.of(head.topic).need, head.headers)
        except BraidError:
            return None

    def _share(self, principal: Principal, head: Head, caller: Caller) -> Share | None:
        """The share of the principal; None if it has no limits."""
        if not self._quotas.limits_somebody:
            return None
        # Without a token, only the guard knows the name of a trusted principal.
        return self._quotas.share(
            principal.name if principal is not TRUSTED else self._guard.name_of(caller, head.headers)
        )

    def _refuse(self, exceeded: QuotaExceeded, head: Head, on_reply: OnReply) -> None:
        """Refuse after a while. By the ASGI app a refusal would take longer than a publish, and a flood would gain."""
        self._publisher.count_refused(exceeded)
        work = request_ids.begin(head.request_id or self._new_id())
        reply = problem_reply(problem_of(exceeded))
        work.ended = True
        asyncio.get_running_loop().call_later(HOLD_SECONDS, on_reply, reply, work.id)

    def begin(self, head: Head, body: bytes, caller: Caller, on_reply: OnReply) -> bool:
        """Append the message. `on_reply` is called once, later.

        Returns False if the message needs a wait, is refused, or is traced: then nothing was done, and the ASGI app is
        to serve the request.
        """
        admitted = self._admitting(head, caller) if self._tracer.would_pass_over() else None
        if admitted is None:
            return False
        runtime, principal = admitted
        if self._logs_requests:
            on_reply = self._logged(head, len(body), caller, on_reply)
        share = self._share(principal, head, caller)
        if share is not None:
            if not share.may_sit(caller.seat):
                return False  # the ASGI app refuses it, and closes the connection
        elif (seat := caller.seat) is not None and seat.among is not None:
            seat.leave()
        try:
            single, replicated = _checked(head, body, runtime, self._broker.clock)
        except Exception:
            # The ASGI app meets the same error, and answers it.
            return False
        if not self._front_store.try_reserve(len(body)):
            return False
        if share is not None and (exceeded := share.begin_publish(len(body), head.topic)) is not None:
            self._front_store.release(len(body))
            self._refuse(exceeded, head, on_reply)
            return True
        # Code that forwards the message takes the id from here.
        work = request_ids.begin(head.request_id or self._new_id())
        publisher = runtime.publisher
        try:
            request = head.request.id
            if request is not None:
                request = of_owner(request, principal.owner)
            begun = publisher.begin_single(single, len(body), request, replicated=replicated, gather=not replicated)
        except Exception:
            # As above: if it raises, it has appended nothing.
            begun = None
        if begun is None:
            self._front_store.release(len(body))
            if share is not None:
                share.published(-len(body), -1)  # the ASGI app charges for it
            work.ended = True
            return False
        if share is not None and (taken := share.taking(head.topic, len(body))) is not None:
            on_reply = partial(_settle, taken, on_reply)
        # From here on the message may be stored, whatever becomes of the connection: it may not be appended again. If
        # the process stops, the client has no answer, and knows as much as it does about any request without one.
        self._tracer.passes_over()
        self._turns.publishing.__enter__()
        under_way = _UnderWay(self, self._publisher, publisher, begun, head.path, work, on_reply)
        if begun.number is None:
            begun.waiter.add_done_callback(under_way.has_outcome)
        else:
            self._gather(under_way, begun.waiter)
        return True

    def _logged(self, head: Head, size_bytes: int, caller: Caller, on_reply: OnReply) -> OnReply:
        """Log the request when it is answered, as the access log does around the ASGI app."""
        now_seconds = self._broker.clock.monotonic_seconds
        began_seconds = now_seconds()

        def answer_logged(reply: Reply, request: str) -> None:
            on_reply(reply, request)
            with request_ids.within(request):
                log_answered(
                    "POST",
                    head.path,
                    head.topic,
                    reply.status,
                    is_whole=True,
                    received_bytes=size_bytes,
                    sent_bytes=len(reply.body),
                    duration_seconds=now_seconds() - began_seconds,
                    client=caller.address or None,
                )

        return answer_logged

    def _gather(self, under_way: "_UnderWay", waiter: Waiter) -> None:
        """Use one callback for all publishes that share a waiter."""
        together = self._gathered.get(waiter)
        if together is None:
            together = self._gathered[waiter] = []
            waiter.add_done_callback(self._have_outcome)
        together.append(under_way)

    def _have_outcome(self, waiter: Waiter) -> None:
        """Answer all publishes that share this waiter. One that cannot be answered keeps no other from its answer."""
        for under_way in self._gathered.pop(waiter):
            try:
                under_way.has_outcome(waiter)
            except Exception as error:
                told = {"message": "a publish that has its outcome could not be answered", "exception": error}
                asyncio.get_running_loop().call_exception_handler(told)

    def finish(self, under_way: "_UnderWay") -> None:
        """Let a publish that has failed at first go on, as the ASGI app would."""
        task = asyncio.create_task(under_way.finish(), name="publish")
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    def has_ended(self, size_bytes: int) -> None:
        """Give back what a publish holds that has its outcome."""
        self._turns.publishing.__exit__(None, None, None)
        self._front_store.release(size_bytes)


class _UnderWay:
    """A publish that has begun."""

    __slots__ = ("_begun", "_fast", "_on_reply", "_path", "_publisher", "_topic", "_work")

    def __init__(
        self,
        fast: FastPublisher,
        publisher: Publisher,
        topic: TopicPublisher,
        begun: SinglePublish,
        path: str,
        work: request_ids.Work,
        on_reply: OnReply,
    ) -> None:
        self._fast, self._publisher, self._topic = fast, publisher, topic
        self._begun, self._path, self._work, self._on_reply = begun, path, work, on_reply

    def has_outcome(self, waiter: "asyncio.Future[list[Position]]") -> None:
        """The waiter is done: answer if the message is acknowledged, else go on."""
        begun = self._begun
        if waiter.cancelled() or waiter.exception() is not None:
            self._fast.finish(self)
            return
        try:
            begun.group.waiters.discard(waiter)
            position = waiter.result()[0]
            if begun.number is None:
                reply = self._publisher.acknowledge(
                    (position,), begun.size_bytes, begun.began_seconds, replicated=begun.replicated
                )
            else:
                reply = self._publisher.acknowledge_stored(begun.position(position), begun.began_seconds)
            self._reply(reply)
        finally:
            self._fast.has_ended(begun.size_bytes)

    async def finish(self) -> None:
        """Answer with the outcome."""
        begun = self._begun
        try:
            try:
                reply = await reply_of(self._publisher.finish_single(self._topic, begun), "POST", self._path)
            except asyncio.CancelledError:
                # The process ends. The app answers then too.
                reply = problem_reply(cut_off())
            self._reply(reply)
        finally:
            self._fast.has_ended(begun.size_bytes)

    def _reply(self, reply: Reply) -> None:
        self._on_reply(reply, self._work.id)
        self._work.ended = True


def _settle(taken: Taken, on_reply: OnReply, reply: Reply, request: str) -> None:
    """Answer a publish that is over, and settle its storage."""
    taken.answered(reply.status)
    on_reply(reply, request)


def _checked(head: Head, body: bytes, runtime: TopicRuntime, clock: Clock) -> tuple[Single, bool]:
    """The message, and whether replicas acknowledge it. Raises as the publish endpoint."""
    request = head.request
    replicated = wants_replicated(request.parameters.get("acks"), runtime.state.config)
    if not request.content_type:
        refuse_envelope(request, body)
    return single_of(request, body, runtime.schema, clock), replicated
