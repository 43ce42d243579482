"""The ASGI app of a broker: it serves the hot paths itself and passes everything else to FastAPI.

Inside FastAPI the same endpoints would lose a quarter of their throughput to middleware and routing.
"""

import re
from typing import NoReturn

from starlette.types import ASGIApp, Receive, Scope, Send

from mq.base.authorizer import AllowLoopback, Authorizer, action_of
from mq.base.errors import Forbidden
from mq.broker import Broker
from mq.http.endpoints.load_file_upload import LoadFileUpload
from mq.http.endpoints.payload_upload import PayloadUpload
from mq.http.endpoints.publish import Publisher
from mq.http.internal.endpoint import InternalEndpoint
from mq.http.reply import serve
from mq.http.web_pages import SAFE_METHODS, this_machine, why_foreign
from mq.peers.calls import PREFIX

_PUBLISH = re.compile(r"/v1/topics/([^/]+)/messages\Z")
_UPLOAD = re.compile(r"/v1/topics/([^/]+)/uploads/([^/]+)\Z")
_LOAD_FILE = re.compile(r"/v1/topics/([^/]+)/loads/([^/]+)/files/([0-9]{1,18})/([0-9]{1,18})\Z")


def hot_methods(path: str) -> list[str]:
    """The methods of a path that the dispatcher serves itself."""
    hot = (("POST", _PUBLISH), ("PUT", _UPLOAD), ("PUT", _LOAD_FILE))
    return [method for method, pattern in hot if pattern.match(path)]


class Dispatcher:
    """Serves other brokers, publishes and uploads itself, and passes on the rest. Authorizes users first."""

    def __init__(self, broker: Broker, authorizer: Authorizer, app: ASGIApp) -> None:
        self._authorizer, self._app = authorizer, app
        # If an address is trusted, so is a web page whose host name an attacker has made to resolve to that address.
        trusts_addresses = isinstance(authorizer, AllowLoopback)
        self._names = this_machine(broker.settings.advertise) if trusts_addresses else None
        self._publish = Publisher(broker)
        self._upload = PayloadUpload(broker)
        self._load_file = LoadFileUpload(broker)
        self._internal = InternalEndpoint(broker)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method, path = scope["method"], scope["path"]
        if path.startswith(PREFIX):
            await serve(self._internal(scope, receive), scope, send)
        elif (refusal := self._refusal(scope, method, path)) is not None:
            await serve(_raise(refusal), scope, send)
        elif method == "POST" and (match := _PUBLISH.match(path)):
            await serve(self._publish(scope, receive, match[1]), scope, send)
        elif method == "PUT" and (match := _UPLOAD.match(path)):
            await serve(self._upload(scope, receive, match[1], match[2]), scope, send)
        elif method == "PUT" and (match := _LOAD_FILE.match(path)):
            topic, load, segment, base_offset = match[1], match[2], int(match[3]), int(match[4])
            await serve(self._load_file(scope, receive, topic, load, segment, base_offset), scope, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, method: str, path: str) -> Forbidden | None:
        """Why the request is not allowed. A web page of another site must not use the rights of its reader."""
        client, action = scope.get("client"), action_of(method, path)
        if not self._authorizer.allows(client[0] if client else "", action, path):
            return Forbidden(f"this broker does not allow {action} requests from this address")
        if method not in SAFE_METHODS and (why := why_foreign(scope["headers"], self._names)) is not None:
            return Forbidden(f"this broker does not allow {action} requests of {why}")
        return None


async def _raise(refusal: Forbidden) -> NoReturn:
    raise refusal
