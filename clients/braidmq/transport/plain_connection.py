"""A kept connection to one broker, used by one thread at a time, without a library.

It understands only plain answers of HTTP/1.1: whole, of a stated length. For all else, and for every failure, it raises
`NotPlain`, and is of no use any more: the caller repeats the request by the client's transport, which handles all.
"""

import contextlib
import re
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies

_ANSWER = re.compile(rb"HTTP/1\.1 200 [^\r\n]*\r\n((?:[!-9;-~]+:[\t -~]*\r\n)*)\r\n")
_LENGTH = re.compile(rb"^content-length: ?([0-9]{1,9})\r$", re.IGNORECASE | re.MULTILINE)
_REFUSED = re.compile(rb"^(?:transfer-encoding|content-encoding|connection):", re.IGNORECASE | re.MULTILINE)
_MOST_BYTES = 64 * 1024
_SIGNAL_SECONDS = 0.5
_NOT_PLAIN = frozenset(
    {
        "host",
        "connection",
        "content-length",
        "content-type",
        "content-encoding",
        "transfer-encoding",
        "expect",
        "upgrade",
    }
)


class NotPlain(Exception):
    """The request may have arrived, or may not: there is no plain answer."""


class PlainAnswer(NamedTuple):
    """A whole answer: the lines of its headers, each with its end, and its body."""

    headers: bytes
    body: bytes | bytearray

    def header(self, name: bytes) -> str:
        """The value of a header. Raises `NotPlain` unless it is there once."""
        found = re.findall(rb"^%b: ?([!-~]+)\r$" % re.escape(name), self.headers, re.IGNORECASE | re.MULTILINE)
        if len(found) != 1:
            raise NotPlain(f"the answer has {len(found)} headers {name.decode()}")
        return str(found[0], "ascii")


class PlainConnection:
    """A connection to `host:port`. Each wait for it takes `timeout_seconds` at most."""

    def __init__(self, host: str, port: int, *, timeout_seconds: float) -> None:
        try:
            self._socket = socket.create_connection((host, port), timeout_seconds)
        except OSError as error:
            raise NotPlain(str(error)) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        authority = f"[{host}]" if ":" in host else host
        self._host = f"{authority}:{port}".encode("ascii")

    def post(self, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
        """The body of the answer, which is short. Raises `NotPlain`."""
        head = self._head(b"POST", target, headers)
        return bytes(self._asked(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body), _MOST_BYTES).body)

    def get(self, target: str, headers: Mapping[str, str], *, held_back_seconds: float, most_bytes: int) -> PlainAnswer:
        """The answer, which the broker may hold back for so long. Raises `NotPlain`, also if it has more bytes."""
        return self._asked(self._head(b"GET", target, headers) + b"\r\n", most_bytes, held_back_seconds)

    def _head(self, method: bytes, target: str, headers: Mapping[str, str]) -> bytes:
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        return b"%b %b HTTP/1.1\r\nhost: %b\r\n%b" % (method, target.encode("ascii"), self._host, lines.encode("ascii"))

    def _asked(self, request: bytes, most_bytes: int, held_back_seconds: float = 0.0) -> PlainAnswer:
        try:
            self._socket.sendall(request)
            return self._answer(self._first(held_back_seconds) if held_back_seconds else self._some(), most_bytes)
        except OSError as error:
            raise NotPlain(str(error)) from error

    def _first(self, held_back_seconds: float) -> bytes:
        """The first bytes of an answer. A signal that comes just before a wait does not end it, so waits are short."""
        waited_seconds, timeout_seconds = 0.0, self._socket.gettimeout()
        self._socket.settimeout(_SIGNAL_SECONDS)
        try:
            while waited_seconds < held_back_seconds:
                with contextlib.suppress(TimeoutError):
                    return self._some()
                waited_seconds += _SIGNAL_SECONDS
        finally:
            self._socket.settimeout(timeout_seconds)
        return self._some()

    def _answer(self, data: bytes, most_bytes: int) -> PlainAnswer:
        while (end := data.find(b"\r\n\r\n")) < 0:
            if len(data) > _MOST_BYTES:
                raise NotPlain("the head of the answer is long")
            data += self._some()
        match = _ANSWER.fullmatch(data, 0, end + 4)
        length = None if match is None or _REFUSED.search(match[1]) else _LENGTH.findall(match[1])
        if match is None or length is None or len(length) != 1:
            raise NotPlain("the answer is not a plain one")
        size_bytes, begun = int(length[0]), data[end + 4 :]
        if size_bytes > most_bytes:
            raise NotPlain("the answer is long")
        if len(begun) > size_bytes:
            raise NotPlain("there is more than one answer")
        return PlainAnswer(match[1], begun if len(begun) == size_bytes else self._rest(begun, size_bytes))

    def _some(self) -> bytes:
        data = self._socket.recv(_MOST_BYTES)
        if not data:
            raise NotPlain("the connection was closed")
        return data

    def _rest(self, begun: bytes, size_bytes: int) -> bytearray:
        """A body whose beginning is there."""
        body, come = bytearray(size_bytes), len(begun)
        body[:come] = begun
        with memoryview(body) as whole:
            while come < size_bytes:
                count = self._socket.recv_into(whole[come:])
                if not count:
                    raise NotPlain("the connection was closed within the answer")
                come += count
        return body

    def shut_down(self) -> None:
        """Wake callers that wait for an answer. Any thread may call it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        self._socket.close()


def plain_endpoint(url: str) -> tuple[str, int] | None:
    """Host and port of a broker's address, if it is reached without TLS and without a proxy."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.path not in ("", "/") or "@" in parts.netloc or getproxies():
        return None
    host = parts.hostname or ""
    return (host, parts.port or 80) if host.isascii() else None


def are_plain(names: Sequence[str]) -> bool:
    """Whether none of these headers has a meaning for the connection or for the form of the request."""
    return not any(name.lower() in _NOT_PLAIN for name in names)
