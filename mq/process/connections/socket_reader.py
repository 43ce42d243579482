"""The event loop's view of a connection: it says where arriving bytes are put, and how many at most."""

import asyncio
from typing import Any, Protocol

from mq.bodies.arriving_body import ArrivingBody

FIRST_BYTES = 8 * 1024
"""At most so much is read at once of a possible new request. The event loop reads on at once if there is
more, except after a part of a head: all bytes of stalled requests take fresh memory."""


class Connection(Protocol):
    """A connection, in the form of `asyncio.Protocol`, and what it waits for."""

    @property
    def is_between_requests(self) -> bool:
        """Whether nothing of the next request has come."""
        ...

    @property
    def direct_body(self) -> ArrivingBody | None:
        """The body of the next bytes, if they need no parser and an endpoint may want them."""
        ...

    def body_arrived(self, size_bytes: int) -> None:
        """Note that so many bytes of it have come."""
        ...

    def data_received(self, data: bytes) -> None:
        """Take bytes for the parser."""
        ...

    def connection_made(self, transport: Any) -> None:
        """Note that it is connected."""
        ...

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that it is closed."""
        ...

    def eof_received(self) -> None:
        """Note that the client sends no more."""
        ...

    def pause_writing(self) -> None:
        """Note that the client does not take what is written."""
        ...

    def resume_writing(self) -> None:
        """Note that the client takes it again."""
        ...


class SocketReader(asyncio.BufferedProtocol):
    """Reads a large body to its own place. Everything else goes by way of `scratch` to the connection.

    All connections of an event loop may share it: a loop fills the buffer, and reports that, before it does anything
    else.
    """

    def __init__(self, connection: Connection, scratch: memoryview) -> None:
        self._connection, self._scratch, self._first = connection, scratch, scratch[:FIRST_BYTES]
        self._body: ArrivingBody | None = None

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        self._body = body = self._connection.direct_body
        if body is not None:
            return body.free_room()
        return self._first if self._connection.is_between_requests else self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Take so many bytes."""
        if self._body is None:
            self._connection.data_received(bytes(self._scratch[:nbytes]))
        else:
            self._body.arrived(nbytes)
            self._connection.body_arrived(nbytes)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As the connection does."""
        self._connection.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """As the connection does."""
        self._connection.connection_lost(exc)

    def eof_received(self) -> None:
        """As the connection does."""
        self._connection.eof_received()

    def pause_writing(self) -> None:
        """As the connection does."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """As the connection does."""
        self._connection.resume_writing()
