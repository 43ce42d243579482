"""`X-Request-Id`: taken from each request or made, echoed in each answer, and used by the log meanwhile."""

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from filer import request_ids
from mq.peers.calls import PREFIX

_HEADER = request_ids.HEADER.encode()


class RequestIds:
    """An ASGI app around that of the broker.

    An id that may not stand in a log as it is, or is too long, is not refused: it does not change the work. The answer
    then has another id, which was made for the request.
    """

    def __init__(self, app: ASGIApp, new_id: Callable[[], str]) -> None:
        self._app, self._new_id = app, new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id_ = None
        for name, value in scope["headers"]:
            if name == _HEADER:
                id_ = request_ids.taken(value, of_broker=scope["path"].startswith(PREFIX))
                break
        if id_ is None:
            id_ = self._new_id()
        header = (_HEADER, id_.encode())

        def send_with_id(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], header]
            return send(message)

        # Each request has a task of its own.
        work = request_ids.begin(id_)
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            work.ended = True
