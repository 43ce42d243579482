"""Asks the kernel for sockets by their exact addresses (`man 7 sock_diag`), which needs no rights."""

import socket
import struct

from mq.machine_users.sides import End, Side, user_of

_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ERROR = 4, 20, 1, 2
_HEADER = struct.Struct("=IHHII")
# Family, protocol, extensions, padding, states; then the socket: ports, addresses, interface, and no cookie.
_QUESTION = struct.Struct("=BBBxI 2s2s16s16sI8s")
_ANSWER = struct.Struct("=BBxx 48x 12x II")
_SIZE_BYTES = _HEADER.size + _QUESTION.size
_ALL_STATES, _NO_COOKIE = 0xFFFFFFFF, b"\xff" * 8
_ROOM_BYTES = 8192
_LAST_NUMBER = 0xFFFFFFFF


class SocketDiag:
    """One socket to the kernel, which answers during the call: nothing is waited for.

    Raises `OSError` if there are no such sockets.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG)
        self._socket.setblocking(False)
        self._number = 0

    def close(self) -> None:
        """Stop asking."""
        self._socket.close()

    def user(self, client: End, server: End) -> int | None:
        """Return the user at the client's end of a connection; None if that is not proved."""
        first = self._number = self._number % (_LAST_NUMBER - 8) + 4
        questions = ((client, server), (server, client), (client, server))
        try:
            # The kernel takes the questions of one message one after the other.
            self._socket.send(b"".join(_question(first + n, *each) for n, each in enumerate(questions)))
            return user_of(*(self._answer(first + n) for n in range(len(questions))))
        except OSError:
            return None

    def _answer(self, number: int) -> Side | None:
        while True:
            data, (sender, _) = self._socket.recvfrom(_ROOM_BYTES)
            # Only the kernel's own answers, and none that an earlier question has left behind.
            if sender == 0 and len(data) >= _HEADER.size:
                _, kind, _, answered, _ = _HEADER.unpack_from(data)
                if answered == number:
                    break
        if kind != _BY_FAMILY or len(data) < _HEADER.size + _ANSWER.size:
            return None  # there is no such socket
        _, state, user, inode = _ANSWER.unpack_from(data, _HEADER.size)
        return Side(state, user, inode)


def _question(number: int, own: End, other: End) -> bytes:
    family = socket.AF_INET if len(own.host) == 4 else socket.AF_INET6
    ports = own.port.to_bytes(2, "big"), other.port.to_bytes(2, "big")
    hosts = own.host.ljust(16, b"\0"), other.host.ljust(16, b"\0")
    return _HEADER.pack(_SIZE_BYTES, _BY_FAMILY, _REQUEST, number, 0) + _QUESTION.pack(
        family, socket.IPPROTO_TCP, 0, _ALL_STATES, *ports, *hosts, 0, _NO_COOKIE
    )
