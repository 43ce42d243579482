"""A kept connection to one broker for small requests and answers, used by one thread at a time, without a library.

It understands only plain answers of HTTP/1.1: whole, of a stated length. For all else, and for every failure, it raises
`NotPlain`, and is of no use any more: whoever asked does so again by the client's transport, which knows everything.
"""

import re
import socket
from collections.abc import Mapping

_ANSWER = re.compile(rb"HTTP/1\.1 200 [^\r\n]*\r\n((?:[!-9;-~]+:[\t -~]*\r\n)*)\r\n")
_LENGTH = re.compile(rb"^content-length: ?([0-9]{1,9})\r$", re.IGNORECASE | re.MULTILINE)
_REFUSED = re.compile(rb"^(?:transfer-encoding|content-encoding|connection):", re.IGNORECASE | re.MULTILINE)
_MOST_BYTES = 64 * 1024


class NotPlain(Exception):
    """The request may have arrived, or may not: there is no plain answer."""


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
        """The body of the answer. Raises `NotPlain`."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        head = b"POST %b HTTP/1.1\r\nhost: %b\r\n%bcontent-length: %d\r\n\r\n" % (
            target.encode("ascii"),
            self._host,
            lines.encode("ascii"),
            len(body),
        )
        try:
            self._socket.sendall(head + body)
            return self._answer()
        except OSError as error:
            raise NotPlain(str(error)) from error

    def _answer(self) -> bytes:
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._more(len(data))
        match = _ANSWER.fullmatch(data, 0, end + 4)
        length = None if match is None or _REFUSED.search(match[1]) else _LENGTH.findall(match[1])
        if length is None or len(length) != 1:
            raise NotPlain("the answer is not a plain one")
        whole = end + 4 + int(length[0])
        while len(data) < whole:
            data += self._more(len(data))
        if len(data) > whole:
            raise NotPlain("there is more than one answer")
        return data[end + 4 :]

    def _more(self, known_bytes: int) -> bytes:
        data = self._socket.recv(_MOST_BYTES)
        if not data or known_bytes + len(data) > _MOST_BYTES:
            raise NotPlain("the connection was closed, or the answer is long")
        return data

    def close(self) -> None:
        """Close it."""
        self._socket.close()
