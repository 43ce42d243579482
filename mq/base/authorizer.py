"""Authorization: every request passes an authorizer."""

import ipaddress
import re
from functools import lru_cache
from typing import Literal, Protocol

_PUBLISHES = re.compile(r"/v1/topics/[^/]+/(?:messages|uploads(?:/[^/]+)?|loads(?:/.+)?)\Z")
_CONSUMES = re.compile(
    r"/v1/topics/[^/]+/groups/[^/]+/(?:claims|acks|releases|extensions|commits|members(?:/[^/]+(?:/heartbeats)?)?)\Z"
)
Action = Literal["publish", "read", "consume", "manage", "observe"]


class Authorizer(Protocol):
    """Decides whether a request is allowed."""

    def allows(self, principal: str, action: Action, resource: str) -> bool:
        """Whether `principal` may do that to a path. Until requests are signed, the principal is the peer's address."""
        ...


class AllowLoopback:
    """The default: clients on this machine may do everything, others nothing."""

    def allows(self, principal: str, action: Action, resource: str) -> bool:
        """True for loopback addresses, and for Unix sockets, which have no address."""
        return principal == "" or _is_loopback(principal)


class AllowAny:
    """Every client may do everything. For networks that are protected by other means."""

    def allows(self, principal: str, action: Action, resource: str) -> bool:
        """True."""
        return True


@lru_cache(maxsize=1024)
def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def action_of(method: str, path: str) -> Action:
    """The kind of action that a request asks for. No answer is kept: clients choose paths, as many as they like."""
    is_safe = method in ("GET", "HEAD")
    if not path.startswith("/v1/topics"):
        return "observe" if is_safe else "manage"
    if is_safe:
        return "read"
    if _CONSUMES.match(path):
        return "consume"
    return "publish" if _PUBLISHES.match(path) else "manage"
