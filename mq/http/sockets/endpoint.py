"""`GET /v1/topics/{topic}/socket`: opens a socket, if the request is as docs/websocket.md says."""

import asyncio
from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from filer.errors import BraidError
from mq.audit.records import record_of
from mq.base.errors import AuditFailed, Forbidden, Unauthenticated
from mq.broker import Broker
from mq.http.ended_permissions import record_end
from mq.http.endpoints.publish import Publisher
from mq.http.guard import Guard
from mq.http.hidden_names import hidden_names
from mq.http.principals import PRINCIPAL, principal_of
from mq.http.problems import Problem, problem_of
from mq.http.reply import problem_response
from mq.http.routers import new_router
from mq.http.routes import SOCKET, RouteMatch, match_of
from mq.http.sockets.busy_sockets import BusySockets
from mq.http.sockets.session import Session
from mq.http.sockets.wire import INTERNAL_ERROR, OPENS, SUBPROTOCOL, Wire, wire_of
from mq.security.caller import Caller, caller_of, credential_of

_ASKS = (
    "a WebSocket is opened with the headers 'Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13', "
    f"'Sec-WebSocket-Key' and 'Sec-WebSocket-Protocol: {SUBPROTOCOL}' over HTTP/1.1"
)


def socket_router(broker: Broker, guard: Guard, publisher: Publisher) -> APIRouter:
    """The endpoint of sockets."""
    router = new_router("socket")
    # Publishes go on when their socket is gone.
    tasks: set[asyncio.Task[None]] = set()
    busy = BusySockets(broker)

    @router.serves(SOCKET)
    async def open_socket(request: Request, topic: str) -> Response:
        """Open a WebSocket: publish, subscribe, claim, ack, both ways at once, as docs/websocket.md says."""
        caller, headers = caller_of(request.scope), request.scope["headers"]
        wire = wire_of(request.scope)
        if wire is None:
            return _refused(426, _ASKS)
        broker.streams.check(caller.address)
        await broker.topics.view(topic)
        if (why := wire.why_not(request.scope, broker.settings.max_json_bytes)) is not None:
            return _refused(why[0], f"{why[1]}; {_ASKS}")
        permit, hidden = partial(_refusal, broker, guard, caller, headers), hidden_names(request.scope)
        owner = principal_of(request).owner
        session = Session(broker, publisher, topic, owner, wire, permit, hidden, tasks, busy)
        return _Opened(wire, broker, caller.address, session)

    return router


async def _refusal(
    broker: Broker, guard: Guard, caller: Caller, headers: list[tuple[bytes, bytes]], like: RouteMatch
) -> BraidError | None:
    """Why a frame is not allowed. Asked for each frame: a token ends, or is revoked, while its socket is open."""
    try:
        guard.admit(caller, like.need, headers)
    except (Forbidden, Unauthenticated) as refusal:
        if broker.audit is not None:
            name = guard.name_of(caller, headers)
            try:
                status = problem_of(refusal).status
                await broker.audit.record(record_of(name, caller.address, like.need, like.text, status))
            except AuditFailed as error:
                return error
        return refusal
    return None


def _refused(status: int, detail: str) -> Response:
    title = "The request has to open a WebSocket" if status == 426 else "The WebSocket cannot be opened"
    response = problem_response(
        Problem("upgrade-required" if status == 426 else "invalid-request", title, status, detail)
    )
    if status == 426:
        response.headers["upgrade"] = "websocket"
    return response


class _Opened(Response):
    """The answer that is a socket. It is over when the socket is closed."""

    def __init__(self, wire: Wire, broker: Broker, address: str, session: Session) -> None:
        super().__init__(status_code=101)
        self._wire, self._broker, self._address, self._session = wire, broker, address, session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve it."""
        allowed = self._broker.access.standings.of(credential_of(scope), match_of(scope).need)
        with self._broker.streams.counted(self._address), allowed as standing:
            await send({"type": "http.response.start", "status": 101, "headers": [], OPENS: True})
            try:
                name, quotas = scope[PRINCIPAL].name, self._broker.quotas
                await self._session.run(standing, lambda: quotas.share(name), partial(record_end, self._broker, scope))
            finally:
                self._wire.close(INTERNAL_ERROR, "something went wrong in the broker")
        await send({"type": "http.response.body", "body": b""})
