"""Writes to the connection of an endless answer, without a copy of data that many clients get."""

from collections.abc import Sequence
from typing import Protocol

from starlette.types import Scope

from mq.forms.render import Part

_EXTENSION = "braidmq.chunks"
_JOINED_BYTES = 16 * 1024
"""Up to this size a copy takes less time than sending more buffers."""


class Chunks(Protocol):
    """The connection of an answer that has begun. Writes must be chunks of HTTP/1.1 (RFC 9112 §7.1)."""

    sent_bytes: int
    """The bytes of the body written so far, without the framing of its chunks."""

    @property
    def takes_more(self) -> bool:
        """Whether the answer goes on, and the client has taken most of it."""
        ...

    def write(self, pieces: Sequence[Part], size_bytes: int) -> None:
        """Write chunks that have so many bytes of the body. They are kept unchanged until the client takes them."""
        ...

    async def drained(self) -> None:
        """Return when the client has taken most of the data, or is gone."""
        ...


def offer_chunks(scope: Scope, chunks: Chunks) -> None:
    """Let the endpoint of that request find the connection."""
    scope.setdefault("extensions", {})[_EXTENSION] = chunks


def chunks_of(scope: Scope) -> Chunks | None:
    """The connection for the answer of a request, if its server offers one."""
    extensions = scope.get("extensions")
    return None if extensions is None else extensions.get(_EXTENSION)


def withdraw_chunks(scope: Scope) -> None:
    """Let the endpoint of that request send its answer message by message."""
    scope.get("extensions", {}).pop(_EXTENSION, None)


def framed(body: Part) -> tuple[Part, ...]:
    """A chunk in pieces, without a copy of its body unless that is short."""
    pieces = b"%x\r\n" % len(body), body, b"\r\n"
    return pieces if len(body) > _JOINED_BYTES else (b"".join(pieces),)
