"""The callers that a broker serves for where they are: users of its own machine."""

import ipaddress
import os
from functools import lru_cache

from mq.base.errors import Forbidden
from mq.base.settings import BrokerSettings
from mq.security.caller import Caller
from mq.security.grants import EVERYTHING, Action
from mq.security.own_names import LOCAL_USER
from mq.security.principal import TRUSTED, Principal

_ROOT = 0
_WAYS = (
    "give this user a token (docs/security.md), or start the broker with --authorizer loopback, which serves every "
    "user of the machine"
)


class LocalCallers:
    """With `--authorizer user`: the user that runs the broker, and root, which could take the broker's place anyway.

    With `--authorizer loopback`, and if the system does not name users (`tells_users`): all users of the machine.
    """

    def __init__(self, settings: BrokerSettings, *, tells_users: bool) -> None:
        by_user = settings.authorizer == "user" and tells_users
        self._users = (
            {user: Principal(f"{LOCAL_USER}{user}", EVERYTHING) for user in (_ROOT, os.geteuid())} if by_user else None
        )

    def serves(self, caller: Caller) -> bool:
        """Whether the caller may do everything."""
        return _is_this_machine(caller.address) and (self._users is None or caller.user in self._users)

    def principal(self, caller: Caller, action: Action) -> Principal:
        """The principal of the caller. Raises `Forbidden` if the broker does not serve it."""
        if not _is_this_machine(caller.address):
            raise Forbidden(f"this broker does not allow {action} requests from this address")
        if self._users is None:
            return TRUSTED
        if caller.user is None:
            # Not served, though it may be the right user: a client that closes before the kernel is asked could be any
            # user.
            raise Forbidden(
                "this broker serves the user who runs it, and the system does not tell whose this connection is: it "
                f"is half closed, or comes from another namespace; {_WAYS}"
            )
        if caller.user not in self._users:
            raise Forbidden(
                f"this broker serves the user who runs it, and root, but not the user with the number {caller.user}: "
                f"{_WAYS}"
            )
        return self._users[caller.user]


def name_of_user(caller: Caller) -> str:
    """The name of a user of this machine, served or not; empty if the system does not name it."""
    return "" if caller.user is None else f"{LOCAL_USER}{caller.user}"


def _is_this_machine(address: str) -> bool:
    """Whether that is a loopback address.

    A connection without an address is not from this machine: a client that resets it before the broker looks has no
    address any more, and may have been anywhere.
    """
    return address != "" and _is_loopback(address)


@lru_cache(maxsize=1024)
def _is_loopback(address: str) -> bool:
    ip = ipaddress.ip_address(address)
    # An IPv6 socket that takes IPv4 connections shows their addresses like this.
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback
