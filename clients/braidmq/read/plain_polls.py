"""Waiting for new messages from the caller's own thread, on a kept connection to the broker.

A page through the client's loop changes threads twice, and goes through an HTTP library that can do everything: for one
message that takes longer than the broker does. If a request has no plain answer, the loop repeats it from the same
marker: a read may be repeated. So the transport handles refusals, restarts and failovers, as ever.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from braidmq.message import MessagePage
from braidmq.read.reader import PAGE_BYTES, WAIT_SECONDS, Reader
from braidmq.transport.plain_connection import NotPlain, PlainAnswer, PlainConnection, are_plain, plain_endpoint
from braidmq.transport.trace_context import trace_headers
from braidmq.transport.transport import ARROW, Transport

LATE_SECONDS = 5.0
"""If an answer is this much later than promised, the loop asks for it, and reports that it waits."""
ANSWERED_SECONDS = 5.0
"""This often the loop gets a note that a broker answers: then it learns of the others."""
_IDLE_SECONDS = 3.0
"""Servers commonly close idle connections after five seconds."""
_MOST_FREE = 16
_QUICK_SECONDS = 1.0
_MARKER = b"braid-marker"


class Loop(Protocol):
    """The thread of the client's event loop."""

    @property
    def is_open(self) -> bool:
        """Whether there is one in this process."""
        ...

    def start(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a function on it."""
        ...


class PlainPolls:
    """Polls of one client. Any thread may call it.

    Does not ask brokers that are reached by TLS or by a proxy, and none without `direct`.
    """

    def __init__(self, transport: Transport, loop: Loop, *, headers: Mapping[str, str] | None, direct: bool) -> None:
        self._transport, self._loop, self._clock = transport, loop, transport.clock
        self._headers = {**(headers or {}), "accept": ARROW}
        self._direct = direct and are_plain([*self._headers])
        self._closed = False
        self._told_seconds = self._clock.monotonic_seconds()
        self._free: list[tuple[str, PlainConnection, float]] = []
        self._used: set[PlainConnection] = set()

    def page(self, reader: Reader) -> MessagePage | None:
        """The reader's next page with messages; None if the loop has to ask for it."""
        while self._direct and not self._closed and self._loop.is_open and (target := reader.poll()) is not None:
            began_seconds, before = self._clock.monotonic_seconds(), reader.marker
            try:
                answer = self._asked(target)
                page = reader.polled(answer.body, answer.header(_MARKER))
            except NotPlain:
                return None
            self._tell()
            if len(page):
                return page
            reader.go_behind(page)
            if page.end == before and self._clock.monotonic_seconds() - began_seconds < _QUICK_SECONDS:
                return None  # a draining broker answers at once: the loop knows how to pause
        return None

    def close(self) -> None:
        """Close all connections, and end all waits for answers."""
        self._closed = True
        if self._loop.is_open:  # else this process was forked, and they are its parent's as well
            for connection in list(self._used):
                connection.shut_down()
        while self._free:
            self._free.pop()[1].close()

    def _asked(self, target: str) -> PlainAnswer:
        """The answer to the request. Raises `NotPlain`."""
        address = self._transport.addresses.current
        connection = self._take(address)
        self._used.add(connection)
        is_whole = False
        try:
            if self._closed:
                raise NotPlain("the client is closed")
            answer = connection.get(
                target,
                {**trace_headers(), **self._headers, **self._transport.token.headers()},
                held_back_seconds=WAIT_SECONDS,
                most_bytes=2 * PAGE_BYTES,
            )
            is_whole = True
            return answer
        finally:
            self._used.discard(connection)
            self._give_back(address, connection, is_whole=is_whole)

    def _take(self, address: str) -> PlainConnection:
        """Take a connection for this caller alone, until it is returned: one thread at a time changes the lists."""
        while self._free:
            try:
                kept_address, connection, used_seconds = self._free.pop()
            except IndexError:
                break
            if kept_address == address and self._clock.monotonic_seconds() - used_seconds <= _IDLE_SECONDS:
                return connection
            connection.close()
        endpoint = plain_endpoint(address)
        if endpoint is None:
            raise NotPlain("this broker is not asked without a library")
        return PlainConnection(*endpoint, timeout_seconds=LATE_SECONDS)

    def _give_back(self, address: str, connection: PlainConnection, *, is_whole: bool) -> None:
        if is_whole and not self._closed and len(self._free) < _MOST_FREE:
            self._free.append((address, connection, self._clock.monotonic_seconds()))
        else:
            connection.close()

    def _tell(self) -> None:
        now_seconds = self._clock.monotonic_seconds()
        if now_seconds >= self._told_seconds + ANSWERED_SECONDS:
            self._told_seconds = now_seconds
            self._loop.start(self._transport.answered)
