"""Charges a principal with a quota for the bytes and topics of its request, as they come and go."""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

from starlette.types import Message, Receive, Scope, Send

from filer.clock import Clock
from mq.base.errors import QuotaExceeded
from mq.bodies.arriving_body import arriving_body
from mq.http.chunks import withdraw_chunks
from mq.http.reply import WHOLE_BODY
from mq.http.routes import SUBSCRIBE, match_of
from mq.limits.quotas import HOLD_SECONDS, Share

_LONGEST_REST_SECONDS = 1.0
_CREATED = 201
SHARE = "braidmq.share"
"""In the scope of a request: the share of its principal, if it has a quota."""


class Metered:
    """The receive and send of one ASGI connection. An endless answer rests while its principal owes something.

    `reserved` counts the topics that the share has been charged for already. Call `end` in the end.
    """

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, share: Share, clock: Clock, *, reserved: int
    ) -> None:
        match = match_of(scope)
        action, route = match.need.action, match.route
        self._receive, self._send, self._share, self._clock = receive, send, share, clock
        self._publishes, self._reads = action in ("publish", "load"), action in ("read", "consume")
        self._arriving, self._read_bytes, self._is_whole = arriving_body(scope), 0, False
        self._rests = route is SUBSCRIBE
        self._creates, self._reserved = match.creates_topic, reserved
        has_payloads = route is not None and route.has_payloads
        self._taken = share.taking(match.need.topic) if self._publishes and not has_payloads else None
        if self._reads and share.limits.read_bytes_per_second is not None:
            # Data that is written to a connection past this object would not be counted.
            withdraw_chunks(scope)

    async def receive(self) -> Message:
        """The next part of the body."""
        message = await self._receive()
        if self._publishes and message["type"] == "http.request":
            size_bytes = len(message.get("body", b"")) or self._read_in_place()
            self._share.published(size_bytes)
            if self._taken is not None:
                self._taken.add(size_bytes)
            self._is_whole = not message.get("more_body", False)
        return message

    def _read_in_place(self) -> int:
        """How many bytes of a large body have come since the last part; no message shows them."""
        if self._arriving is None:
            return 0
        before, self._read_bytes = self._read_bytes, self._arriving.size_bytes
        return self._read_bytes - before

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self._settle(message["status"])
        if self._reads:
            self._share.read(_size_of(message))
        await self._send(message)
        if self._rests and self._reads:
            while wait_seconds := self._share.reading_waits_seconds():
                await self._clock.sleep(min(wait_seconds, _LONGEST_REST_SECONDS))

    def end(self) -> None:
        """Note that the request is over, with an answer or without."""
        self._settle(None)

    def _settle(self, status: int | None) -> None:
        """Charge for the outcome of the request, and for nothing else. The first answer counts."""
        taken, self._taken = self._taken, None
        if taken is not None:
            if status is not None:
                taken.answered(status)
            else:
                # If the client left behind a whole body, it may have been stored. Nothing is stored of half a body.
                taken.end(stored=self._is_whole)
        created = int(self._creates and status == _CREATED)
        self._share.created_topics(created - self._reserved)
        self._creates, self._reserved = False, 0


def asks_to_wait(query: bytes) -> bool:
    """Whether a query has the parameter `wait`, in any encoding."""
    if b"wait" not in query and b"%" not in query:
        return False
    return any(name == "wait" for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True))


@asynccontextmanager
async def waiting(scope: Scope, wait_seconds: float, clock: Clock) -> AsyncIterator[None]:
    """A context for a request that may wait for so long, if at all: it counts among its principal's streams.

    The endpoint enters it, since only the endpoint knows what was asked for. Raises `QuotaExceeded`, as late as other
    refusals.
    """
    share: Share | None = scope.get(SHARE)
    if share is None or not wait_seconds:
        yield
        return
    with ExitStack() as counted:
        try:
            counted.enter_context(share.stream())
        except QuotaExceeded:
            await clock.sleep(HOLD_SECONDS)
            raise
        yield


def closing(send: Send) -> Send:
    """A `send` that makes the server close the connection after the answer."""

    async def last(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await send(message)

    return last


def _size_of(message: Message) -> int:
    body: Any = message.get(WHOLE_BODY, message.get("body", b""))
    return len(body)
