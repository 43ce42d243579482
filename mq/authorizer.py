"""Who may do what: every request passes an authorizer that is handed in."""

import ipaddress
import re
from functools import lru_cache
from typing import Literal, Protocol

_PUBLISHES = re.compile(r"/v1/topics/[^/]+/(?:messages|uploads(?:/[^/]+)?|loads(?:/.+)?)\Z")
Action = Literal["publish", "read", "manage", "observe"]


class Authorizer(Protocol):
    """Decides on each request."""

    def allows(self, principal: str, action: Action, resource: str) -> bool:
        """Whether `principal` (the peer's address, until requests are signed) may do that to a path."""
        ...


class AllowLoopback:
    """The default: whoever is on this machine may do everything, nobody else anything."""

    def allows(self, principal: str, action: Action, resource: str) -> bool:
        """True for loopback addresses and Unix sockets (no address)."""
        return principal == "" or _is_loopback(principal)


class AllowAny:
    """Everybody may do everything: for networks that are guarded otherwise."""

    def allows(self, principal: str, action: Action, resource: str) -> bool:
        """Always."""
        return True


@lru_cache(maxsize=1024)
def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


@lru_cache(maxsize=4096)
def action_of(method: str, path: str) -> Action:
    """What a request is about."""
    is_safe = method in ("GET", "HEAD")
    if not path.startswith("/v1/topics"):
        return "observe" if is_safe else "manage"
    if is_safe:
        return "read"
    return "publish" if _PUBLISHES.match(path) else "manage"
