"""What a connection tells of who is at its other end, before it has sent any request."""

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
        """One of them has ended, or is another principal's now."""
        ...


class Seat:
    """Where a connection counts: among those of the principal that has used it last, and may have so many only."""

    __slots__ = ("among",)

    def __init__(self) -> None:
        self.among: Seats | None = None

    def leave(self) -> None:
        """It counts nowhere any more."""
        if self.among is not None:
            self.among.gone()
            self.among = None


class Caller(NamedTuple):
    """The address of the client, and the user of this machine who has made the connection, if the kernel tells.

    `certificate` is what the client has shown by TLS, if that has a name. The `seat` is the connection's.
    """

    address: str
    user: int | None = None
    certificate: ShownCertificate | None = None
    seat: Seat | None = None


def offer_caller(scope: MutableMapping[str, Any], caller: Caller) -> None:
    """Let the app see who the client of a request is by its connection."""
    scope[_CALLER] = caller


def caller_of(scope: Mapping[str, Any]) -> Caller:
    """Who the client of a request is. Where no connection has told, its address is all that is known."""
    found: Caller | None = scope.get(_CALLER)
    if found is not None:
        return found
    client = scope.get("client")
    return Caller(client[0] if client else "")


Credential: TypeAlias = bytes | ShownCertificate
"""What a request is allowed for: the value of its header `Authorization`, or the certificate of its connection."""


def credential_of(scope: Mapping[str, Any]) -> Credential | None:
    """The credential of a request: a token counts before a certificate. Raises `Unauthenticated` for several tokens."""
    authorization = authorization_of(scope["headers"])
    return caller_of(scope).certificate if authorization is None else authorization
