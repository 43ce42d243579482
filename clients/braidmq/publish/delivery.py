"""Delivers one request to the owner of its keys, and repeats it until the outcome is known."""

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TypeVar

import httpx

from braidmq.cluster.routes import Routes, TopicRoute
from braidmq.errors import BraidMQError, FrontStoreFull, NoConnection, NotABroker, OutcomeUnknown, PublishIncomplete
from braidmq.models import Owner, Route
from braidmq.names import topic_path
from braidmq.positions import PositionRange
from braidmq.transport.broker_failover import BrokerFailover
from braidmq.transport.problems import address_of, json_of
from braidmq.transport.retry import share_of_time
from braidmq.transport.trace_context import TraceHeaders
from braidmq.transport.transport import Call, Transport, Try

T = TypeVar("T")

# A broker that answers with these asks for time, but the pause may end as soon as the route has changed.
_MOVES = ("segment-moved", "draining")
# A suspended broker accepts connections and never answers. Repeating a request whose first try is only slow costs
# little: the owner makes the second try wait for the outcome of the first.
_LONGEST_TRY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a publish request, and its media type."""

    content: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """One publish request: `body` has the rows, `slot` is that of one of them if it is known.

    With `producer_id` and `sequence` it is stored once, however often and to whichever broker it is sent. The same
    id and sequence always go with the same bytes. `trace` as for `Call`.
    """

    topic: str
    body: Body
    slot: int | None = None
    producer_id: str | None = None
    sequence: int = 0
    trace: TraceHeaders | None = None

    def call(self) -> Call:
        """Return the HTTP request to a broker."""
        return Call(
            "POST",
            f"{topic_path(self.topic)}/messages",
            params=None if self.producer_id is None else {"producer": self.producer_id, "sequence": self.sequence},
            content=self.body.content,
            headers={"content-type": self.body.content_type},
            publishing=True,
            trace=self.trace,
        )


class Delivery:
    """Sends requests: each straight to its segment's owner if the route names it, else to any broker.

    A request with a sequence is repeated for `timeout_seconds` from its first try on. One without is repeated as the
    client's `retry` says, and only while it is certain that nothing of it is stored. Without `routes`, every request
    goes to the addresses that the client was given.
    """

    def __init__(self, transport: Transport, routes: Routes | None, *, timeout_seconds: float) -> None:
        self._transport = transport
        self._routes = routes
        self._timeout_seconds = timeout_seconds

    def now_us(self) -> int:
        """The time, in microseconds since the epoch."""
        return self._transport.clock.now_us()

    async def timed(self, work: Awaitable[T]) -> tuple[T, float]:
        """Return a result, and how many seconds it took."""
        began_seconds = self._transport.clock.monotonic_seconds()
        return await work, self._transport.clock.monotonic_seconds() - began_seconds

    async def deliver(self, request: ProduceRequest, *, spent_seconds: float = 0.0) -> tuple[PositionRange, ...]:
        """Return the positions of the request's rows. Raises the failure if they are not acknowledged in time.

        `spent_seconds` of that time are over: finding the owners took them.
        """
        route = None if self._routes is None else self._routes.of(request.topic)
        timeout_seconds = self._timeout_seconds
        if request.producer_id is None:
            timeout_seconds = self._transport.retry.give_up_after_seconds
        attempts = _Attempts(self._transport, self._routes, route, request, timeout_seconds, spent_seconds)
        call = request.call()
        with self._transport.waits.of_call() as wait:
            while True:
                owner, attempt = attempts.next_try()
                wait.tries(attempt.address)
                try:
                    answered = positions_of(await self._transport.once(call, attempt))
                except BraidMQError as failure:
                    wait.failed(failure)
                    await attempts.prepare_retry(failure, owner, attempt.address)
                    continue
                if route is not None:
                    route.check(answered)
                return answered


@dataclass
class _Attempts:
    """The attempts to deliver one request: where to send the next one, and whether there is a next one."""

    transport: Transport
    routes: Routes | None
    route: TopicRoute | None
    request: ProduceRequest
    timeout_seconds: float
    spent_seconds: float
    tries: int = 0
    rounds: int = 0
    unknown: BraidMQError | None = None
    used_route: Route | None = None
    started_seconds: float = field(init=False)
    failover: BrokerFailover = field(init=False)

    def __post_init__(self) -> None:
        self.started_seconds = self.transport.clock.monotonic_seconds() - self.spent_seconds
        self.failover = BrokerFailover(self.transport.addresses)

    def next_try(self) -> tuple[Owner | None, Try]:
        """Count the next try. Return the owner and a try there, or None and a try at any broker, which forwards."""
        self.tries += 1
        owner, address = self._next_target()
        return owner, Try(address, self._try_seconds())

    def _next_target(self) -> tuple[Owner | None, str]:
        if self.route is not None and self.request.slot is not None:
            self.used_route = self.route.known
            owner = self.route.owner_of(self.request.slot)
            if owner is not None and owner.url is not None and not self.failover.has_failed(owner.url):
                return owner, owner.url
        return None, self.failover.next_address()

    def _try_seconds(self) -> float | None:
        elapsed_seconds, brokers = self._elapsed_seconds(), self.failover.untried
        if self.request.producer_id is None:
            return self.transport.retry.try_seconds(elapsed_seconds, brokers)
        return min(share_of_time(self.timeout_seconds - elapsed_seconds, brokers), _LONGEST_TRY_SECONDS)

    async def prepare_retry(self, failure: BraidMQError, owner: Owner | None, address: str) -> None:
        """Return when it is time for another try. Raise if a retry cannot help or would come too late."""
        if isinstance(failure, OutcomeUnknown):
            self.unknown = failure
        if self._is_final(failure, address):
            raise self._final_error(failure)
        has_other_address = self.failover.record(address, failure)
        if owner is not None and isinstance(failure, NoConnection | NotABroker) and self.routes is not None:
            self.routes.unreachable_owners.add(owner)
        if self._elapsed_seconds() >= self.timeout_seconds:
            raise self._timeout_error(failure)
        if has_other_address or await self._has_moved(failure):
            return
        if self.transport.is_hopeless(failure):
            raise self.failover.with_earlier_failures(failure)
        await self._pause(failure)

    async def _has_moved(self, failure: BraidMQError) -> bool:
        """Whether the route now says that the request belongs elsewhere."""
        if self.route is None or isinstance(failure, FrontStoreFull):
            return False
        left_seconds = self.timeout_seconds - self._elapsed_seconds()
        return await self.route.refresh(self.used_route, within_seconds=left_seconds)

    async def _pause(self, failure: BraidMQError) -> None:
        self.rounds += 1
        pause_seconds = self.transport.pause_seconds(self.rounds, self.transport.retry)
        if failure.problem is None or failure.problem.slug not in _MOVES:
            pause_seconds = max(pause_seconds, failure.retry_after_seconds)
        if self._elapsed_seconds() + pause_seconds > self.timeout_seconds:
            raise self._timeout_error(failure)
        await self.transport.clock.sleep(pause_seconds)
        self.failover.reset()

    def _is_final(self, failure: BraidMQError, address: str) -> bool:
        if isinstance(failure, OutcomeUnknown):
            return self.request.producer_id is None or self.transport.is_closed
        if isinstance(failure, NotABroker):
            return self.transport.addresses.is_given(address)
        return not failure.retryable

    def _final_error(self, failure: BraidMQError) -> BraidMQError:
        """The error that a refusal means. After a try with an unknown outcome, something may be stored all the same."""
        if self.unknown is None or isinstance(failure, OutcomeUnknown):
            return self.failover.with_earlier_failures(failure)
        return _unknown(f"an earlier try may have stored the messages ({self.unknown}); then: {failure}", failure)

    def _timeout_error(self, failure: BraidMQError) -> BraidMQError:
        if self.unknown is None or isinstance(failure, PublishIncomplete):
            return self.failover.with_earlier_failures(failure)
        return _unknown(
            f"no acknowledgement within {self.timeout_seconds:g} seconds and {self.tries} tries: the messages may "
            f"or may not be stored; the last failure: {failure}",
            failure,
        )

    def _elapsed_seconds(self) -> float:
        return self.transport.clock.monotonic_seconds() - self.started_seconds


def _unknown(text: str, cause: BraidMQError) -> OutcomeUnknown:
    unknown = OutcomeUnknown(text)
    unknown.__cause__ = cause
    return unknown


def positions_of(response: httpx.Response) -> tuple[PositionRange, ...]:
    """Return the ranges in the answer to a publish. Raises `NotABroker` if it has none."""
    try:
        listed = json_of(response)["positions"]
        return tuple(PositionRange(each["segment"], each["offset"], each["count"]) for each in listed)
    except (KeyError, TypeError) as failure:
        raise NotABroker(f"{address_of(response)} answered a publish without positions") from failure
