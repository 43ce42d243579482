"""Looks again at a request that takes long: its token may end, or be revoked, meanwhile."""

from collections.abc import Awaitable, Callable

from starlette.types import Message, Receive, Scope, Send

from filer.errors import BraidError
from mq.http.problems import problem_of
from mq.http.reply import BrokenOff, problem_reply, send_reply
from mq.http.routes import match_of
from mq.security.standing import REVIEW_SECONDS

RecordEnd = Callable[[BraidError], Awaitable[None]]
"""Records in the audit trail that a refusal broke an answer off."""
Admit = Callable[[], BraidError | None]
"""Why the request is not allowed now."""


class Rechecked:
    """The receive and send of one ASGI connection.

    The endpoint gets each part of a body only while the request is allowed. So work that needs the whole body is not
    done any more. An answer with messages is refused, or broken off. The answer of a change is sent: the change was
    made while it was allowed.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        admit: Admit,
        record_end: RecordEnd,
        now_seconds: Callable[[], float],
    ) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._admit, self._record_end, self._now_seconds = admit, record_end, now_seconds
        self._looked_seconds = now_seconds()
        # Subscriptions and sockets report by themselves why they end (`Standing`).
        self._gives_data = match_of(scope).gives_data
        self._is_refused = False

    async def receive(self) -> Message:
        """The next part of the body. Raises what `Guard.admit` raises."""
        message = await self._receive()
        if message["type"] == "http.request" and (refusal := self._refusal()) is not None:
            raise refusal
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer. Raises `BrokenOff` if no more may be sent."""
        if self._is_refused:
            return
        refusal = self._refusal() if self._gives_data else None
        if refusal is None:
            await self._send(message)
        elif message["type"] == "http.response.start":
            self._is_refused = True
            await send_reply(problem_reply(problem_of(refusal)), self._scope, self._send)
        else:
            await self._record_end(refusal)
            raise BrokenOff

    def _refusal(self) -> BraidError | None:
        now_seconds = self._now_seconds()
        if now_seconds - self._looked_seconds <= REVIEW_SECONDS:
            return None
        self._looked_seconds = now_seconds
        return self._admit()
