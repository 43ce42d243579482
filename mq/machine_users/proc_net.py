"""Looks for sockets in `/proc/net/tcp` and `tcp6`, which list them all, if the kernel cannot be asked for one."""

import struct
from pathlib import Path

from mq.machine_users.sides import End, Side, user_of

_FOLDER = Path("/proc/net")
_MAPPED = bytes(10) + b"\xff\xff"
_STATE, _USER, _INODE = 0, 4, 6


class ProcNet:
    """The lists of this machine's sockets. Raises `OSError` if there are none."""

    def __init__(self, folder: Path = _FOLDER) -> None:
        self._files = [file for file in (folder / "tcp", folder / "tcp6") if file.exists()]
        if not self._files:
            raise FileNotFoundError(f"there is no {folder / 'tcp'}")

    def close(self) -> None:
        """Do nothing: nothing is held open."""

    def user(self, client: End, server: End) -> int | None:
        """Return the user at the client's end of a connection; None if that is not proved."""
        try:
            before, after = self._read(), self._read()
        except OSError:
            return None
        return user_of(_find(before, client, server), _find(before, server, client), _find(after, client, server))

    def _read(self) -> bytes:
        return b"".join(file.read_bytes() for file in self._files)


def _find(sockets: bytes, own: End, other: End) -> Side | None:
    for to_form in (_plain, _mapped):
        # The addresses of a line stand between blanks, so no other line has these bytes.
        addresses = f" {_text(to_form(own))} {_text(to_form(other))} ".encode()
        begin = sockets.find(addresses)
        if begin >= 0:
            end = sockets.find(b"\n", begin)
            words = sockets[begin + len(addresses) : end if end >= 0 else None].split()
            return Side(int(words[_STATE], 16), int(words[_USER]), int(words[_INODE]))
    return None


def _plain(end: End) -> End:
    return end


def _mapped(end: End) -> End:
    """Return how the lists show a socket of IPv6 that is used with IPv4."""
    return end if len(end.host) == 16 else End(_MAPPED + end.host, end.port)


def _text(end: End) -> str:
    words = struct.unpack(f"={len(end.host) // 4}I", end.host)
    return "".join(f"{word:08X}" for word in words) + f":{end.port:04X}"
