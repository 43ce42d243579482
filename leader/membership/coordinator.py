"""Which brokers are alive and which one leads: the protocol of coordinators (docs/design.md §8).

A coordinator's data may be lost: everything durable is on the store. Its answers are only hints about liveness. The
store decides, and so do followers that refuse an owner.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from filer.errors import BraidError

NO_SESSION = "no session with ZooKeeper"
"""The beginning of the error with which a broker ends if it finds no ZooKeeper at its start."""


class CoordinationFailed(BraidError):
    """The coordination service cannot be reached."""


class NotAuthorized(CoordinationFailed):
    """The coordination service does not let this broker read or write the cluster's nodes."""


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live broker. `id` carries an incarnation: a restarted process is another broker.

    `store` is the id in the cluster record of its store; empty if the broker is of an older version. `peer_url` is the
    address of its listener for brokers alone; empty if it has none. Older versions do not know it, and call `url`.
    `starting`: it has not proven yet that its store is that of the others.
    """

    id: str
    url: str
    zone: str
    version: str
    draining: bool = False
    store: str = ""
    peer_url: str = ""
    starting: bool = False


class Coordinator(Protocol):
    """Membership, leadership and changes of topics as a broker sees them. All calls belong to the event loop's thread.

    All methods but `look`, `join` and `leave` return at once, from what is known.
    """

    @property
    def session_timeout_seconds(self) -> float:
        """How long the others count a silent broker as alive; 0 if there are no others."""
        ...

    async def look(self) -> Sequence[BrokerInfo]:
        """The live brokers, as a broker that has not joined sees them. Raises as `join`."""
        ...

    async def join(self, broker: BrokerInfo) -> None:
        """Announce this broker, and keep it announced. Call it again to change the announcement.

        Raises `CoordinationFailed` if the coordination service cannot be reached at the first call.
        """
        ...

    def resign(self) -> None:
        """Never lead again: another broker may be elected from now on. This broker stays announced."""
        ...

    async def leave(self) -> None:
        """Withdraw this broker, and close connections and threads."""
        ...

    def brokers(self) -> Sequence[BrokerInfo]:
        """The live brokers by id, as far as is known."""
        ...

    def by_age(self) -> Sequence[BrokerInfo]:
        """The live brokers, in the order in which they were announced: all brokers agree on that order.

        Once it has joined, a broker knows of all brokers that came before it and are still there.
        """
        ...

    @property
    def seen_seconds(self) -> float:
        """The monotonic time at which `brokers` was last read, or later."""
        ...

    def leader(self) -> str | None:
        """Id of the broker elected to decide transitions, as far as is known."""
        ...

    def leads(self) -> bool:
        """Whether this broker leads: false from its own deadline on, before others may count it as gone."""
        ...

    def in_touch(self) -> bool:
        """Whether this broker is certain that the others still count it as alive."""
        ...

    @property
    def touch_count(self) -> int:
        """How many times this broker has come in touch. If the number is the same twice, it was in touch in between."""
        ...

    def on_change(self, call: Callable[[], None]) -> None:
        """Register `call`, to be called whenever brokers, the leader or `in_touch` may have changed."""
        ...

    def on_topic_change(self, call: Callable[[str], None]) -> None:
        """Register `call`, to be called with the name of a followed topic that was announced: read its record again."""
        ...

    def follow(self, topic: str) -> None:
        """Get the announcements of that topic. Repeating it changes nothing."""
        ...

    def announce(self, topic: str) -> None:
        """Announce to all followers of the topic that its record has changed. This is a hint that may be lost."""
        ...


class InProcessCoordinator:
    """A cluster of one: the embedded form, where the only broker leads."""

    def __init__(self) -> None:
        self._brokers: list[BrokerInfo] = []

    @property
    def session_timeout_seconds(self) -> float:
        """There are no others."""
        return 0.0

    async def look(self) -> Sequence[BrokerInfo]:
        """There are no others."""
        return ()

    async def join(self, broker: BrokerInfo) -> None:
        """Announce this broker."""
        self._brokers = [broker]

    def resign(self) -> None:
        """Do nothing: no other broker could be elected."""

    async def leave(self) -> None:
        """Withdraw this broker."""
        self._brokers = []

    def brokers(self) -> Sequence[BrokerInfo]:
        """This broker, once it has joined."""
        return tuple(self._brokers)

    def by_age(self) -> Sequence[BrokerInfo]:
        """This broker, once it has joined."""
        return self.brokers()

    @property
    def seen_seconds(self) -> float:
        """Now: nothing changes without this broker."""
        return math.inf

    def leader(self) -> str | None:
        """This broker, once it has joined."""
        return self._brokers[0].id if self._brokers else None

    def leads(self) -> bool:
        """Once it has joined."""
        return bool(self._brokers)

    def in_touch(self) -> bool:
        """Always: no other broker could take its place."""
        return True

    @property
    def touch_count(self) -> int:
        """Always the same: it is in touch from the beginning."""
        return 1

    def on_change(self, call: Callable[[], None]) -> None:
        """Nothing ever changes."""

    def on_topic_change(self, call: Callable[[str], None]) -> None:
        """There are no other brokers to announce topics."""

    def follow(self, topic: str) -> None:
        """There are no other brokers to announce topics."""

    def announce(self, topic: str) -> None:
        """Do nothing: there are no other brokers."""
