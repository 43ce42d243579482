"""Finds the user at the other end of a connection, in the way that this machine has."""

import ipaddress
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from filer.errors import InvalidConfig
from mq.base.settings import BrokerSettings
from mq.machine_users.proc_net import ProcNet
from mq.machine_users.sides import End
from mq.machine_users.socket_diag import SocketDiag

TELLS_USERS = sys.platform == "linux"
"""Whether the system can say so. Elsewhere every user of the machine counts as the one that runs the broker."""
Address: TypeAlias = tuple[str, int]
_ALL_USERS = 2**32 - 1
_USER_MAP, _OVERFLOW = Path("/proc/self/uid_map"), Path("/proc/sys/kernel/overflowuid")
_USUAL_OVERFLOW = 65534


class Way(Protocol):
    """A way to ask."""

    def user(self, client: End, server: End) -> int | None:
        """Return the user at the client's end; None if that is not proved."""
        ...

    def close(self) -> None:
        """Stop asking."""
        ...


class KernelUsers:
    """The users at the other ends of connections. Belongs to one event loop, and never makes it wait."""

    def __init__(self, way: Way, unnamed: frozenset[int]) -> None:
        self._way, self._unnamed = way, unnamed

    def user(self, client: Address | None, server: Address | None) -> int | None:
        """Return the user that made the client's socket; None if the kernel does not say, as for other machines."""
        if client is None or server is None:
            return None
        ends = _end(client), _end(server)
        if ends[0] is None or ends[1] is None:
            return None
        found = self._way.user(ends[0], ends[1])
        return None if found in self._unnamed else found

    def close(self) -> None:
        """Stop asking."""
        self._way.close()


def kernel_users_of(settings: BrokerSettings) -> KernelUsers | None:
    """Return what finds users, if the settings ask for it and the system can do it. Raises `InvalidConfig`."""
    return open_kernel_users() if settings.authorizer == "user" and TELLS_USERS else None


def open_kernel_users(ways: Sequence[Callable[[], Way]] = (SocketDiag, ProcNet)) -> KernelUsers:
    """Return the first of these ways that finds the user of this very process's connection. Raises `InvalidConfig`.

    No client is served by a guess: a broker that cannot distinguish its user from others does not start.
    """
    why = []
    for make in ways:
        try:
            way = make()
        except OSError as error:
            why.append(error.strerror or str(error))
            continue
        users = KernelUsers(way, unnamed_users())
        if _knows_us(users):
            return users
        users.close()
        why.append("it does not know this process")
    raise InvalidConfig(
        f"--authorizer user: this system does not tell whose a connection is ({'; '.join(why)}); give --authorizer "
        "loopback to serve every user of this machine, or --authorizer tokens"
    )


def unnamed_users(user_map: Path = _USER_MAP, overflow: Path = _OVERFLOW) -> frozenset[int]:
    """Return the user that the kernel shows for all users without a number in the broker's user namespace.

    Empty if all users have a number: then that one is of the user `nobody`, a real user.
    """
    try:
        counts = [int(line.split()[2]) for line in user_map.read_text().splitlines()]
        if sum(counts) >= _ALL_USERS:
            return frozenset()
        return frozenset({int(overflow.read_text())})
    except (OSError, ValueError, IndexError):
        return frozenset({_USUAL_OVERFLOW})


def _knows_us(users: KernelUsers) -> bool:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family) as door, socket.socket(family) as client:
                door.bind((host, 0))
                door.listen(1)
                client.connect(door.getsockname())
                with door.accept()[0] as ours:
                    return users.user(ours.getpeername()[:2], ours.getsockname()[:2]) == os.geteuid()
        except OSError:
            continue
    return False


def _end(address: Address) -> End | None:
    """Return the address as the kernel keeps it; None for one that is not of this machine alone.

    If a socket of IPv6 takes connections of IPv4, their addresses are those of IPv4 to the kernel, too.
    """
    try:
        ip = ipaddress.ip_address(address[0])
    except ValueError:
        return None
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return End(ip.packed, address[1]) if ip.is_loopback else None
