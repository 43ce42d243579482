"""Responses that hold no more than a client takes: the next piece is given to the socket once the last one has left."""

from collections.abc import AsyncIterator, Iterator, Mapping

from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from mq.base.read_budget import ReadLease

PIECE_BYTES = 64 * 1024


class PageResponse(Response):
    """A page of messages. What it holds of the read budget is given back when it has been sent, or its client is gone.

    Given whole to the server, a page would lie in the socket's buffer, where nobody counts it, for as long as the
    client likes.
    """

    def __init__(
        self, body: bytes, headers: Mapping[str, str], media_type: str, lease: ReadLease, status: int = 200
    ) -> None:
        super().__init__(body, status, dict(headers), media_type)
        self._lease = lease
        lease.keep(len(body))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            if len(self.body) <= PIECE_BYTES:
                await super().__call__(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for piece in pieces(self.body):
                await send_drained(send, piece)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._lease.release()


class PacedStream(StreamingResponse):
    """A stream whose next part is made only once the socket has taken the last one."""

    def __init__(self, parts: AsyncIterator[bytes], headers: Mapping[str, str], media_type: str) -> None:
        super().__init__(parts, 200, headers, media_type)
        self._parts = parts

    async def stream_response(self, send: Send) -> None:
        """Send all parts."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for part in self._parts:
            for piece in pieces(part):
                await send_drained(send, piece)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def pieces(body: bytes | memoryview) -> Iterator[memoryview]:
    """The body in pieces, without a copy."""
    view = memoryview(body)
    for start in range(0, len(view), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]


async def send_drained(send: Send, piece: memoryview) -> None:
    """Send a piece of a body, and wait until the socket's buffer has room again.

    The server waits before it sends, not after: an empty piece sends nothing, and waits.
    """
    await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": True})
