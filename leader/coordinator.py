"""Who is there and who leads: the protocol between a broker and whatever tells it of the others (DESIGN.md §8).

What a coordinator holds may be lost; everything durable is on the store. What it says is a hint about liveness:
the store, and followers that refuse, decide what holds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from filer.errors import BraidError


class CoordinationFailed(BraidError):
    """The service that tells brokers of each other cannot be reached."""


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live broker. `id` carries an incarnation: a restarted process is another broker.

    `store` is the id in that store's cluster record; empty where an older version does not say it.
    """

    id: str
    url: str
    zone: str
    version: str
    draining: bool = False
    store: str = ""


class Coordinator(Protocol):
    """Membership, leadership and news of topics as a broker sees them. All calls belong to the event loop's thread.

    Everything but `join` and `leave` answers at once from what is known.
    """

    @property
    def session_timeout_seconds(self) -> float:
        """How long the others go on counting a silent broker as alive."""
        ...

    async def join(self, broker: BrokerInfo) -> None:
        """Announce this broker, and keep it announced; called again to change what is announced.

        Raises `CoordinationFailed` where the others cannot be reached at the first call.
        """
        ...

    def resign(self) -> None:
        """Lead no more, for good: another broker may be elected from now on. This one stays announced."""
        ...

    async def leave(self) -> None:
        """Withdraw this broker, and let go of connections and threads."""
        ...

    def brokers(self) -> Sequence[BrokerInfo]:
        """The live brokers by id, as far as is known."""
        ...

    def by_age(self) -> Sequence[BrokerInfo]:
        """The live brokers, the one that has been announced longest first: all who look agree on who came before whom.

        Once it has joined, a broker knows of all that came before it and are still there.
        """
        ...

    @property
    def seen_seconds(self) -> float:
        """The moment of the clock's monotonic time from which on `brokers` has been seen."""
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
    def touches(self) -> int:
        """How many times this broker has come in touch: the same number twice, and it has been in touch in between."""
        ...

    def on_news(self, call: Callable[[], None]) -> None:
        """Have `call` called whenever brokers, the leader or `in_touch` may have changed."""
        ...

    def on_topic(self, call: Callable[[str], None]) -> None:
        """Have `call` called with the name of a followed topic that was announced: read its record again."""
        ...

    def follow(self, topic: str) -> None:
        """Be told of news of that topic; repeating it changes nothing."""
        ...

    def announce(self, topic: str) -> None:
        """Tell all who follow the topic that its record has changed; a hint that may be lost."""
        ...


class InProcessCoordinator:
    """A cluster of one: the embedded form, where the only broker leads."""

    def __init__(self) -> None:
        self._brokers: list[BrokerInfo] = []

    @property
    def session_timeout_seconds(self) -> float:
        """There are no others."""
        return 0.0

    async def join(self, broker: BrokerInfo) -> None:
        """Announce this broker."""
        self._brokers = [broker]

    def resign(self) -> None:
        """Nobody else could be elected."""

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
        """Nothing ever changes behind its back."""
        return math.inf

    def leader(self) -> str | None:
        """This broker, once it has joined."""
        return self._brokers[0].id if self._brokers else None

    def leads(self) -> bool:
        """Once it has joined."""
        return bool(self._brokers)

    def in_touch(self) -> bool:
        """Always: nobody else could take its place."""
        return True

    @property
    def touches(self) -> int:
        """Once for ever."""
        return 1

    def on_news(self, call: Callable[[], None]) -> None:
        """Nothing ever changes."""

    def on_topic(self, call: Callable[[str], None]) -> None:
        """All news are its own."""

    def follow(self, topic: str) -> None:
        """All news are its own."""

    def announce(self, topic: str) -> None:
        """Nobody else is there to hear it."""
