"""Sends an answer in one piece: its head with the beginning of its body."""

import asyncio
from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Any, cast

from starlette.types import Message, Receive, Scope, Send
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

from mq.http.chunks import offer_chunks
from mq.http.pieces import TOGETHER, Together
from mq.http.reply import WHOLE_BODY
from mq.http.sockets.wire import OPENS, offer_wire
from mq.process.connections.stream_chunks import StreamChunks
from mq.process.connections.web_socket import WebSocket

PLAIN_HEADERS = frozenset({b"content-type", b"date", b"x-request-id"})
"""Valid names, in lower case, of headers that say nothing about the connection or the length of the body."""
_STREAMS = "/subscribe"
_JOINED_BYTES = 16 * 1024
"""Up to this size a copy of the body takes less time than one more buffer to send."""


def plain_head(status: int, headers: Iterable[tuple[bytes, bytes]], size_bytes: int) -> bytes | None:
    """Return the head of an answer with a body of that size; None if a header is not plain, or has a bad value.

    uvicorn makes the same bytes from the same headers.
    """
    parts, values = [STATUS_LINE[status]], []
    for name, value in headers:
        if name not in PLAIN_HEADERS:
            return None
        values.append(value)
        parts += (name, b": ", value, b"\r\n")
    if HEADER_VALUE_RE.search(b"".join(values)):
        return None
    parts.append(b"content-length: %d\r\n\r\n" % size_bytes)
    return b"".join(parts)


class WholeAnswers:
    """How the endpoints of a connection send: an answer's head is written together with its body.

    uvicorn writes the two one after the other: two system calls, and two packets. An endpoint may give its answer as
    one message (`WHOLE_BODY`), which takes half of the time. Otherwise the head is held only if its body follows at
    once: if its length is known and not 0. If none follows, the endpoint has failed, and the connection is closed. For
    these the object is the transport, as the request sees it.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._cycle: RequestResponseCycle | None = None
        self._head: bytes | None = None
        self._socket: WebSocket | None = None
        self.close, self.is_closing = transport.close, transport.is_closing

    def around(
        self, app: ASGI3Application, cycle: RequestResponseCycle, socket: WebSocket | None = None
    ) -> ASGI3Application:
        """Return the app to call for this request: its messages come here first.

        The connection becomes the `socket` if the app opens it.
        """
        inner: Any = app
        self._socket = socket

        def serve(scope: Scope, receive: Receive, _: Send) -> Awaitable[None]:
            extensions = scope.setdefault("extensions", {})
            extensions[WHOLE_BODY] = extensions[TOGETHER] = {}
            if scope["path"].endswith(_STREAMS):
                offer_chunks(scope, StreamChunks(self._transport, cycle))
            if socket is not None:
                offer_wire(scope, socket)
            served: Awaitable[None] = inner(scope, receive, partial(self._send, cycle))
            return served

        around: Any = serve
        return cast("ASGI3Application", around)

    def _send(self, cycle: RequestResponseCycle, message: Message) -> Awaitable[None]:
        event: Any = message
        if self._socket is not None and (OPENS in message or self._socket.is_opened):
            return self._send_frames(cycle, self._socket, message)
        if message["type"] == "http.response.start":
            if WHOLE_BODY in message:
                return self._send_whole(cycle, message)
            self.begin(cycle)
        return cycle.send(event)

    async def _send_frames(self, cycle: RequestResponseCycle, socket: WebSocket, message: Message) -> None:
        """Answer by making the connection a WebSocket. The answer ends when that is closed."""
        if message["type"] == "http.response.start":
            cycle.response_started = True
            socket.open([*cycle.default_headers, *message["headers"]])
        else:
            cycle.response_complete = True

    async def _send_whole(self, cycle: RequestResponseCycle, message: Message) -> None:
        """As uvicorn's `send` of two messages: the start of an answer, and its body."""
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        body = message[WHOLE_BODY]
        head = None
        if cycle.keep_alive and not cycle.response_started and cycle.scope["method"] != "HEAD":
            head = plain_head(message["status"], [*cycle.default_headers, *message["headers"]], len(body))
        if head is None:
            await self._send_in_two(cycle, message["status"], message["headers"], body)
            return
        cycle.waiting_for_100_continue = False
        cycle.response_started = cycle.response_complete = True
        if len(body) <= _JOINED_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))
        cycle.message_event.set()
        cycle.on_response()

    async def _send_in_two(
        self, cycle: RequestResponseCycle, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes
    ) -> None:
        self.begin(cycle)
        length = (b"content-length", b"%d" % len(body))
        await cycle.send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        await cycle.send({"type": "http.response.body", "body": body})

    def begin(self, cycle: RequestResponseCycle) -> None:
        """Begin the answer of this request, which comes in several messages."""
        self._cycle, self._head = cycle, None
        cycle.transport = cast("asyncio.Transport", self)

    def write(self, data: bytes | Together) -> None:
        """Write a part of an answer."""
        if self._head is not None:
            head, self._head, self._cycle = self._head, None, None
            self._transport.writelines((head, *data.parts) if isinstance(data, Together) else (head, data))
        elif isinstance(data, Together):
            self._transport.writelines(data.parts)
        elif (cycle := self._cycle) is not None and cycle.response_started:
            if cycle.chunked_encoding is False and cycle.scope["method"] != "HEAD":
                self._head = data
            else:
                self._cycle = None
                self._transport.write(data)
        else:
            self._transport.write(data)
