"""The broker's listening socket, which is bound before anything else starts, and its addresses."""

import os
import socket
import ssl
from dataclasses import dataclass

from filer.errors import BraidError
from mq.base.exposure import EVERYWHERE

UNSENT_BYTES = 128 * 1024
"""How much of an answer the system takes ahead of the client. By default it takes mebibytes, which are not counted, for
each client that does not read. This does not bound bytes on their way to a client that does."""


class CannotListen(BraidError):
    """The broker cannot listen on the address."""


@dataclass(frozen=True, slots=True)
class Listening:
    """A bound socket, and its TLS, if any."""

    sock: socket.socket
    tls: ssl.SSLContext | None = None

    @property
    def local_url(self) -> str:
        """A URL at which this machine reaches it."""
        return local_url(self.sock, self._scheme)

    @property
    def advertised_url(self) -> str:
        """A URL at which other machines reach it, as far as this machine knows."""
        return advertised_url(self.sock, self._scheme)

    @property
    def _scheme(self) -> str:
        return "http" if self.tls is None else "https"


def bind(host: str, port: int, flags: str = "--host and --port") -> socket.socket:
    """Return a TCP socket bound to the address. It does not listen yet, so connections are refused until then.

    Port 0 takes a free port. Raises `CannotListen`, which names the flags.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host!r}: {error.strerror}") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit it.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        sock.bind(address)
    except OSError as error:
        sock.close()
        cause = os.strerror(error.errno) if error.errno else str(error)
        raise CannotListen(
            f"cannot listen on {host}:{port}: {cause.lower()}; choose another with {flags} (port 0 takes a free one)"
        ) from error
    sock.setblocking(False)
    return sock


def local_url(sock: socket.socket, scheme: str = "http") -> str:
    """Return a URL at which this machine reaches the socket."""
    host, port = sock.getsockname()[:2]
    if host in EVERYWHERE:
        host = "127.0.0.1" if sock.family == socket.AF_INET else "::1"
    return _url(scheme, host, port)


def advertised_url(sock: socket.socket, scheme: str = "http") -> str:
    """Return a URL at which other machines reach the socket, as far as this machine knows."""
    host, port = sock.getsockname()[:2]
    return _url(scheme, socket.gethostname() if host in EVERYWHERE else host, port)


def _url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
