"""The ASGI app of the listener for brokers: it serves the calls of other brokers, and nothing else."""

from typing import NoReturn

from starlette.types import Receive, Scope, Send

from filer.errors import BraidError
from mq.base.errors import NotFound
from mq.broker import Broker
from mq.http.guard import refusal_of_broker
from mq.http.internal.endpoint import InternalEndpoint
from mq.http.reply import serve
from mq.peers.calls import PREFIX

# WebSocket's close code for a request that is not allowed (RFC 6455 §7.4.1).
_POLICY_VIOLATION = 1008


class PeerDispatcher:
    """Serves other brokers. A client of this port learns nothing else about the broker."""

    def __init__(self, broker: Broker) -> None:
        self._internal = InternalEndpoint(broker)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        elif (refusal := _refusal(scope)) is not None:
            await serve(_raise(refusal), scope, send)
        else:
            await serve(self._internal(scope, receive), scope, send)


def _refusal(scope: Scope) -> BraidError | None:
    if not scope["path"].startswith(PREFIX):
        return NotFound("path", "this port is for the brokers of the cluster: clients have another one")
    return refusal_of_broker(scope["headers"])


async def _raise(refusal: BraidError) -> NoReturn:
    raise refusal
