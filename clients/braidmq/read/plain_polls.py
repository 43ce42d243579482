"""Waiting for new messages from the caller's own thread, on a kept connection to the broker.

A page by way of the client's loop changes threads twice, and goes through an HTTP library that can do everything: for
one message that takes longer than the broker does. What has no plain answer is asked for again by the loop, from the
same marker: a read may be repeated. So refusals, restarts and failovers are the transport's, as ever.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from braidmq.message import MessagePage
from braidmq.read.reader import PAGE_BYTES, WAIT_SECONDS, Reader
from braidmq.transport.plain_connection import NotPlain, PlainAnswer, PlainConnection, are_plain, plain_endpoint
from braidmq.transport.trace_context import trace_headers
from braidmq.transport.transport import ARROW, Transport

LATE_SECONDS = 5.0
"""So much later than promised, an answer is asked for by the loop, which tells that it waits."""
ANSWERED_SECONDS = 5.0
"""So often the loop is told that a broker answers: by that it learns of the others."""
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
        """Have it run a function."""
        ...


class PlainPolls:
    """Polls of one client. Any thread may call it.

    Brokers that are reached by TLS or by a proxy are not asked from here, and none without `direct`.
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
        """The reader's next page with messages; None if it has to be asked for by way of the loop."""
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
        """Close all connections, and have nobody wait for an answer any more."""
        self._closed = True
        if self._loop.is_open:  # else this process was forked, and they are its parent's as well
            for connection in list(self._used):
                connection.shut_down()
        while self._free:
            self._free.pop()[1].close()

    def _asked(self, target: str) -> PlainAnswer:
        """Raises `NotPlain`."""
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
        """Nobody else uses it until it is given back: lists are changed by one thread at a time."""
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
