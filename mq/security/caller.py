"""What a connection tells of who is at its other end, before it has sent any request."""

from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple

_CALLER = "braidmq.caller"
"""The key in a request's scope."""


class Caller(NamedTuple):
    """The address of the client, and the user of this machine who has made the connection, if the kernel tells."""

    address: str
    user: int | None = None


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
