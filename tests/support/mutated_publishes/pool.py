"""A proxy that pools connections: what it sends for one client must never become a part of another's.

It sends only requests that are as HTTP has them, one after the other on a connection, each body behind its head. It
counts on one answer to each, as any proxy does. Bodies look like requests: one that is read as such is stored under the
key `smuggled`, or gives one answer too many.
"""

from collections.abc import Sequence
from typing import NamedTuple

import httptools
from hypothesis import strategies as st

from tests.support.mutated_publishes.http_bytes import HEADERS, MESSAGES, cut, request
from tests.support.mutated_publishes.sides import Side

SMUGGLED = "smuggled"
UPGRADES = [
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
    "Connection: upgrade\r\nUpgrade: websocket",
    "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: braidmq.v1",
    "Connection: Upgrade\r\nUpgrade: TLS/1.0, HTTP/1.1",
    "Connection: keep-alive, upgrade\r\nUpgrade: foo/2",
    "Upgrade: h2c\r\nConnection: upgrade\r\nConnection: close",
]
_FRAME = ("Content-Length", "Transfer-", "Host", "X-Request-Id", "X y", "X: a")
_WITHOUT_FRAME = [each for each in HEADERS if not each.startswith(_FRAME)]
_MORE = st.lists(st.sampled_from(_WITHOUT_FRAME), max_size=1)
_PAYLOAD = request(f"{MESSAGES}?key={SMUGGLED}", b"s")
_PAYLOADS = st.sampled_from([b"", b"x", _PAYLOAD, b"0\r\n\r\n" + _PAYLOAD, b"x" * 100 + _PAYLOAD, _PAYLOAD * 3])
_TARGETS = st.sampled_from(
    [MESSAGES, f"{MESSAGES}?key=k", "/v1/topics/json/messages", "/v1/topics/t/socket", "/healthz"]
)


class Passed(NamedTuple):
    """A request that the proxy passes on: its head, and its body in pieces."""

    head: bytes
    body: Sequence[bytes]


@st.composite
def _passed(draw: st.DrawFn) -> Passed:
    method, target, payload = draw(st.sampled_from(["POST", "POST", "GET", "PUT"])), draw(_TARGETS), draw(_PAYLOADS)
    headers = [*draw(st.lists(st.sampled_from(UPGRADES), max_size=1)), *draw(_MORE)]
    if draw(st.booleans()):
        frame, body = f"Content-Length: {len(payload)}", payload
    else:
        frame = "Transfer-Encoding: chunked"
        body = (b"%x\r\n%b\r\n" % (len(payload), payload) if payload else b"") + b"0\r\n\r\n"
    lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1:8080", frame]
    lines.insert(draw(st.integers(1, 3)), "\r\n".join([*headers, "X-Request-Id: PLACE"]))
    places = draw(st.lists(st.integers(0, 300), max_size=2))
    return Passed("\r\n".join(lines).encode() + b"\r\n\r\n", cut(body, places))


PASSED = st.lists(st.tuples(_passed(), st.booleans()), min_size=1, max_size=4)
"""Requests for one connection, and whether each body comes together with its head."""


def upgrading(payload: bytes = _PAYLOAD) -> Passed:
    """A publish of a client that would rather speak HTTP/2, as Java's does by default."""
    lines = [f"POST {MESSAGES} HTTP/1.1", "Host: 127.0.0.1:8080", "X-Request-Id: PLACE", UPGRADES[0]]
    return Passed("\r\n".join([*lines, f"Content-Length: {len(payload)}\r\n\r\n"]).encode(), [payload])


class _Answers:
    """The answers in some bytes: their status and the id of the request."""

    def __init__(self, data: bytes) -> None:
        self.found: list[tuple[int, bytes]] = []
        self._id = b""
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-request-id":
            self._id = value

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self.found.append((status, self._id))


async def pass_on(side: Side, requests: Sequence[tuple[Passed, bool]]) -> None:
    """Send them on one connection. Raises `AssertionError` if any has other than one answer, or another's."""
    connection = side.connect()
    try:
        for number, (passed, is_joined) in enumerate(requests):
            own_id, before = b"client-%d" % number, len(connection.transport.written)
            head = passed.head.replace(b"PLACE", own_id)
            await connection.send(*([head + b"".join(passed.body)] if is_joined else [head, *passed.body]))
            answered = connection.transport.written[before:]
            if connection.transport.closed or answered.startswith(b"HTTP/1.1 101 "):
                break
            assert [id_ for _, id_ in _Answers(answered).found] == [own_id], answered
    finally:
        await connection.end()
