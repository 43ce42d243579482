"""A session's view of its WebSocket: messages that have come, and writes."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from starlette.types import Scope

from mq.forms.render import Part

OPENS = "braidmq.opens"
"""In the message that starts an answer: the connection becomes a WebSocket with it."""
SUBPROTOCOL = "braidmq.v1"
_EXTENSION = "braidmq.socket"

GOING_AWAY, PROTOCOL_ERROR, INVALID_DATA = 1001, 1002, 1007
POLICY_VIOLATION, TOO_BIG, INTERNAL_ERROR, TRY_AGAIN = 1008, 1009, 1011, 1013
"""Codes by which a broker closes (RFC 6455 §7.4.1; IANA's registry has the last one)."""


class Message(NamedTuple):
    """A whole message: text, which is UTF-8 if its sender keeps to the protocol, or binary."""

    is_text: bool
    data: bytes


class Wire(Protocol):
    """A WebSocket. Belongs to one event loop."""

    heard_seconds: float
    """When the client was last heard, by the time of the event loop."""

    @property
    def is_open(self) -> bool:
        """Whether the client gets the data that is written."""
        ...

    @property
    def is_broken(self) -> bool:
        """Whether the client has broken the protocol: the socket takes nothing more, and `close` sends the reason."""
        ...

    @property
    def is_held_up(self) -> bool:
        """Whether the client takes data more slowly than it is written."""
        ...

    def why_not(self, scope: Scope, frame_bytes: int) -> tuple[int, str] | None:
        """Why that request cannot open it: the status of the answer, and the words. It takes messages up to a size."""
        ...

    def take(self) -> Sequence[Message]:
        """The next messages, in order. The caller takes no more before it is done with these."""
        ...

    async def news(self) -> None:
        """Return when there may be messages, or the socket is closed, or it is woken."""
        ...

    def wake(self) -> None:
        """Let `news` return."""
        ...

    def write(self, parts: Sequence[Part], *, is_text: bool = True) -> None:
        """Write a message. It is kept unchanged until the client takes it."""
        ...

    def ping(self) -> None:
        """Ask whether the client is alive."""
        ...

    async def drained(self) -> None:
        """Return when the client has taken most of the data, or is gone."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Close it, behind all that was written."""
        ...


def offer_wire(scope: Scope, wire: Wire) -> None:
    """Let the endpoint of that request find the WebSocket."""
    scope.setdefault("extensions", {})[_EXTENSION] = wire


def wire_of(scope: Scope) -> Wire | None:
    """The WebSocket that the request asks for, if its server has them."""
    extensions = scope.get("extensions")
    return None if extensions is None else extensions.get(_EXTENSION)
