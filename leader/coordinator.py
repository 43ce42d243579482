"""Who is there: the protocol between a broker and whatever tells it of the others (DESIGN.md §8).

What a coordinator holds may be lost; everything durable is on the store.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live broker. `id` carries an incarnation: a restarted process is another broker."""

    id: str
    url: str
    zone: str
    version: str


class Coordinator(Protocol):
    """Membership and leadership as a broker sees them."""

    async def join(self, broker: BrokerInfo) -> None:
        """Announce this broker."""
        ...

    async def leave(self) -> None:
        """Withdraw this broker."""
        ...

    def brokers(self) -> Sequence[BrokerInfo]:
        """The live brokers, as far as is known."""
        ...

    def leader(self) -> str | None:
        """Id of the broker elected to decide transitions, as far as is known."""
        ...


class InProcessCoordinator:
    """A cluster of one: the embedded form, where the only broker leads."""

    def __init__(self) -> None:
        self._brokers: list[BrokerInfo] = []

    async def join(self, broker: BrokerInfo) -> None:
        """Announce this broker."""
        self._brokers = [broker]

    async def leave(self) -> None:
        """Withdraw this broker."""
        self._brokers = []

    def brokers(self) -> Sequence[BrokerInfo]:
        """This broker, once it has joined."""
        return tuple(self._brokers)

    def leader(self) -> str | None:
        """This broker, once it has joined."""
        return self._brokers[0].id if self._brokers else None
