"""A connection that serves publishes of one message itself, and gives every other request to the ASGI app."""

import asyncio
from functools import partial
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from mq.bodies.arriving_body import LEAST_BYTES
from mq.http.fast_path.fast_publisher import FastPublisher
from mq.http.fast_path.head import Head, read_head
from mq.http.reply import Reply
from mq.process.connections.fast_answer import fast_answer
from mq.process.connections.protocol import LimitedProtocol
from mq.process.connections.watch import ConnectionWatch


def served_protocol(watch: ConnectionWatch, fast: FastPublisher | None) -> "type[asyncio.Protocol]":
    """Return the protocol for the connections that this watch looks after, in the form of uvicorn's configuration."""
    made = partial(LimitedProtocol, watch=watch) if fast is None else partial(FastProtocol, watch=watch, fast=fast)
    return cast("type[asyncio.Protocol]", made)


class _NobodyWaits(asyncio.Event):
    """For a request that no endpoint reads."""

    def set(self) -> None:
        return


class _FastCycle(RequestResponseCycle):
    """A request that the connection serves itself, as far as `LimitedProtocol` and uvicorn look at it."""

    message_event = _NobodyWaits()
    body: Any = b""
    waiting_for_100_continue = more_body = False
    chunked_encoding = False

    def __init__(self, scope: Any) -> None:
        self.scope = scope
        self.response_started = self.response_complete = self.disconnected = False
        self.keep_alive = True


class FastProtocol(LimitedProtocol):
    """One connection. A publish is served here if nothing comes before or behind it, and its body comes at once.

    That is: together with the end of its head, or in one piece behind it, as many clients send it. A partial body is
    never held here: the base class gets its bytes, and goes on with it, so that the app counts it. The same holds if a
    publish cannot begin at once.
    """

    def __init__(self, *args: Any, fast: FastPublisher, **named: Any) -> None:
        super().__init__(*args, **named)
        self._fast = fast
        # For the request that is being parsed, if it may be served here. Then it is `cycle`.
        self._head: Head | None = None
        self._body, self._is_whole = b"", False
        # Whether the parser is in the state of a new one: nothing that it has seen matters to the next request.
        self._parser_is_new = True

    def data_received(self, data: bytes) -> None:
        """Serve what has arrived without the parser, if it is a publish with a known head; else parse it."""
        if not (self._parser_is_new and not self._in_message and not self._ended and self._serve_known(data)):
            super().data_received(data)

    def _serve_known(self, data: bytes) -> bool:
        """Begin to serve a request that has come as a whole, if its head is known. Else it changes nothing."""
        before = self.cycle
        if (before is not None and not before.response_complete) or self.flow.write_paused:
            return False
        found = self._fast.heads.find(data)
        if found is None:
            return False
        head, head_bytes = found
        if head_bytes > self._head_limit_bytes or self._connections.head_complete(self, is_broker=False) is not None:
            # The base class meets the same fault, and refuses it.
            return False
        cycle = self.cycle = _FastCycle({"method": "POST", "path": head.path})
        if not self._fast.begin(head, data[head_bytes:], self.caller, partial(self._answer, cycle)):
            self.cycle = before
            return False
        self._served = cycle
        self.received_bytes += len(data)
        return True

    def _begin_request(self) -> None:
        self._head = self._understood()
        if self._head is None:
            super()._begin_request()
            return
        scope: Any = self.scope
        scope["method"], scope["path"] = "POST", self._head.path
        self.cycle = _FastCycle(scope)

    def _understood(self) -> Head | None:
        cycle, parser = self.cycle, self.parser
        if (
            self._fed_bytes >= LEAST_BYTES
            or (cycle is not None and not cycle.response_complete)
            or self.flow.write_paused
            or parser.get_method() != b"POST"
            or not parser.should_keep_alive()
            or parser.should_upgrade()
            or parser.get_http_version() != "1.1"
        ):
            return None
        head = read_head(self.url, self.headers)
        return head if head is not None and head.size_bytes < LEAST_BYTES else None

    def _parse(self, data: bytes) -> None:
        is_first_piece = not self._in_message
        super()._parse(data)
        if self._head is None:
            return
        if self._is_whole:
            if self._serve(self._head):
                if is_first_piece:
                    self._fast.heads.note(data, self._head)
                self._head, self._body = None, b""
                self._parser_is_new = True
                self._message_is_complete()
            else:
                self._give_to_app()
        elif self._body or not self._fast.admits(self._head, self.caller):
            self._give_to_app()

    def _give_to_app(self) -> None:
        """Give the request to the app, with the bytes so far. Nothing of it has been done."""
        ours, body = self.cycle, self._body
        self._head, self._body = None, b""
        # Else the base class would make the request wait for this one.
        ours.response_complete = True
        super()._begin_request()
        self.cycle.keep_alive = self.cycle.keep_alive and ours.keep_alive
        if body:
            super().on_body(body)
        if self._is_whole:
            super().on_message_complete()

    def on_message_begin(self) -> None:
        """Begin a request. If it comes in the same piece as the one before it, the app serves both."""
        if self._head is not None:
            self._give_to_app()
        self._is_whole = self._parser_is_new = False
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        if self._head is None:
            super().on_body(body)
        else:
            self._body += body

    def on_message_complete(self) -> None:
        """Note that the request is complete."""
        if self._head is None:
            super().on_message_complete()
        else:
            self._is_whole = True

    def _serve(self, head: Head) -> bool:
        """Begin to serve the request, if that is possible."""
        cycle = cast("_FastCycle", self.cycle)
        if not self._fast.begin(head, self._body, self.caller, partial(self._answer, cycle)):
            return False
        self._served = cycle
        return True

    def _answer(self, cycle: _FastCycle, reply: Reply, request_id: str) -> None:
        """Write the answer, unless the client is gone."""
        if cycle.disconnected:
            return
        cycle.response_started = cycle.response_complete = True
        self.transport.write(
            fast_answer(self.server_state.default_headers, reply, request_id, keep_alive=cycle.keep_alive)
        )
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()
