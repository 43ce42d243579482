"""What a connection shows of its client before the first request."""

from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from mq.security.authorization import authorization_of

_CALLER = "braidmq.caller"
"""The key in a request's scope."""


class ShownCertificate(NamedTuple):
    """The name in a verified certificate of a client, and when it ends (Unix time)."""

    name: str
    until_seconds: float


class Seats(Protocol):
    """The connections that one principal may have."""

    def gone(self) -> None:
        """Note that one of them has ended, or belongs to another principal now."""
        ...


class Seat:
    """A connection's place among those of the principal that has used it last. A principal may have only so many."""

    __slots__ = ("among",)

    def __init__(self) -> None:
        self.among: Seats | None = None

    def leave(self) -> None:
        """Give the place up: the connection counts nowhere any more."""
        if self.among is not None:
            self.among.gone()
            self.among = None


class Caller(NamedTuple):
    """The address of the client, and the user of this machine that has made the connection, if the kernel knows it.

    `certificate` is the one that the client has shown by TLS, if it has a name. The `seat` belongs to the connection.
    """

    address: str
    user: int | None = None
    certificate: ShownCertificate | None = None
    seat: Seat | None = None


def offer_caller(scope: MutableMapping[str, Any], caller: Caller) -> None:
    """Let the app see the client of a request, as its connection shows it."""
    scope[_CALLER] = caller


def caller_of(scope: Mapping[str, Any]) -> Caller:
    """The client of a request. If the connection has offered none, only its address is known."""
    found: Caller | None = scope.get(_CALLER)
    if found is not None:
        return found
    client = scope.get("client")
    return Caller(client[0] if client else "")


Credential: TypeAlias = bytes | ShownCertificate
"""The basis on which a request is allowed: the value of its header `Authorization`, or its connection's certificate."""


def credential_of(scope: Mapping[str, Any]) -> Credential | None:
    """The credential of a request: a token counts before a certificate. Raises `Unauthenticated` for several tokens."""
    authorization = authorization_of(scope["headers"])
    return caller_of(scope).certificate if authorization is None else authorization
