"""Coordinators of several brokers in one process, which get at once what ZooKeeper would give them."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence

from leader.membership.coordinator import BrokerInfo

SESSION_SECONDS = 1.0


class Membership:
    """The live brokers. The oldest leads, unless a test chooses the leader."""

    def __init__(self) -> None:
        self.members: dict[str, BrokerInfo] = {}
        self.sessions: Counter[str] = Counter()
        self.coordinators: list[SharedCoordinator] = []
        self.leaders: set[str] | None = None
        self.resigned: set[str] = set()
        self.session_seconds = SESSION_SECONDS

    def enter(self, broker: BrokerInfo) -> None:
        """Add a broker, maybe again, with a new session."""
        if broker.id not in self.members:
            self.sessions[broker.id] += 1
        self.members[broker.id] = broker
        self.notify()

    def notify(self) -> None:
        """Notify everybody of a change, in the next iteration of the event loop."""
        for coordinator in self.coordinators:
            for call in coordinator.news_calls:
                asyncio.get_running_loop().call_soon(call)

    def expel(self, broker: str) -> None:
        """End the session of a broker, which does not know it yet."""
        self.members.pop(broker, None)
        self.notify()


class SharedCoordinator:
    """A `Coordinator` over a shared `Membership`."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        membership.coordinators.append(self)
        self._id: str | None = None
        self._followed: set[str] = set()
        self.news_calls: list[Callable[[], None]] = []
        self._topic_calls: list[Callable[[str], None]] = []

    @property
    def session_timeout_seconds(self) -> float:
        return self._membership.session_seconds

    async def look(self) -> Sequence[BrokerInfo]:
        return self.by_age()

    async def join(self, broker: BrokerInfo) -> None:
        # Who is out of touch is not heard.
        if self._id is None or self.in_touch():
            self._id = broker.id
            self._membership.enter(broker)

    def resign(self) -> None:
        if self._id is not None:
            self._membership.resigned.add(self._id)
            self._membership.notify()

    async def leave(self) -> None:
        if self._id is not None:
            self._membership.expel(self._id)

    def brokers(self) -> Sequence[BrokerInfo]:
        return tuple(sorted(self._membership.members.values(), key=lambda b: b.id))

    def by_age(self) -> Sequence[BrokerInfo]:
        return tuple(self._membership.members.values())

    @property
    def seen_seconds(self) -> float:
        return math.inf

    def leader(self) -> str | None:
        return next((each for each in self._membership.members if each not in self._membership.resigned), None)

    def leads(self) -> bool:
        if self._membership.leaders is not None:
            return self._id in self._membership.leaders
        return self._id is not None and self.leader() == self._id

    def in_touch(self) -> bool:
        return self._id in self._membership.members

    @property
    def touch_count(self) -> int:
        return self._membership.sessions[self._id or ""]

    def on_change(self, call: Callable[[], None]) -> None:
        self.news_calls.append(call)

    def on_topic_change(self, call: Callable[[str], None]) -> None:
        self._topic_calls.append(call)

    def follow(self, topic: str) -> None:
        self._followed.add(topic)

    def announce(self, topic: str) -> None:
        for coordinator in self._membership.coordinators:
            if topic in coordinator._followed and coordinator._id in self._membership.members:
                for call in coordinator._topic_calls:
                    asyncio.get_running_loop().call_soon(call, topic)
