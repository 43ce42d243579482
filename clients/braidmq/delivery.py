"""Bringing one request to the owner of its keys, again and again until its outcome is known."""

from dataclasses import dataclass, field

import httpx

from braidmq.errors import BraidMQError, FrontStoreFull, NoConnection, NotABroker, OutcomeUnknown, PublishIncomplete
from braidmq.models import Owner, Route
from braidmq.names import topic_path
from braidmq.positions import PositionRange
from braidmq.problems import json_of
from braidmq.routes import Routes, TopicRoute
from braidmq.tour import Tour
from braidmq.transport import ARROW, Call, Transport

# What a broker asks to be given time for by these is over as soon as the route says so.
_MOVES = ("segment-moved", "draining")
# A broker that has stopped takes connections and says nothing. A request that is sent again while the first is only
# slow costs little: its owner lets it wait for that one's outcome.
_LONGEST_TRY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Shipment:
    """One request: `body` is an Arrow stream of rows, `slot` that of one of them where it is known.

    With `producer_id` and `sequence` it is stored once, however often and wherever it is sent: both stay with
    the very same bytes.
    """

    topic: str
    body: bytes
    slot: int | None = None
    producer_id: str | None = None
    sequence: int = 0

    def call(self, timeout_seconds: float | None) -> Call:
        """The request as it goes to a broker."""
        return Call(
            "POST",
            f"{topic_path(self.topic)}/messages",
            params=None if self.producer_id is None else {"producer": self.producer_id, "sequence": self.sequence},
            content=self.body,
            headers={"content-type": ARROW},
            publishing=True,
            timeout_seconds=timeout_seconds,
        )


class Delivery:
    """Sends requests: each straight to its segment's owner where the route tells it, else to any broker.

    `timeout_seconds` is how long a request with a sequence is repeated, from its first try on; one without is
    repeated as the client's `retry` says, and only while it is certain that nothing of it is stored. Without
    `routes` every request goes to the addresses that the client was given.
    """

    def __init__(self, transport: Transport, routes: Routes | None, *, timeout_seconds: float) -> None:
        self._transport = transport
        self._routes = routes
        self._timeout_seconds = timeout_seconds

    async def deliver(self, shipment: Shipment) -> tuple[PositionRange, ...]:
        """The positions of the request's rows; raises what it came to where they are not acknowledged in time."""
        route = None if self._routes is None else self._routes.of(shipment.topic)
        timeout_seconds = self._timeout_seconds
        if shipment.producer_id is None:
            timeout_seconds = self._transport.retry.give_up_after_seconds
        trip = _Trip(self._transport, self._routes, route, shipment, timeout_seconds)
        while True:
            owner, address = trip.target()
            try:
                answered = positions_of(await self._transport.once(trip.call(), address))
            except BraidMQError as failure:
                await trip.go_on_after(failure, owner, address)
                continue
            if route is not None:
                route.check(answered)
            return answered


@dataclass
class _Trip:
    """One request's tries so far."""

    transport: Transport
    routes: Routes | None
    route: TopicRoute | None
    shipment: Shipment
    timeout_seconds: float
    tries: int = 0
    rounds: int = 0
    unknown: BraidMQError | None = None
    seen: Route | None = None
    started_seconds: float = field(init=False)
    tour: Tour = field(init=False)

    def __post_init__(self) -> None:
        self.started_seconds = self.transport.clock.monotonic_seconds()
        self.tour = Tour(self.transport.addresses)

    def target(self) -> tuple[Owner | None, str]:
        """The owner and its address, or None and the address of any broker, which forwards."""
        if self.route is not None and self.shipment.slot is not None:
            self.seen = self.route.known
            owner = self.route.owner_of(self.shipment.slot)
            if owner is not None and owner.url is not None and not self.tour.has_tried(owner.url):
                return owner, owner.url
        return None, self.tour.next_address()

    def call(self) -> Call:
        """The next try."""
        self.tries += 1
        if self.shipment.producer_id is None:
            return self.shipment.call(None)
        rest_seconds = max(self.timeout_seconds - self._elapsed_seconds(), 1e-3)
        return self.shipment.call(min(rest_seconds, _LONGEST_TRY_SECONDS))

    async def go_on_after(self, failure: BraidMQError, owner: Owner | None, address: str) -> None:
        """Return when it is time for another try; raise where that cannot help, or would come too late."""
        if isinstance(failure, OutcomeUnknown):
            self.unknown = failure
        if self._is_final(failure, address):
            raise self._refused(failure)
        elsewhere = self.tour.goes_on_after(address, failure)
        if owner is not None and isinstance(failure, NoConnection | NotABroker) and self.routes is not None:
            self.routes.detours.avoid(owner)
        if self._elapsed_seconds() >= self.timeout_seconds:
            raise self._too_late(failure)
        if elsewhere or await self._has_moved(failure):
            return
        if self.transport.is_hopeless(failure):
            raise self.tour.told(failure)
        await self._pause(failure)

    async def _has_moved(self, failure: BraidMQError) -> bool:
        """Whether the route says by now that the request belongs elsewhere."""
        if self.route is None or isinstance(failure, FrontStoreFull):
            return False
        return await self.route.refresh(self.seen)

    async def _pause(self, failure: BraidMQError) -> None:
        self.rounds += 1
        pause = self.transport.pause_seconds(self.rounds, self.transport.retry)
        if failure.problem is None or failure.problem.slug not in _MOVES:
            pause = max(pause, failure.retry_after_seconds)
        if self._elapsed_seconds() + pause > self.timeout_seconds:
            raise self._too_late(failure)
        await self.transport.clock.sleep(pause)
        self.tour.begin_again()

    def _is_final(self, failure: BraidMQError, address: str) -> bool:
        if isinstance(failure, OutcomeUnknown):
            return self.shipment.producer_id is None or self.transport.is_closed
        if isinstance(failure, NotABroker):
            return self.transport.addresses.is_given(address)
        return not failure.retryable

    def _refused(self, failure: BraidMQError) -> BraidMQError:
        """What a refusal means: after a try whose outcome is unknown it does not say that nothing is stored."""
        if self.unknown is None or isinstance(failure, OutcomeUnknown):
            return self.tour.told(failure)
        return _unknown(f"an earlier try may have stored the messages ({self.unknown}); then: {failure}", failure)

    def _too_late(self, failure: BraidMQError) -> BraidMQError:
        if self.unknown is None or isinstance(failure, PublishIncomplete):
            return self.tour.told(failure)
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
    """The ranges that a publish's answer names; raises `NotABroker` where it names none."""
    try:
        listed = json_of(response)["positions"]
        return tuple(PositionRange(each["segment"], each["offset"], each["count"]) for each in listed)
    except (KeyError, TypeError) as failure:
        raise NotABroker(f"{response.request.url} answered a publish without positions") from failure
