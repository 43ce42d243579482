"""uvicorn's HTTP protocol with limits on what a client can make a connection hold, and for how long."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import httptools
from starlette.types import Scope
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from mq.bodies.arriving_body import LEAST_BYTES, ArrivingBody
from mq.http.reply import BrokenOff
from mq.peers.calls import PREFIX
from mq.process.connections.known_caller import KnownCallerProtocol
from mq.process.connections.limits import (
    FRAMING_SHARE,
    LEAST_CHUNK_BYTES,
    LONGEST_PATH_BYTES,
    LONGEST_URI_BYTES,
    MOST_AHEAD,
    MOST_HEADERS,
    MOST_SMALL_CHUNKS,
)
from mq.process.connections.refusals import (
    CERTIFICATE_EXPIRED,
    FRAMING,
    HEAD_TOO_LARGE,
    NOT_A_URL,
    NOT_HTTP,
    TOO_FAR_AHEAD,
    TOO_MANY_HEADERS,
    URI_TOO_LONG,
    Refusal,
)
from mq.process.connections.request_head import (
    faulty_frame,
    has_body,
    head_without_upgrade,
    plain_body_bytes,
    take_authority,
)
from mq.process.connections.socket_reader import SocketReader
from mq.process.connections.watch import ConnectionWatch
from mq.process.connections.web_socket import SOCKETS, WebSocket
from mq.process.connections.whole_answers import WholeAnswers
from mq.security.caller import ShownCertificate
from mq.tls.peer_certificate import PeerCertificate, offer_certificate, peer_certificate

_INTERNAL = PREFIX.encode("ascii")
_END_OF_HEAD = b"\r\n\r\n"


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line of uvicorn says something that is not in the log already."""
    return not (record.exc_info and isinstance(record.exc_info[1], BrokenOff))


# uvicorn's logger for the requests of connections, which logs every error that an app raises.
_uvicorn_log = logging.getLogger("uvicorn.error.requests")
_uvicorn_log.addFilter(_is_news)


def _new_parser(protocol: KnownCallerProtocol) -> httptools.HttpRequestParser:
    """Return a parser as the base class makes it."""
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


_CERTIFICATE_GRACE_SECONDS, _LONGEST_TIMER_SECONDS = 1.0, 3600.0
"""After the end of a client's certificate: requests that it allows end with an answer before the connection does."""


class _Refused(Exception):
    """Stops the parser."""


class _Flow(FlowControl):
    """uvicorn's flow control, which reports when the endpoint reads on."""

    def __init__(self, transport: asyncio.Transport, on_resume: Callable[[], None]) -> None:
        super().__init__(transport)
        self._on_resume = on_resume

    def resume_reading(self) -> None:
        """Read on, if reading was paused."""
        if self.read_paused:
            self._on_resume()
            super().resume_reading()


class LimitedProtocol(KnownCallerProtocol):
    """One connection. It reports to the watch what it waits for, and ends when the watch says so.

    uvicorn's own limit is a time for idle connections after their first request. The parser has none: without these,
    it collects headers for as long as they come.
    """

    def __init__(self, *args: Any, watch: ConnectionWatch, **named: Any) -> None:
        super().__init__(*args, users=watch.users, **named)
        self.logger = _uvicorn_log
        self.received_bytes = 0
        self._watch = watch
        self._connections = watch.connections
        self._head_limit_bytes = watch.connections.limits.head_bytes
        self._fed_bytes = self._head_bytes = 0
        self._in_head = self._in_message = self._body_is_late = False
        # For the arriving body: its bytes, its chunks, and the bytes of the framing around them.
        self._body_bytes = self._chunks = self._framing_bytes = 0
        self._refusal: Refusal | None = None
        # The body that is arriving, if the parser is not needed for it.
        self._arriving: ArrivingBody | None = None
        # The request that is being answered. `cycle` is the newest one, which may have to wait for it.
        self._served: RequestResponseCycle | None = None
        self._ended = False
        # The client's identity by TLS, if it had to show a certificate.
        self.client_certificate: PeerCertificate | None = None
        self._certificate_timer: asyncio.TimerHandle | None = None
        # What the connection has become, or will become if the endpoint agrees.
        self._socket: WebSocket | None = None
        # Whether the request with complete headers asks for a socket, or for another protocol in vain.
        self._asks_for_socket = self._upgrades_in_vain = False

    @property
    def may_send(self) -> bool:
        """Whether the broker reads what the client sends, and has asked for it if the client waits to be asked."""
        return not self.flow.read_paused and not self.cycle.waiting_for_100_continue

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the client has not taken yet."""
        size: int = self.transport.get_write_buffer_size()
        return size

    def end(self, refusal: Refusal) -> None:
        """End the connection, and send the client the reason, unless an answer is under way.

        A request with an incomplete body has accepted nothing yet. An answer that the client does not take belongs to a
        request that was carried out; it is lost as with any broken connection.
        """
        if self._ended:
            self._close()
            return
        self._ended = True
        self._watch.half_heads.gone(self)
        if self._socket is not None and self._socket.is_open:
            self._socket.end(refusal)
            self._tell_endpoint()
            self.linger()
            return
        cycle = self._served
        quiet = self.pipeline or (
            cycle is not None and not cycle.response_complete and (cycle.response_started or self._in_head)
        )
        self._tell_endpoint()
        answer = b"" if quiet or self.transport.is_closing() else refusal.answer(self._watch.new_request_id())
        if not answer:
            self._close()
            return
        self.transport.write(answer)
        if not self._in_message:
            self._close()
            return
        self.linger()

    def linger(self) -> None:
        """Close the connection once the client has had a moment to read the last bytes.

        The client may be sending still. Closed at once, its machine would drop the answer that it has not read yet.
        """
        self._ended = True
        if self.transport.is_closing() or not self.transport.can_write_eof():
            self._close()
            return
        self.transport.write_eof()
        self.flow.resume_reading()
        self._connections.linger(self)

    def _tell_endpoint(self) -> None:
        """Make the endpoint find its client gone, and send nothing. The base class does that for the newest request."""
        self._give_up_body()
        if self._socket is not None:
            self._socket.is_gone()
        if self._served is not None and not self._served.response_complete:
            self._served.disconnected = True
            self._served.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._served = cycle
        super()._start_asgi_task(cycle, self._answers.around(app, cycle, self._new_socket(cycle)))

    def _new_socket(self, cycle: RequestResponseCycle) -> WebSocket | None:
        """Return the socket that the connection becomes if the request asks for it, and the endpoint agrees."""
        if not self._asks_for_socket:
            return None
        self._asks_for_socket = False
        # Only frames can follow. If the endpoint does not agree, nothing can.
        cycle.keep_alive = False
        self._socket = WebSocket(self, self.loop)
        return self._socket

    def refuse(self, refusal: Refusal) -> None:
        """End the connection for that reason, and count it."""
        self._watch.end(self, refusal)

    def half_message(self, size_bytes: int) -> None:
        """Count so much of a message of a WebSocket; 0 if no message is half."""
        if size_bytes:
            self._body_is_half()
            self._watch.carry_out(self._connections.half_message(self, size_bytes))
        elif self._body_is_late:
            self._body_is_late = False
            self._connections.body_complete(self)

    def held_back(self, size_bytes: int) -> None:
        """Count so many bytes of a WebSocket that are looked at when the endpoint has done what came before."""
        self.pause()
        self._watch.carry_out(self._connections.unread(self, size_bytes))

    def _close(self) -> None:
        self._connections.gone(self)
        if self.unsent_bytes:
            self.transport.abort()
        else:
            self.transport.close()

    def connection_made(self, transport: Any) -> None:
        """Count the connection, or end it."""
        super().connection_made(transport)
        self._watch.on_connect()
        self.flow = _Flow(transport, partial(self._connections.read_on, self))
        self._answers = WholeAnswers(transport)
        shown = self.client_certificate = peer_certificate(transport.get_extra_info("peercert"))
        if shown is not None and shown.name is not None:
            self.caller = self.caller._replace(certificate=ShownCertificate(shown.name, shown.until_seconds))
        if shown is not None:
            self._look_at_certificate(shown)
        transport.set_protocol(SocketReader(self, self._watch.scratch))
        self._watch.carry_out(self._connections.admit(self, self.caller.address))
        if self._watch.ending:
            self.shutdown()

    def _look_at_certificate(self, shown: PeerCertificate) -> None:
        """End the connection soon after its certificate ends, once the request under way has its answer."""
        left_seconds = self._watch.left_seconds(shown.until_seconds) + _CERTIFICATE_GRACE_SECONDS
        served = self._served
        if left_seconds <= 0 and (served is None or served.response_complete or served.response_started):
            self._watch.end(self, CERTIFICATE_EXPIRED)
            return
        # Clocks are set, and an event loop counts no suspended time.
        delay_seconds = min(max(left_seconds, _CERTIFICATE_GRACE_SECONDS), _LONGEST_TIMER_SECONDS)
        self._certificate_timer = self.loop.call_later(delay_seconds, self._look_at_certificate, shown)

    def pause(self) -> None:
        """Read nothing for now."""
        self.flow.pause_reading()

    def read_on(self) -> None:
        """Read again, unless the connection is being closed."""
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._ended = True
        if self._certificate_timer is not None:
            self._certificate_timer.cancel()
        self._watch.unwanted.gone(self)
        self._watch.half_heads.gone(self)
        self._connections.gone(self)
        self._tell_endpoint()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, and then count what is incomplete."""
        if self._ended:
            # Bytes behind a refusal are ignored.
            if not self.transport.is_closing():
                self._watch.unwanted.came(self)
            return
        if self._arriving is not None:
            self._drop_body(data, self._arriving)
            return
        if self._socket is not None:
            self.received_bytes += len(data)
            self._socket.received(data)
            return
        self._fed_bytes = len(data)
        self.received_bytes += self._fed_bytes
        starts_here = not self._in_message
        cycle = self.cycle if self._in_message and not self._in_head else None
        body_bytes = self._body_bytes
        try:
            self._parse(data)
        except httptools.HttpParserUpgrade as upgrade:
            assert self._socket is not None
            self._socket.received(data[upgrade.args[0] :])
            return
        except httptools.HttpParserInvalidURLError:
            self._watch.end(self, self._refusal or NOT_A_URL)
            return
        except httptools.HttpParserError:
            self._watch.end(self, self._refusal or NOT_HTTP)
            return
        if self._in_head:
            self._look_at_half_head(starts_here)
        elif self._in_message:
            if self._arriving is None and self._plain_body_bytes():
                self._pass_parser_by(memoryview(b""))
            if self._framing_is_too_large(cycle, self._body_bytes - body_bytes):
                self._watch.end(self, FRAMING)
                return
            self._body_is_half()
        self._look_at_rate()
        if self._in_head and not self._ended and not self.flow.read_paused:
            self._watch.half_heads.came(self)

    def _parse(self, data: bytes) -> None:
        """Feed the parser, which calls the methods below."""
        if self._fed_bytes < LEAST_BYTES:
            self._feed(data)
        else:
            self._parse_large(data)

    def _feed(self, data: bytes | memoryview) -> None:
        """Feed the parser. An upgrade that is not ours is ignored (RFC 9110 §7.8), and what follows is the body.

        The parser takes every upgrade for granted: it skips the body, and stops behind the headers. So another one gets
        the same headers without the upgrade, and then what follows them.
        """
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if not self._upgrades_in_vain:
                    raise
                data = data[upgrade.args[0] :]
            self._upgrades_in_vain = False
            head = head_without_upgrade(self.parser, self.url, self.headers)
            self.parser = _new_parser(self)
            self.parser.feed_data(head)

    def _parse_large(self, data: bytes) -> None:
        """Feed the parser. From a large body of a known length it gets only the bytes that came with its headers.

        If the headers come in one piece with a part of the body, that part goes past the parser too. Otherwise the
        parser gets bytes that it does not need; it counts them as well as we do.
        """
        rest = memoryview(b"")
        if not self._in_body:
            # In the middle of headers this may find the end of a line of the body. The parser looks for itself.
            head_bytes = data.find(_END_OF_HEAD) + len(_END_OF_HEAD)
            data, rest = data[:head_bytes], memoryview(data)[head_bytes:]
        self._feed(data)
        if rest and len(rest) >= self._plain_body_bytes() - self._body_bytes:
            self._feed(rest)
        elif rest:
            self._pass_parser_by(rest)

    def _plain_body_bytes(self) -> int:
        """Return the length of the arriving body, if no parser is needed for it; else 0."""
        parser = self.parser
        # Nothing behind the last request of a connection is a request. Its parser knows, and a new one would not.
        if not self._in_body or not parser.should_keep_alive():
            return 0
        return plain_body_bytes(self.headers)

    def _pass_parser_by(self, piece: memoryview) -> None:
        """Read the rest of the body, which begins with `piece` and does not end with it, to its own place.

        The endpoint has not begun: its task runs when the event loop goes on. So it finds all of the body there.
        """
        body = ArrivingBody(plain_body_bytes(self.headers))
        body.add(memoryview(self.cycle.body), piece)
        self._arriving = body
        self._body_bytes += len(piece)
        body.offer_to(cast("Scope", self.cycle.scope))
        self._hand_on(body)

    @property
    def is_between_requests(self) -> bool:
        """Whether nothing of the next request has come."""
        return not self._in_message and self._socket is None

    @property
    def direct_body(self) -> ArrivingBody | None:
        """Return the body of the next bytes, if they need no parser and an endpoint may want them."""
        body = self._arriving
        return None if body is None or self._ended or self.cycle.response_complete else body

    def body_arrived(self, size_bytes: int) -> None:
        """Note so many bytes of that body. All limits hold as if the parser had given a piece of a body."""
        body = self._arriving
        assert body is not None
        self.received_bytes += size_bytes
        self._body_bytes += size_bytes
        self._hand_on(body)
        self._look_at_body(body)

    def _hand_on(self, body: ArrivingBody) -> None:
        """Pass what has come to the endpoint, as the base class does with bytes from the parser."""
        self.cycle.body = cast("bytearray", body)
        if len(body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        self.cycle.message_event.set()

    def _look_at_body(self, body: ArrivingBody) -> None:
        if body.left_bytes:
            self._body_is_half()
        else:
            self._end_body()
        self._look_at_rate()

    def _end_body(self) -> None:
        """End the body: the next byte begins a request. The old parser still waits for the body, so make a new one."""
        self._arriving = None
        self.parser = _new_parser(self)
        self.on_message_complete()

    def _drop_body(self, data: bytes, body: ArrivingBody) -> None:
        """Drop more bytes of an answered body; the next request may begin behind them."""
        size_bytes = min(len(data), body.left_bytes)
        self.received_bytes += size_bytes
        body.drop(size_bytes)
        self._look_at_body(body)
        if size_bytes < len(data):
            self.data_received(data[size_bytes:])

    def _give_up_body(self) -> None:
        """Hold nothing of a body that no endpoint reads any more, however long its rest takes to come."""
        if self._arriving is not None:
            self._arriving.drop(0)

    def _body_is_half(self) -> None:
        if not self._body_is_late:
            self._body_is_late = True
            self._connections.body_part(self)

    def _look_at_rate(self) -> None:
        if self.flow.read_paused:
            self._watch.carry_out(self._connections.unread(self, len(self.cycle.body)))
        elif self._in_message and not self._in_head and self.cycle.response_complete:
            self._watch.unwanted.came(self)

    def _look_at_half_head(self, starts_here: bool) -> None:
        if starts_here or self._head_bytes:
            self._head_bytes += self._fed_bytes
        else:
            self._head_bytes = 1  # it began behind the end of a body; the parser does not report how far
        if self._head_bytes > self._head_limit_bytes:
            self._watch.end(self, URI_TOO_LONG if self._uri_is_too_long() else HEAD_TOO_LARGE)
        elif self.cycle is None or self.cycle.response_complete:
            self._watch.carry_out(self._connections.head_part(self, self._head_bytes))

    @property
    def _in_body(self) -> bool:
        return self._in_message and not self._in_head

    def _framing_is_too_large(self, cycle: RequestResponseCycle | None, body_bytes: int) -> bool:
        """Whether extensions of chunks and trailers, which no endpoint sees, come without end.

        The parser puts a trailer together piece by piece, in a time that grows with the square of its length.
        """
        # If the body has begun in the bytes that just arrived, that is bounded, and not checked.
        if self.cycle is cycle:
            self._framing_bytes += self._fed_bytes - body_bytes
        return self._framing_bytes > self._head_limit_bytes + self._body_bytes // FRAMING_SHARE

    def _uri_is_too_long(self) -> bool:
        return len(self.url) > LONGEST_URI_BYTES or len(self.url.partition(b"?")[0]) > LONGEST_PATH_BYTES

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        if self.client_certificate is not None:
            offer_certificate(cast("Scope", self.scope), self.client_certificate)
        self._in_head = self._in_message = True
        self._head_bytes = self._body_bytes = self._chunks = self._framing_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header, of a bounded number."""
        if not self._in_head:
            return  # a trailer: the request was authorized, and is served, by what came before its body
        if len(self.headers) >= MOST_HEADERS:
            self._refuse(TOO_MANY_HEADERS)
        # As in the base class, but without one more call for each header of each request.
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Begin the request, unless it is refused."""
        if len(self.url) > LONGEST_PATH_BYTES and self._uri_is_too_long():
            self._refuse(URI_TOO_LONG)
        # Most headers arrive in one piece below the limit: then there is nothing to add up.
        if (
            self._fed_bytes + self._head_bytes > self._head_limit_bytes
            and self._parsed_bytes() > self._head_limit_bytes
        ):
            self._refuse(HEAD_TOO_LARGE)
        if len(self.pipeline) >= MOST_AHEAD:
            self._refuse(TOO_FAR_AHEAD)
        if (faulty := faulty_frame(self.parser, self.headers)) is not None:
            self._refuse(faulty)
        if not self.url.startswith(b"/"):
            take_authority(self.url, self.headers)
        if self.parser.should_upgrade():
            self._asks_for_socket = self._is_handshake()
            self._upgrades_in_vain = not self._asks_for_socket
            if self._upgrades_in_vain:
                return
        refusal = self._connections.head_complete(self, is_broker=self.url.startswith(_INTERNAL))
        if refusal is not None:
            self._refuse(refusal)
        self._in_head = False
        self._begin_request()

    def _is_handshake(self) -> bool:
        """Whether the request asks for a socket, with no unanswered request before it, and no body."""
        if self.cycle is not None and not self.cycle.response_complete:
            return False
        return (
            self.parser.get_method() == b"GET"
            and self.parser.get_http_version() == "1.1"
            and self._get_upgrade() == b"websocket"
            and self.url.partition(b"?")[0].endswith(SOCKETS)
            and not has_body(self.headers)
        )

    def _begin_request(self) -> None:
        """Make the ASGI app begin the request with complete headers, once those before it are answered."""
        super().on_headers_complete()

    def _parsed_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + len(b": \r\n") for name, value in self.headers)

    def _refuse(self, refusal: Refusal) -> None:
        self._refusal = refusal
        raise _Refused

    def on_chunk_header(self) -> None:
        """Begin a chunk. Each costs as much as some hundred bytes of a body."""
        self._chunks += 1
        if self._chunks > MOST_SMALL_CHUNKS and self._chunks * LEAST_CHUNK_BYTES > self._body_bytes:
            self._refuse(FRAMING)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is complete."""
        if self._upgrades_in_vain:
            return  # the parser knows of no body: another one reads it
        super().on_message_complete()
        self._message_is_complete()

    def _message_is_complete(self) -> None:
        self._in_message = False
        if self._body_is_late:
            self._body_is_late = False
            self._connections.body_complete(self)
        if self.cycle.response_complete:
            self._wait_for_request()

    def on_response_complete(self) -> None:
        """Note that the answer is complete. Begin the next request that has arrived, or wait for one."""
        self.server_state.total_requests += 1
        if self.cycle.response_complete:
            self._give_up_body()
        if self.transport.is_closing() or self._ended:
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif not self._in_message:
            self._wait_for_request()
        elif self._in_head:
            self._watch.carry_out(self._connections.head_part(self, self._head_bytes))

    def _wait_for_request(self) -> None:
        if not self.transport.is_closing():
            self._connections.idle(self)

    def pause_writing(self) -> None:
        """Note that the client takes its answer more slowly than it is made."""
        super().pause_writing()
        if self._served is not None:
            self._connections.answer_held_up(self)

    def resume_writing(self) -> None:
        """Note that the client has taken most of it."""
        super().resume_writing()
        self._connections.answer_goes_on(self)
        if self._socket is not None:
            self._socket.go_on()
