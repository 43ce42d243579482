"""The kernel is asked whose connections are, in both ways, of IPv4 and IPv6."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from filer.errors import InvalidConfig
from mq.machine_users.kernel_users import Address, KernelUsers, Way, open_kernel_users, unnamed_users
from mq.machine_users.proc_net import ProcNet
from mq.machine_users.sides import End
from mq.machine_users.socket_diag import SocketDiag

WAYS = pytest.mark.parametrize("way", [SocketDiag, ProcNet])
# Where a client connects to, and the family of its socket and of the one that listens at an address.
FORMS = [
    pytest.param(socket.AF_INET, "127.0.0.1", socket.AF_INET, "127.0.0.1", id="IPv4"),
    pytest.param(socket.AF_INET6, "::1", socket.AF_INET6, "::1", id="IPv6"),
    pytest.param(socket.AF_INET6, "::", socket.AF_INET, "127.0.0.1", id="IPv4 at a socket for both"),
    pytest.param(socket.AF_INET, "127.0.0.1", socket.AF_INET6, "::ffff:127.0.0.1", id="IPv4 by a socket of IPv6"),
]


@contextlib.contextmanager
def asked(way: Callable[[], Way]) -> Iterator[KernelUsers]:
    users = open_kernel_users([way])
    try:
        yield users
    finally:
        users.close()


def ends(ours: socket.socket) -> tuple[Address, Address]:
    return ours.getpeername()[:2], ours.getsockname()[:2]


@pytest.mark.parametrize(("listening", "at", "family", "to"), FORMS)
@WAYS
def test_a_connection_is_its_users_until_it_is_closed(
    way: Callable[[], Way], listening: int, at: str, family: int, to: str
) -> None:
    with asked(way) as users, socket.socket(listening) as door, socket.socket(family) as client:
        if listening == socket.AF_INET6:
            door.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        door.bind((at, 0))
        door.listen()
        client.connect((to, door.getsockname()[1]))
        ours, _ = door.accept()
        with ours:
            assert users.user(*ends(ours)) == os.geteuid()
            client.shutdown(socket.SHUT_WR)
            assert users.user(*ends(ours)) == os.geteuid()
            there = ends(ours)
            client.close()
            # Else anybody could pass for root, by closing at once.
            assert users.user(*there) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start a process of another user")
@WAYS
def test_another_users_connection_is_not_ours(way: Callable[[], Way]) -> None:
    with asked(way) as users, socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        url = f"http://127.0.0.1:{door.getsockname()[1]}/"
        with subprocess.Popen(["curl", "--silent", "--max-time", "60", url], user=4321) as other:
            ours, _ = door.accept()
            with ours:
                assert users.user(*ends(ours)) == 4321
            other.kill()


@WAYS
def test_who_is_not_on_this_machine_is_nobody(way: Callable[[], Way]) -> None:
    with asked(way) as users:
        assert users.user(("192.0.2.7", 5000), ("192.0.2.1", 8080)) is None
        assert users.user(("127.0.0.1", 1), ("127.0.0.1", 2)) is None
        assert users.user(None, None) is None
        assert users.user(("/run/x.sock", 0), ("/run/x.sock", 0)) is None


class Wrong:
    """A kernel that takes everybody for this user."""

    def user(self, client: End, server: End) -> int:
        return 4321

    def close(self) -> None:
        return


def missing() -> Way:
    raise PermissionError(1, "Operation not permitted")


def test_the_next_way_is_taken_where_one_is_closed_or_does_not_know_us() -> None:
    users = open_kernel_users([missing, Wrong, ProcNet])
    with socket.socket() as door, socket.socket() as client:
        door.bind(("127.0.0.1", 0))
        door.listen()
        client.connect(door.getsockname())
        with door.accept()[0] as ours:
            assert users.user(*ends(ours)) == os.geteuid()


def test_nobody_is_served_by_a_guess(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidConfig, match=r"does not tell whose .*not permitted; it does not know.*--authorizer loop"
    ):
        open_kernel_users([missing, Wrong])
    with pytest.raises(InvalidConfig, match="there is no"):
        open_kernel_users([lambda: ProcNet(tmp_path)])


def test_who_has_no_number_here_is_nobody(tmp_path: Path) -> None:
    everybody, container, overflow = tmp_path / "all", tmp_path / "some", tmp_path / "overflow"
    everybody.write_text("         0          0 4294967295\n")
    container.write_text("         0     100000      65536\n")
    overflow.write_text("65534\n")
    assert unnamed_users(everybody, overflow) == frozenset()
    assert unnamed_users(container, overflow) == {65534}
    assert unnamed_users(tmp_path / "nothing", overflow) == {65534}
    way = Wrong()
    assert KernelUsers(way, frozenset({4321})).user(("127.0.0.1", 1), ("127.0.0.1", 2)) is None
    assert KernelUsers(way, frozenset()).user(("127.0.0.1", 1), ("127.0.0.1", 2)) == 4321
