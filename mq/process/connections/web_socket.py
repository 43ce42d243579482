"""A connection that has become a WebSocket: frames of bytes on one side, whole messages on the other.

The frames are read by the library `websockets`, which does no I/O, but for small ones that are a whole text each
(`small_frames`). What is here bounds what a client can make it hold. No extension is offered, so that nothing is
compressed: a small frame is a small message.
"""

import asyncio
import logging
import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from starlette.types import Scope
from websockets.datastructures import Headers
from websockets.exceptions import InvalidState, InvalidUpgrade, PayloadTooBig
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from filer import request_ids
from mq.forms.render import Part
from mq.http.problems import Problem
from mq.http.sockets.wire import POLICY_VIOLATION, SUBPROTOCOL, TRY_AGAIN, Message
from mq.process.connections.limits import LEAST_CHUNK_BYTES, MOST_SMALL_CHUNKS
from mq.process.connections.refusals import ANSWER_LATE, BODY_LATE, CROWDED, FRAMING, Refusal
from mq.process.connections.small_frames import FIRST_BYTES, first_of_message, id_at_begin, other_frames, small_texts

SOCKETS = b"/socket"
"""The ends of paths at which a connection may become a WebSocket."""
PIECE_BYTES = 8 * 1024
"""The library parses so much at once: some milliseconds of the smallest frames."""
BURST_SECONDS = 1.0
"""Pings that are further apart are no flood."""
_JOINED_BYTES = 16 * 1024
_SHORT, _MEDIUM = 126, 65_536
_FIN = 0x80

_log = logging.getLogger("mq.websockets")
# It logs each connection that is closed.
_log.setLevel(logging.WARNING)


class Owner(Protocol):
    """The connection."""

    transport: asyncio.Transport
    flow: Any

    def pause(self) -> None:
        """Read nothing for now."""
        ...

    def read_on(self) -> None:
        """Read again."""
        ...

    def half_message(self, size_bytes: int) -> None:
        """Count so much of a message; 0 if no message is half."""
        ...

    def held_back(self, size_bytes: int) -> None:
        """Count so much that is looked at later."""
        ...

    def refuse(self, refusal: Refusal) -> None:
        """End the connection for that reason."""
        ...

    def linger(self) -> None:
        """Close the connection once the client has had a moment to read the last bytes."""
        ...


class WebSocket:
    """The WebSocket of one connection, which passes its bytes to `received`. The rest is a session's `Wire`."""

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self._owner, self._loop = owner, loop
        self._conn: ServerProtocol | None = None
        self._answer: Headers
        self.is_opened = False
        self._is_gone = False
        # Why the library takes no more, which message that was, and its last words.
        self._broken: Exception | None = None
        self._broken_id: bytes | None = None
        self._last_bytes = b""
        # The bytes are parsed up to there.
        self._came, self._parsed = b"", 0
        self._inbox: list[Message] = []
        # The present bytes of a message that comes in fragments.
        self._fragments = bytearray()
        self._is_text = False
        # For the library's present frame, if there is one: the bytes it has, and those to come.
        self._half_bytes = self._left_bytes = 0
        # For bytes that came in one go without a complete message: frames, and their bytes.
        self._small_frames = self._small_bytes = 0
        self._request_id: str | None = None
        self._news: asyncio.Future[None] | None = None
        self.heard_seconds = 0.0

    # -- opening -----------------------------------------------------------------------------------------------------

    def why_not(self, scope: Scope, frame_bytes: int) -> tuple[int, str] | None:
        """Return why that request cannot open it: status and words of the answer. Takes messages up to a size."""
        # Open in the library's view: it does not see the request on the wire.
        conn = ServerProtocol(
            subprotocols=[Subprotocol(SUBPROTOCOL)], state=State.OPEN, max_size=frame_bytes, logger=_log
        )
        headers = Headers([(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]])
        answer = conn.accept(Request(scope["path"], headers))
        if answer.status_code != 101:
            error = conn.handshake_exc
            return 426 if isinstance(error, InvalidUpgrade) else 400, str(error)
        if conn.subprotocol is None:
            return 400, f"the client has to speak {SUBPROTOCOL}: send 'Sec-WebSocket-Protocol: {SUBPROTOCOL}'"
        self._conn, self._answer = conn, answer.headers
        return None

    def open(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Answer the request: frames follow from here on. Writes nothing to a client that is gone."""
        assert self._conn is not None
        self.is_opened = True
        if self._is_gone or self._owner.transport.is_closing():
            return
        self.heard_seconds = self._loop.time()
        self._request_id = request_ids.current()
        del self._answer["Date"]
        lines = [(name.lower().encode(), value.encode("latin-1")) for name, value in self._answer.raw_items()]
        head = b"".join(b"%b: %b\r\n" % line for line in [*headers, *lines])
        self._owner.transport.write(b"HTTP/1.1 101 Switching Protocols\r\n" + head + b"\r\n")
        self._parse()

    # -- what comes --------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the client gets what is written."""
        if not self.is_opened or self._is_gone or self._conn is None:
            return False
        return self._conn.state is State.OPEN or self.is_broken

    @property
    def is_broken(self) -> bool:
        """Whether the client has broken the protocol: nothing more is taken, and `close` sends the reason.

        Until then, earlier requests are answered.
        """
        return self._broken is not None

    def received(self, data: bytes) -> None:
        """Take bytes. Those behind the end are ignored."""
        if (self.is_opened and not self.is_open) or self.is_broken:
            return
        now_seconds = self._loop.time()
        if now_seconds - self.heard_seconds > BURST_SECONDS:
            self._small_frames = self._small_bytes = 0
        self.heard_seconds = now_seconds
        self._came, self._parsed = self._came[self._parsed :] + data, 0
        if self._inbox or not self.is_opened:
            self._hold_back()
        else:
            self._parse()

    def take(self) -> Sequence[Message]:
        """Return the next messages, in order. The caller takes no more before it is done with these."""
        if not self._inbox:
            self._parse()
        taken, self._inbox = self._inbox, []
        return taken

    def go_on(self) -> None:
        """Go on: the client has taken most of what was written. It may wait to send more, or have sent only pings."""
        self._parse()

    @property
    def _unparsed_bytes(self) -> int:
        return len(self._came) - self._parsed

    def _forget_what_came(self) -> None:
        """Hold nothing of a half message: it counts no more, and the connection may stay for a while."""
        self._came, self._parsed = b"", 0
        self._fragments = bytearray()
        if self._conn is not None:
            # The library refers to itself, so it stays until a garbage collection: with its read bytes, and its last
            # frame.
            self._conn.reader.discard()
            self._conn.parser.close()

    def _hold_back(self) -> None:
        self._owner.held_back(self._unparsed_bytes)

    def _parse(self) -> None:
        """Parse a piece of the bytes. If there are more, or the client does not read, the rest waits."""
        if not self.is_open or self.is_broken:
            return
        if self._inbox or self._owner.flow.write_paused:
            self._hold_back()
            return
        if not self._unparsed_bytes:
            self._owner.read_on()
            return
        begin = self._parsed
        is_cut = self._parse_piece()
        if self._conn is not None and self._conn.parser_exc is not None:
            self._break(self._conn.parser_exc, begin)
            return
        if is_cut or not self._unparsed_bytes:
            # The rest of the bytes is not held.
            self._came, self._parsed = self._came[self._parsed :], 0
        if self._framing_is_too_small():
            self._owner.refuse(FRAMING)
            return
        self._look_at_half(self._unparsed_bytes if is_cut else 0)
        self._reply()
        if self._inbox or not self.is_open:
            self.wake()
        if not self.is_open:
            return
        if self._unparsed_bytes and not is_cut:
            self._hold_back()
            if not self._inbox:
                self._loop.call_soon(self._parse)
        elif not self._inbox:
            self._owner.read_on()

    def _break(self, error: Exception, begin: int) -> None:
        """Note that the library takes no more. It has closed its side, but nothing of that is written yet."""
        conn = self._conn
        assert conn is not None
        if isinstance(error, PayloadTooBig):
            first = self._fragments or first_of_message(self._came, begin, conn.max_message_size or 0)
            self._broken_id = id_at_begin(bytes(first[:FIRST_BYTES]))
        self._broken = error
        self._last_bytes = b"".join(conn.data_to_send())
        self._forget_what_came()
        self._look_at_half(0)
        self._owner.pause()
        self.wake()

    def _parse_piece(self) -> bool:
        """Add the next messages. Returns whether only a part of a frame is left."""
        conn = self._conn
        assert conn is not None
        if not self._left_bytes and conn.current_size is None:
            texts = small_texts(self._came, self._parsed, conn.max_message_size or 0)
            self._inbox += [Message(True, text) for text in texts.found]
            self._parsed = texts.end
            if texts.found or texts.is_cut:
                return texts.is_cut
        piece_end = self._end_of_piece()
        if piece_end == self._parsed:
            return True
        piece, self._parsed = self._came[self._parsed : piece_end], piece_end
        conn.receive_data(piece)
        for event in conn.events_received():
            assert isinstance(event, Frame)
            self._add(event)
        return False

    def _end_of_piece(self) -> int:
        """Return up to where the library gets bytes: the rest of its present frame, or the next ones."""
        if self._left_bytes:
            size_bytes = min(self._left_bytes, self._unparsed_bytes, PIECE_BYTES)
            self._left_bytes -= size_bytes
            self._half_bytes = self._half_bytes + size_bytes if self._left_bytes else 0
            return self._parsed + size_bytes
        end, self._half_bytes, self._left_bytes = other_frames(self._came, self._parsed, PIECE_BYTES)
        return end

    def _framing_is_too_small(self) -> bool:
        """Whether tiny fragments, pings and pongs come without end. Each takes as long as some hundred bytes."""
        if self._inbox:
            self._small_frames = self._small_bytes = 0
        return self._small_frames > MOST_SMALL_CHUNKS and self._small_bytes < LEAST_CHUNK_BYTES * self._small_frames

    def _add(self, frame: Frame) -> None:
        """Add a frame to the messages. The library has checked that their order is allowed."""
        self._small_frames += 1
        self._small_bytes += len(frame.data) if frame.opcode is Opcode.CONT else 0
        if frame.opcode is Opcode.TEXT or frame.opcode is Opcode.BINARY:
            self._is_text = frame.opcode is Opcode.TEXT
            if frame.fin:
                self._inbox.append(Message(self._is_text, bytes(frame.data)))
                return
        elif frame.opcode is not Opcode.CONT:
            return
        self._fragments += frame.data
        if frame.fin:
            self._inbox.append(Message(self._is_text, bytes(self._fragments)))
            self._fragments = bytearray()

    def _look_at_half(self, cut_bytes: int) -> None:
        conn = self._conn
        assert conn is not None
        half_bytes = cut_bytes + self._half_bytes + len(self._fragments) + (conn.current_size is not None)
        self._owner.half_message(half_bytes if self.is_open and not self.is_broken else 0)

    def _reply(self) -> None:
        """Write what the library has to send: pongs, and the end."""
        conn = self._conn
        assert conn is not None
        replies = b"".join(conn.data_to_send())
        if replies and not self._owner.transport.is_closing():
            self._owner.transport.write(replies)
        if conn.state is not State.OPEN:
            self._forget_what_came()
            self._owner.linger()

    # -- what is written ---------------------------------------------------------------------------------------------

    @property
    def is_held_up(self) -> bool:
        """Whether the client takes what is written more slowly than it comes."""
        return bool(self._owner.flow.write_paused) and self.is_open

    async def drained(self) -> None:
        """Return when the client has taken most of what was written, or is gone."""
        if self.is_held_up:
            await self._owner.flow.drain()

    def write(self, parts: Sequence[Part], *, is_text: bool = True) -> None:
        """Write a message. It is kept unchanged until the client takes it."""
        if self.is_open and not self._owner.transport.is_closing():
            self._write(parts, is_text=is_text)

    def _write(self, parts: Sequence[Part], *, is_text: bool = True) -> None:
        size_bytes = sum(map(len, parts))
        whole = [_head(Opcode.TEXT if is_text else Opcode.BINARY, size_bytes), *parts]
        if size_bytes <= _JOINED_BYTES:
            self._owner.transport.write(b"".join(whole))
        else:
            self._owner.transport.writelines(whole)

    def _write_problem(self, problem: Problem, id_: bytes | None = None) -> None:
        """Write the last message before the end. The library has closed its side already, and would take none.

        `id_` is the JSON of the id of the message concerned.
        """
        if not self._owner.transport.is_closing():
            with request_ids.within(self._request_id):
                named = b"" if id_ is None else b'"id":%b,' % id_
                self._write([b"{", named, b'"problem":', problem.body(), b"}"])

    def ping(self) -> None:
        """Ask whether the client is there."""
        if self.is_open and not self.is_broken and not self._owner.transport.is_closing():
            assert self._conn is not None
            self._conn.send_ping(b"")
            self._owner.transport.writelines(self._conn.data_to_send())

    def close(self, code: int, reason: str) -> None:
        """Close it, behind all that was written. If the client has broken the protocol, that is the reason."""
        if not self.is_open:
            return
        assert self._conn is not None
        if self._broken is not None:
            self._close_broken(self._broken)
            return
        try:
            self._conn.send_close(code, reason)
        except InvalidState:
            return
        self._reply()
        self.wake()

    def _close_broken(self, error: Exception) -> None:
        assert self._conn is not None
        self._write_problem(_problem_of(error, self._conn.max_message_size or 0), self._broken_id)
        self._broken = None
        if not self._owner.transport.is_closing():
            self._owner.transport.write(self._last_bytes)
        self._owner.linger()
        self.wake()

    # -- the end -----------------------------------------------------------------------------------------------------

    def end(self, refusal: Refusal) -> None:
        """End the connection: send the client the reason, if it reads."""
        assert self._conn is not None
        if self._broken is not None:
            self._close_broken(self._broken)
            return
        pongs = b"".join(self._conn.data_to_send())
        if pongs and not self._owner.transport.is_closing():
            self._owner.transport.write(pongs)
        if refusal is not ANSWER_LATE and (problem := _OF_SOCKETS.get(refusal.reason, refusal.problem)) is not None:
            self._write_problem(problem)
        self._conn.send_close(TRY_AGAIN if refusal is CROWDED else POLICY_VIOLATION, refusal.reason)
        self._owner.transport.writelines(self._conn.data_to_send())
        self._forget_what_came()
        self.wake()

    def is_gone(self) -> None:
        """Note that nothing comes any more, and nothing that is written arrives."""
        self._is_gone = True
        self._forget_what_came()
        self.wake()

    async def news(self) -> None:
        """Return when there may be messages, or the socket is closed, or it is woken."""
        if self._inbox or not self.is_open or self.is_broken:
            return
        self._news = self._loop.create_future()
        try:
            await self._news
        finally:
            self._news = None

    def wake(self) -> None:
        """Make `news` return."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


def _head(opcode: Opcode, size_bytes: int) -> bytes:
    """Return the head of a frame that is a whole message. The library would copy what follows."""
    if size_bytes < _SHORT:
        return struct.pack("!BB", _FIN | opcode, size_bytes)
    if size_bytes < _MEDIUM:
        return struct.pack("!BBH", _FIN | opcode, 126, size_bytes)
    return struct.pack("!BBQ", _FIN | opcode, 127, size_bytes)


_TITLE = "The request cannot be parsed"
_FRAMING = "fragments of messages are too small, or pings too many: send fragments of some kilobytes"
_LATE = "the rest of a message stalled, or came too slowly; nothing of it was done"
_CROWDED = "messages that have come in part take all the room for such; nothing of this one was done"
_OF_SOCKETS = {
    each.reason: replace(each.problem, detail=detail)
    for each, detail in ((BODY_LATE, _LATE), (CROWDED, _CROWDED), (FRAMING, _FRAMING))
    if each.problem is not None
}


def _problem_of(error: Exception, most_bytes: int) -> Problem:
    """Return why the library has ended the connection."""
    if isinstance(error, PayloadTooBig):
        detail = f"a message is larger than {most_bytes} bytes: send several, or publish it over HTTP"
        return Problem("body-too-large", "The body is too large", 413, detail, extras={"limit_bytes": most_bytes})
    return Problem("invalid-request", _TITLE, 400, f"this breaks the WebSocket protocol (RFC 6455): {error}")
