"""Whatever bytes a WebSocket gets, and wherever they are cut: what comes of them is what the library alone says."""

import asyncio
import struct
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from mq.http.sockets.wire import Message
from mq.process.connections.refusals import CROWDED, Refusal
from mq.process.connections.small_frames import MOST_TEXTS, SMALL_BYTES, other_frames, small_texts
from mq.process.connections.web_socket import WebSocket
from tests.support.broker.raw_socket import BINARY, CLOSE, CONTINUATION, PING, TEXT, frame
from tests.support.thoroughness import few_or_many

LONGEST_BYTES = 6_000
"""The longest message. It is longer than what is a small frame."""
HEADERS = [
    (b"host", b"x"),
    (b"connection", b"Upgrade"),
    (b"upgrade", b"websocket"),
    (b"sec-websocket-version", b"13"),
    (b"sec-websocket-key", b"AAAAAAAAAAAAAAAAAAAAAA=="),
    (b"sec-websocket-protocol", b"braidmq.v1"),
]


class _Transport:
    def __init__(self) -> None:
        self.written = bytearray()

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, parts: Sequence[bytes]) -> None:
        self.write(b"".join(parts))

    def is_closing(self) -> bool:
        return False


class _Flow:
    write_paused = False


@dataclass
class _Owner:
    """A connection that notes what it is told."""

    transport: Any = field(default_factory=_Transport)
    flow: Any = field(default_factory=_Flow)
    half_bytes: int = 0
    is_reading: bool = True
    refusals: list[Refusal] = field(default_factory=list)

    def pause(self) -> None:
        self.is_reading = False

    def read_on(self) -> None:
        self.is_reading = True

    def half_message(self, size_bytes: int) -> None:
        self.half_bytes = size_bytes

    def held_back(self, size_bytes: int) -> None:
        assert size_bytes
        self.pause()

    def refuse(self, refusal: Refusal) -> None:
        self.refusals.append(refusal)

    def linger(self) -> None:
        pass


@dataclass
class _Outcome:
    """What came of some bytes: the messages, what was written, whether the socket is open and a message is half."""

    messages: list[Message]
    written: bytes
    is_open: bool
    is_half: bool


async def _ours(pieces: Sequence[bytes]) -> _Outcome:
    owner, found = _Owner(), list[Message]()
    socket = WebSocket(owner, asyncio.get_running_loop())
    assert socket.why_not({"path": "/v1/topics/t/socket", "headers": HEADERS}, LONGEST_BYTES) is None
    socket.open([])
    del owner.transport.written[:]
    for piece in pieces:
        socket.received(piece)
        while True:
            found += (taken := socket.take())
            if not taken and (owner.is_reading or not socket.is_open or socket.is_broken):
                break
            await asyncio.sleep(0)  # what waits for the next turn of the loop is parsed
    if socket.is_broken:
        assert socket.is_open and not owner.transport.written.endswith(b"}"), "what had begun is answered before"
        socket.close(1000, "the session is done")
    assert not owner.refusals
    return _Outcome(found, bytes(owner.transport.written), socket.is_open, owner.half_bytes > 0)


def _librarys(pieces: Sequence[bytes]) -> _Outcome:
    conn = ServerProtocol(state=State.OPEN, max_size=LONGEST_BYTES)
    found, fragments, is_text = list[Message](), bytearray(), False
    for piece in pieces:
        if conn.state is not State.OPEN:
            break
        conn.receive_data(piece)
        for each in conn.events_received():
            assert isinstance(each, Frame)
            if each.opcode in (Opcode.TEXT, Opcode.BINARY):
                is_text = each.opcode is Opcode.TEXT
            elif each.opcode is not Opcode.CONT:
                continue
            fragments += each.data
            if each.fin:
                found.append(Message(is_text, bytes(fragments)))
                fragments.clear()
    writes = [each for each in conn.data_to_send() if each]
    # Where the protocol is broken, ours tells the client why in a message of its own, before the close.
    written = b"".join(writes) if conn.parser_exc is None else writes[-1]
    is_open = conn.state is State.OPEN
    is_half = is_open and (conn.current_size is not None or _is_within_a_frame(b"".join(pieces)))
    return _Outcome(found, written, is_open, is_half)


def _is_within_a_frame(data: bytes) -> bool:
    """Whether frames that keep to the protocol end in the middle of one."""
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            return True
        length, head = data[at + 1] & 0x7F, 6
        if length >= 126:
            form, head = ("!H", 8) if length == 126 else ("!Q", 14)
            if at + head - 4 > len(data):
                return True
            (length,) = struct.unpack_from(form, data, at + 2)
        at += head + length
    return at > len(data)


_payloads = st.binary(max_size=300) | st.integers(0, LONGEST_BYTES + 10).map(lambda size: b"x" * size)
_opcodes = st.sampled_from([TEXT, TEXT, TEXT, TEXT, BINARY, CONTINUATION, PING, 10, CLOSE, 3])


def _long_form(payload: bytes) -> bytes:
    """A text whose length stands in two bytes, though one would do."""
    return b"\x81\xfe" + struct.pack("!H", len(payload)) + b"\0\0\0\0" + payload


_frames = st.one_of(
    _payloads.map(frame),
    st.builds(frame, _payloads, _opcodes, fin=st.booleans()),
    st.binary(max_size=100).map(_long_form),
    st.binary(max_size=4),
    # Not masked, and with a bit that no extension has asked for.
    st.just(b"\x81\x05hello"),
    st.just(b"\xc1\x80abcd"),
    st.just(b"\x81\xff" + struct.pack("!Q", 2**62)),
)
_cuts = st.lists(st.integers(0, 5_000), max_size=12)


def _cut(data: bytes, places: Sequence[int]) -> Iterator[bytes]:
    bounds = sorted({0, len(data), *(place for place in places if place < len(data))})
    for start, stop in pairwise(bounds):
        yield data[start:stop]


@settings(max_examples=few_or_many(50, 150), deadline=None)
@given(st.lists(_frames, max_size=8), _cuts)
@example([frame(b"a"), frame(b"b" * 200)], [1, 2, 6, 7, 8, 9, 12])
@example([frame(b"", PING), frame(b"a"), frame(b"f", fin=False), frame(b"a"), frame(b"g", CONTINUATION)], [])
@example([frame(b"x" * SMALL_BYTES), frame(b"x" * (SMALL_BYTES + 1)), frame(b"y")], [4_000, 4_104, 4_111])
@example([_long_form(b"a"), _long_form(b"")], [3])
def test_what_comes_of_any_bytes_is_what_the_library_says(frames: list[bytes], places: list[int]) -> None:
    pieces = list(_cut(b"".join(frames), places))
    ours, theirs = asyncio.run(_ours(pieces)), _librarys(pieces)
    assert ours.messages == theirs.messages
    assert ours.written == theirs.written if theirs.is_open else ours.written.endswith(theirs.written)
    assert (ours.is_open, ours.is_half) == (theirs.is_open, theirs.is_half)


def test_so_many_small_texts_are_taken_at_once() -> None:
    data = frame(b"a") * (MOST_TEXTS + 1)
    found = small_texts(data, 0, LONGEST_BYTES)
    assert (len(found.found), found.end, found.is_cut) == (MOST_TEXTS, 7 * MOST_TEXTS, False)
    assert len(small_texts(frame(b"a" * SMALL_BYTES) * 100, 0, LONGEST_BYTES).found) < 20


def test_a_text_that_is_too_long_for_the_broker_is_left_to_the_library() -> None:
    assert small_texts(frame(b"a" * 11), 0, 10) == ([], 0, False)


def test_the_library_gets_no_small_text_behind_another_frame() -> None:
    ping, text = frame(b"?", PING), frame(b"a")
    assert other_frames(ping + ping + text, 0, 100) == (2 * len(ping), 0, 0)
    assert other_frames(ping + ping[:3], 0, 100) == (len(ping) + 3, 3, len(ping) - 3)
    assert other_frames(ping + ping[:1], 0, 100) == (len(ping), 0, 0)
    assert other_frames(frame(b"a" * 5_000), 0, 100) == (100, 100, 5_008 - 100)


@pytest.mark.parametrize("fin", [True, False], ids=["a frame", "a fragment"])
async def test_what_is_half_is_held_no_longer_than_the_socket_is_open(fin: bool) -> None:
    """The connection itself may stay for a while: until its client has read why."""
    size_bytes = 1_000_000
    came = frame(b" " * size_bytes, fin=fin)
    owner = _Owner()
    socket = WebSocket(owner, asyncio.get_running_loop())
    assert socket.why_not({"path": "/v1/topics/t/socket", "headers": HEADERS}, 2 * size_bytes) is None
    socket.open([])
    tracemalloc.start()
    try:
        # Of the frame the last byte is missing, of the message the next fragment.
        socket.received(came[:-1] if fin else came)
        while not owner.is_reading:
            await asyncio.sleep(0)
        assert tracemalloc.get_traced_memory()[0] > size_bytes
        socket.end(CROWDED)
        socket.received(came)
        assert tracemalloc.get_traced_memory()[0] < size_bytes / 10
    finally:
        tracemalloc.stop()
