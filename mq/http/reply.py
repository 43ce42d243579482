"""How endpoints answer: JSON, Arrow or a problem, by one `Reply`, whether ASGI or FastAPI serves them.

Answers with messages hold no more than a client takes: the socket gets a piece once the last one has left.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import orjson
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from filer import keys
from filer.errors import BraidError, DataMissing, UnreadableObject
from filer.event_log import EventLog
from mq.base.errors import Draining, PeerProblem
from mq.bodies.intake import ClientGone
from mq.forms.formats import JSON
from mq.forms.render import Part
from mq.http.chunks import Chunks, framed
from mq.http.pieces import PIECE_BYTES, TOGETHER, Together, pieces, pieces_together
from mq.http.problems import Problem, problem_of
from mq.http.until_gone import until_gone
from mq.limits.read_budget import ReadLease
from mq.limits.turns import Line
from mq.peers.calls import PREFIX

JSON_HEADERS = ((b"content-type", JSON.encode()),)
WHOLE_BODY = "braidmq.whole_body"
"""In the message that starts an answer: the whole body. No header gives its length, and no message follows.

This takes half of the time of two messages, and is for servers that name it among the extensions of a request.
"""
_log = EventLog(__name__)


class BrokenOff(Exception):
    """An answer has begun, and there is no rest of it; the reason is in the log already. Or its client has gone away.

    The server of the connection closes it, so that the client finds its answer not whole. The server logs nothing.
    """


class Reply(NamedTuple):
    """An HTTP response: its body, its status, and its headers without the length."""

    body: bytes
    status: int = 200
    headers: Sequence[tuple[bytes, bytes]] = JSON_HEADERS


async def serve(work: Awaitable[Reply], scope: Scope, send: Send) -> None:
    """Send the reply that the work returns, or the problem that it raises. Send nothing if the client has gone.

    A cancelled request is answered too: the process ends.
    """
    try:
        reply = await reply_of(work, scope["method"], scope["path"])
    except ClientGone:
        return
    except asyncio.CancelledError as error:
        if scope["path"].startswith(PREFIX):
            # Another broker would take an answer for one about the segment. Without an answer it looks at the store.
            raise BrokenOff from error
        reply = problem_reply(cut_off())
    await send_reply(reply, scope, send)


async def send_reply(reply: Reply, scope: Scope, send: Send) -> None:
    """Send a reply."""
    body, status, headers = reply
    if WHOLE_BODY in scope.get("extensions", ()):
        await send({"type": "http.response.start", "status": status, "headers": headers, WHOLE_BODY: body})
        return
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def reply_of(work: Awaitable[Reply], method: str, path: str) -> Reply:
    """The reply that the work returns, or the problem that it raises. Raises `ClientGone`."""
    try:
        return await work
    except ClientGone:
        raise
    except Exception as error:
        return problem_reply(logged_problem(error, method, path))


def cut_off() -> Problem:
    """The problem of a cancelled request. Only a process that ends, and has waited long enough, cancels requests.

    The client may send it again. Publishes have had their answers before: a cancelled one has appended nothing.
    """
    return problem_of(Draining("this broker has ended before this was done: send it again when it is back"))


def logged_problem(error: Exception, method: str, path: str) -> Problem:
    """The problem that answers that error. Logs unforeseen errors and unreadable objects."""
    problem = problem_of(error)
    if isinstance(error, PeerProblem):
        return problem  # that broker has logged it
    if problem.status == 500:
        _log.error("request_failed", method=method, path=path, error=error, traceback_of=error)
    elif isinstance(error, UnreadableObject):
        log_unreadable(error)
    return problem


def log_unreadable(error: UnreadableObject) -> None:
    """Log that a request met an object that is missing or damaged."""
    _log.warning(
        "object_unreadable",
        topic=error.key and keys.topic_of(error.key),
        segment=error.segment,
        key=error.key,
        condition="missing" if isinstance(error, DataMissing) else "damaged",
        offset=error.offset,
        next_offset=error.next_offset,
        error=error,
    )


def problem_reply(problem: Problem) -> Reply:
    """The problem as `application/problem+json`."""
    return Reply(problem.body(), problem.status, problem.headers())


def json_response(document: Any, *, status: int = 200) -> Response:
    """A JSON document, as an endpoint of FastAPI returns it."""
    return Response(orjson.dumps(document), status, media_type=JSON)


def problem_response(problem: Problem) -> Response:
    """A problem, as an endpoint of FastAPI returns it."""
    body, status, headers = problem_reply(problem)
    return Response(body, status, {name.decode(): value.decode() for name, value in headers})


class PageResponse(Response):
    """A page of messages. It gives back its part of the read budget when it has been sent, or its client is gone.

    Given whole to the server, a page would lie in the socket's buffer, which no budget counts, for as long as the
    client likes.
    """

    def __init__(
        self, parts: Sequence[Part], headers: Mapping[str, str], media_type: str, lease: ReadLease, status: int = 200
    ) -> None:
        size_bytes = sum(map(len, parts))
        self._parts = parts if size_bytes > PIECE_BYTES else ()
        if self._parts:
            super().__init__(b"", status, {**headers, "content-length": str(size_bytes)}, media_type)
        else:
            super().__init__(b"".join(parts), status, dict(headers), media_type)
        self._lease = lease
        lease.keep(size_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            if not self._parts:
                await super().__call__(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for piece in _pieces_for(scope, self._parts):
                await send_drained(send, piece)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._lease.close()


class PacedStream(StreamingResponse):
    """A stream whose next part is made only once the socket has taken the last one.

    If a part cannot be made, the answer breaks off (`BrokenOff`), and the client finds that it is not whole. Once the
    client is gone the stream ends in one of the `turns`. `chunks` send parts without a copy, so that data that many
    streams share is in memory once.
    """

    def __init__(
        self,
        parts: AsyncGenerator[Part, None],
        headers: Mapping[str, str],
        media_type: str,
        turns: Line,
        chunks: Chunks | None = None,
    ) -> None:
        super().__init__(parts, 200, headers, media_type)
        self._parts, self._turns, self._chunks = parts, turns, chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, until the client is gone."""
        with contextlib.suppress(ClientGone):
            await until_gone(receive, self.stream_response(send), self._turns)

    async def stream_response(self, send: Send) -> None:
        """Send all parts."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        # Closed at once when the client is gone: what it holds must not wait for the garbage collector.
        async with contextlib.aclosing(self._parts) as parts:
            try:
                async for part in parts:
                    for piece in pieces(part):
                        await self._send_piece(send, piece)
            except BraidError as error:
                _log.error("answer_broke_off", error=error)
                raise BrokenOff from error
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_piece(self, send: Send, piece: memoryview) -> None:
        if self._chunks is None:
            await send_drained(send, piece)
        else:
            self._chunks.write(framed(piece), len(piece))
            await self._chunks.drained()


def _pieces_for(scope: Scope, parts: Sequence[Part]) -> Iterator[memoryview | Together]:
    """The parts in pieces that the server of that request takes."""
    if TOGETHER in scope.get("extensions", ()):
        return pieces_together(parts)
    return chain.from_iterable(map(pieces, parts))


async def send_drained(send: Send, piece: memoryview | Together) -> None:
    """Send a piece of a body, and wait until the socket's buffer has room again.

    The server waits before it sends, not after: an empty piece sends nothing, and waits.
    """
    await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": True})
