"""The routes of topics: their open segments and owners, fetched again when they turn out to be out of date."""

import asyncio
import bisect
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from braidmq.cluster.admin import Admin
from braidmq.errors import BraidMQError
from braidmq.models import Owner, Route
from braidmq.positions import PositionRange
from braidmq.transport.addresses import Addresses
from braidmq.transport.retry import ONE_ROUND, share_of_time
from filer.clock import Clock

_TIMEOUT_SECONDS = 5.0
# Many requests find out at the same time that a route is out of date: one fetch serves them all.
_PAUSE_SECONDS = 0.05
_PAUSE_AFTER_FAILURE_SECONDS = 1.0
# Brokers may lag behind each other, but not longer than this. Otherwise a topic's version falls only if its store was
# replaced.
_LAG_SECONDS = 10.0
_AVOID_SECONDS = 30.0
_LONGEST_AVOID_SECONDS = 600.0
_MAX_TOPICS = 1000
_MAX_AVOIDED = 1000


@dataclass(slots=True)
class _Avoided:
    until_seconds: float
    for_seconds: float


class UnreachableOwners:
    """Owners that this client cannot reach (behind an address translation, for example), and how long to avoid them.

    They are kept by broker id. A restarted broker has another id, so it is tried again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._avoided: dict[str, _Avoided] = {}

    def add(self, owner: Owner) -> None:
        """Avoid this owner for a while, longer each time."""
        known = self._avoided.pop(owner.broker, None)
        seconds = _AVOID_SECONDS if known is None else min(2 * known.for_seconds, _LONGEST_AVOID_SECONDS)
        self._avoided[owner.broker] = _Avoided(self._clock.monotonic_seconds() + seconds, seconds)
        if len(self._avoided) > _MAX_AVOIDED:
            del self._avoided[next(iter(self._avoided))]

    def __contains__(self, owner: Owner) -> bool:
        """Whether requests for this owner should go to another broker for now."""
        known = self._avoided.get(owner.broker)
        return known is not None and self._clock.monotonic_seconds() < known.until_seconds


class TopicRoute:
    """The newest known route of one topic."""

    def __init__(
        self,
        admin: Admin,
        addresses: Addresses,
        unreachable_owners: UnreachableOwners,
        clock: Clock,
        topic: str,
        fetch_seconds: float,
    ) -> None:
        self._admin = admin
        self._addresses = addresses
        self._unreachable_owners = unreachable_owners
        self._clock = clock
        self._topic = topic
        self._fetch_seconds = fetch_seconds
        self._starts: list[int] = []
        self._segments: frozenset[int] = frozenset()
        self._out_of_date = True
        self._next_fetch_seconds = -inf
        self._updated_seconds = -inf
        self._fetching: asyncio.Task[None] | None = None
        self.known: Route | None = None

    async def current(self) -> Route | None:
        """Return the route, fetched first if it is unknown or out of date; None while no broker can give it."""
        if self._out_of_date:
            await self._wait_for_next_fetch()
            await self.refresh(self.known)
        return self.known

    async def refresh(self, used: Route | None, *, within_seconds: float = inf) -> bool:
        """Fetch the route if it is still the one that was `used`. Return whether it differs now.

        A failed fetch leaves the known route. One that is started here takes at most `within_seconds`, about.
        """
        if self.known is used:
            if self._fetching is None and self._clock.monotonic_seconds() >= self._next_fetch_seconds:
                share_seconds = share_of_time(min(within_seconds, self._fetch_seconds), len(self._addresses.all))
                try_seconds = min(_TIMEOUT_SECONDS, share_seconds)
                self._fetching = asyncio.create_task(self._fetch(try_seconds), name=f"braidmq route of {self._topic}")
            if self._fetching is not None:
                # Shielded, because others wait for the same answer.
                await asyncio.shield(self._fetching)
        return self.known is not used

    def owner_of(self, slot: int) -> Owner | None:
        """Return the owner of a slot's segment; None if it is unknown or known to be unreachable."""
        if self.known is None:
            return None
        owner = self.known.segments[bisect.bisect_right(self._starts, slot) - 1].owner
        if owner.url is None or not self._addresses.admits(owner.url) or owner in self._unreachable_owners:
            return None
        return owner

    def check(self, answered: Iterable[PositionRange]) -> None:
        """Mark the route as out of date if a segment is not in it. Brokers forward, so nothing else may show it."""
        if any(each.segment not in self._segments for each in answered):
            self._out_of_date = True

    async def close(self) -> None:
        """Wait for the last fetch, which fails once the transport is closed. Its waiters must not be cancelled."""
        if self._fetching is not None:
            await asyncio.wait([self._fetching])

    async def _wait_for_next_fetch(self) -> None:
        """Wait until the next fetch is allowed, unless that is far off."""
        wait_seconds = self._next_fetch_seconds - self._clock.monotonic_seconds()
        if 0 < wait_seconds <= _PAUSE_SECONDS:
            await self._clock.sleep(wait_seconds)

    async def _fetch(self, try_seconds: float) -> None:
        pause_seconds = _PAUSE_AFTER_FAILURE_SECONDS
        try:
            self._update(await self._admin.route(self._topic, retry=ONE_ROUND, timeout_seconds=try_seconds))
            pause_seconds = _PAUSE_SECONDS
        except BraidMQError:
            pass  # the publish that asked for it goes to any broker, and reports the failure
        finally:
            self._next_fetch_seconds = self._clock.monotonic_seconds() + pause_seconds
            self._fetching = None

    def _update(self, route: Route) -> None:
        """Use a fetched route, unless it equals the known one or is older."""
        self._out_of_date = False
        segments = sorted(route.segments, key=lambda entry: entry.range)
        route = route.model_copy(update={"segments": tuple(segments)})
        now = self._clock.monotonic_seconds()
        if self.known is not None and route.version < self.known.version and now - self._updated_seconds < _LAG_SECONDS:
            return
        if not segments or route == self.known:
            return
        self._updated_seconds = now
        self.known = route
        self._starts = [entry.range[0] for entry in segments]
        self._segments = frozenset(entry.segment for entry in segments)


class Routes:
    """The routes of the topics that a client publishes to. Fetching one takes at most `fetch_seconds`, about."""

    def __init__(self, admin: Admin, addresses: Addresses, clock: Clock, *, fetch_seconds: float = inf) -> None:
        self._fetch_seconds = fetch_seconds
        self._admin = admin
        self._addresses = addresses
        self._clock = clock
        self.unreachable_owners = UnreachableOwners(clock)
        self._topics: dict[str, TopicRoute] = {}

    def of(self, topic: str) -> TopicRoute:
        """Return the route of a topic."""
        route = self._topics.get(topic)
        if route is None:
            route = TopicRoute(
                self._admin, self._addresses, self.unreachable_owners, self._clock, topic, self._fetch_seconds
            )
            if len(self._topics) >= _MAX_TOPICS:
                del self._topics[next(iter(self._topics))]
            self._topics[topic] = route
        return route

    async def close(self) -> None:
        """Wait for the last fetches. Close the transport first."""
        for route in self._topics.values():
            await route.close()
