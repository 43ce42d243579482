"""Where a topic's messages go: its open segments and their owners, fetched again when they prove out of date."""

import asyncio
import bisect
from collections.abc import Iterable
from dataclasses import dataclass

from braidmq.addresses import Addresses
from braidmq.admin import Admin
from braidmq.errors import BraidMQError
from braidmq.models import Owner, Route
from braidmq.positions import PositionRange
from braidmq.retry import ONE_ROUND
from filer.clock import Clock

_TIMEOUT_SECONDS = 5.0
# Many requests find out at once that a route is out of date: one look serves them all.
_PAUSE_SECONDS = 0.05
_PAUSE_AFTER_FAILURE_SECONDS = 1.0
# Brokers may lag behind one another, but not for longer; a topic's version falls only where its store was replaced.
_LAG_SECONDS = 10.0
_AVOID_SECONDS = 30.0
_LONGEST_AVOID_SECONDS = 600.0
_MAX_TOPICS = 1000
_MAX_AVOIDED = 1000


@dataclass(slots=True)
class _Avoided:
    until_seconds: float
    for_seconds: float


class Detours:
    """Owners that this client cannot reach, behind an address translation say, and until when to go around them.

    They are known by the broker's id, which a broker that has restarted does not have any more.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._avoided: dict[str, _Avoided] = {}

    def avoid(self, owner: Owner) -> None:
        """Go around this owner for a while, longer each time."""
        known = self._avoided.pop(owner.broker, None)
        seconds = _AVOID_SECONDS if known is None else min(2 * known.for_seconds, _LONGEST_AVOID_SECONDS)
        self._avoided[owner.broker] = _Avoided(self._clock.monotonic_seconds() + seconds, seconds)
        if len(self._avoided) > _MAX_AVOIDED:
            del self._avoided[next(iter(self._avoided))]

    def avoids(self, owner: Owner) -> bool:
        """Whether requests for this owner had better go to another broker."""
        known = self._avoided.get(owner.broker)
        return known is not None and self._clock.monotonic_seconds() < known.until_seconds


class TopicRoute:
    """The newest route known of one topic."""

    def __init__(self, admin: Admin, addresses: Addresses, detours: Detours, clock: Clock, topic: str) -> None:
        self._admin = admin
        self._addresses = addresses
        self._detours = detours
        self._clock = clock
        self._topic = topic
        self._starts: list[int] = []
        self._segments: frozenset[int] = frozenset()
        self._out_of_date = True
        self._next_fetch_seconds = float("-inf")
        self._adopted_seconds = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        self.known: Route | None = None

    async def current(self) -> Route | None:
        """The route, fetched first where it is not known or out of date; None while nobody can tell it."""
        if self._out_of_date:
            await self._let_pause_pass()
            await self.refresh(self.known)
        return self.known

    async def refresh(self, seen: Route | None) -> bool:
        """Look for another route than the one `seen`; whether there is one. Failures leave what is known."""
        if self.known is seen:
            if self._fetching is None and self._clock.monotonic_seconds() >= self._next_fetch_seconds:
                self._fetching = asyncio.create_task(self._fetch(), name=f"braidmq route of {self._topic}")
            if self._fetching is not None:
                # Shielded: others wait for the same answer.
                await asyncio.shield(self._fetching)
        return self.known is not seen

    def owner_of(self, slot: int) -> Owner | None:
        """The owner of a slot's segment, where it is known, and can be reached as far as is known."""
        if self.known is None:
            return None
        owner = self.known.segments[bisect.bisect_right(self._starts, slot) - 1].owner
        if owner.url is None or not self._addresses.admits(owner.url) or self._detours.avoids(owner):
            return None
        return owner

    def check(self, answered: Iterable[PositionRange]) -> None:
        """Notice segments that the route does not name: brokers forward, so nothing else may tell of them."""
        if any(each.segment not in self._segments for each in answered):
            self._out_of_date = True

    async def close(self) -> None:
        """Wait for the last look, which finds the transport closed: who waits for it is not to be cancelled."""
        if self._fetching is not None:
            await asyncio.wait([self._fetching])

    async def _let_pause_pass(self) -> None:
        """Wait for the moment of the next look, unless it is far."""
        rest = self._next_fetch_seconds - self._clock.monotonic_seconds()
        if 0 < rest <= _PAUSE_SECONDS:
            await self._clock.sleep(rest)

    async def _fetch(self) -> None:
        pause = _PAUSE_AFTER_FAILURE_SECONDS
        try:
            self._adopt(await self._admin.route(self._topic, retry=ONE_ROUND, timeout_seconds=_TIMEOUT_SECONDS))
            pause = _PAUSE_SECONDS
        except BraidMQError:
            pass  # the publish that asked for it goes to any broker, and tells what is wrong
        finally:
            self._next_fetch_seconds = self._clock.monotonic_seconds() + pause
            self._fetching = None

    def _adopt(self, route: Route) -> None:
        """Take a route, unless it is the one that is known, or one from before that."""
        self._out_of_date = False
        segments = sorted(route.segments, key=lambda entry: entry.range)
        route = route.model_copy(update={"segments": tuple(segments)})
        now = self._clock.monotonic_seconds()
        if self.known is not None and route.version < self.known.version and now - self._adopted_seconds < _LAG_SECONDS:
            return
        if not segments or route == self.known:
            return
        self._adopted_seconds = now
        self.known = route
        self._starts = [entry.range[0] for entry in segments]
        self._segments = frozenset(entry.segment for entry in segments)


class Routes:
    """The routes of the topics that a client publishes to."""

    def __init__(self, admin: Admin, addresses: Addresses, clock: Clock) -> None:
        self._admin = admin
        self._addresses = addresses
        self._clock = clock
        self.detours = Detours(clock)
        self._topics: dict[str, TopicRoute] = {}

    def of(self, topic: str) -> TopicRoute:
        """The route of a topic."""
        route = self._topics.get(topic)
        if route is None:
            route = TopicRoute(self._admin, self._addresses, self.detours, self._clock, topic)
            if len(self._topics) >= _MAX_TOPICS:
                del self._topics[next(iter(self._topics))]
            self._topics[topic] = route
        return route

    async def close(self) -> None:
        """Wait for the last looks; the transport has to be closed before."""
        for route in self._topics.values():
            await route.close()
