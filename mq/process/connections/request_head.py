"""The frame of a request by its head: where its body ends, and whether that is beyond doubt.

Any proxy between a client and a broker reads it too. A head that two readers may understand differently is refused: one
of them would take a part of a body for the next request.
"""

import re
from collections.abc import Sequence
from typing import Protocol

from mq.bodies.arriving_body import LEAST_BYTES
from mq.process.connections.refusals import HOST, NO_PROXY, TRANSFER_ENCODING, VERSION, Refusal

Headers = Sequence[tuple[bytes, bytes]]
"""Names, in lower case, and values."""
_VERSIONS = ("1.1", "1.0")
_MOST_DIGITS = 18
_END_OF_AUTHORITY = re.compile(rb"[/?#]")


class Parsed(Protocol):
    """A parser that has come to the end of a request's headers."""

    def get_http_version(self) -> str:
        """`1.1`."""
        ...

    def get_method(self) -> bytes:
        """In capital letters."""
        ...


def faulty_frame(parsed: Parsed, headers: Headers) -> Refusal | None:
    """Return why a request is refused for its frame, if it is (RFC 9112 §3.2 and §6.1).

    The parser has refused headers of lengths that contradict one another.
    """
    hosts, version = 0, parsed.get_http_version()
    if version not in _VERSIONS:
        return VERSION
    if parsed.get_method() == b"CONNECT":
        # What follows its headers is neither a request nor a body. So the connection ends with it.
        return NO_PROXY
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding" and (value.strip().lower() != b"chunked" or version == "1.0"):
            return TRANSFER_ENCODING
    return None if hosts == 1 or (not hosts and version == "1.0") else HOST


def take_authority(target: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """Put the authority of a target in absolute form (`http://localhost:8080/livez`) in the place of `Host`.

    A server must ignore the header then (RFC 9112 §3.2.2). So every check of the host checks that of the target.
    """
    _, is_absolute, rest = target.partition(b"://")
    if is_absolute and not target.startswith(b"/"):
        headers[:] = [each for each in headers if each[0] != b"host"]
        headers.append((b"host", _END_OF_AUTHORITY.split(rest, 1)[0]))


def has_body(headers: Headers) -> bool:
    """Whether a body follows the headers, which are not faulty."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b" \t0") != b"")
        for name, value in headers
    )


def head_without_upgrade(parsed: Parsed, target: bytes, headers: Headers) -> bytes:
    """Return the head of that request, as if its client had asked for no other protocol."""
    kept = (b"%b: %b\r\n" % each for each in headers if each[0] != b"upgrade")
    version = parsed.get_http_version().encode()
    return b"%b %b HTTP/%b\r\n%b\r\n" % (parsed.get_method(), target, version, b"".join(kept))


def plain_body_bytes(headers: Sequence[tuple[bytes, bytes]]) -> int:
    """Return the length of a large body that needs no parser, since one header has its length; else 0.

    The parser has refused headers that contradict one another. It also gets everything else that is unusual.
    """
    size_bytes = 0
    for name, value in headers:
        if name == b"transfer-encoding":
            return 0
        if name == b"content-length":
            if size_bytes or not value.isdigit() or len(value) > _MOST_DIGITS:
                return 0
            size_bytes = int(value)
    return size_bytes if size_bytes >= LEAST_BYTES else 0
