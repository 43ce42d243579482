"""An answer leaves in one piece: its head with the begin of its body."""

import asyncio
from typing import cast

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class WholeAnswers:
    """The transport, as the requests of a connection see it: an answer's head is written together with its body.

    uvicorn writes the two one after the other: two calls of the system, and two packets. The head is held only where
    its body follows at once: where its length is known, and it has one. If none follows, the endpoint has failed, and
    the connection is closed.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._cycle: RequestResponseCycle | None = None
        self._head: bytes | None = None
        self.close, self.is_closing = transport.close, transport.is_closing

    def begin(self, cycle: RequestResponseCycle) -> None:
        """The next answer is that of this request."""
        self._cycle, self._head = cycle, None
        cycle.transport = cast("asyncio.Transport", self)

    def write(self, data: bytes) -> None:
        """Write a part of an answer."""
        if self._head is not None:
            head, self._head, self._cycle = self._head, None, None
            self._transport.writelines((head, data))
        elif (cycle := self._cycle) is not None and cycle.response_started:
            if cycle.chunked_encoding is False and cycle.scope["method"] != "HEAD":
                self._head = data
            else:
                self._cycle = None
                self._transport.write(data)
        else:
            self._transport.write(data)
