"""The ASGI app: hot paths are told apart here, everything else goes to FastAPI.

Mounted inside FastAPI the same endpoints lose a quarter of their throughput to middleware and routing.
"""

import logging
import re
from collections.abc import Awaitable

from starlette.types import ASGIApp

from mq.authorizer import AllowLoopback, Authorizer, action_of
from mq.bodies.intake import ClientGone, Receive
from mq.broker import Broker
from mq.errors import Forbidden
from mq.http.internal import Internal
from mq.http.load_file_upload import LoadFileUpload
from mq.http.payload_upload import PayloadUpload
from mq.http.problems import problem_of
from mq.http.publish import Publisher, Scope, Send
from mq.http.web_pages import SAFE_METHODS, this_machine, why_foreign
from mq.peers import PREFIX

_PUBLISH = re.compile(r"/v1/topics/([^/]+)/messages\Z")
_UPLOAD = re.compile(r"/v1/topics/([^/]+)/uploads/([^/]+)\Z")
_LOAD_FILE = re.compile(r"/v1/topics/([^/]+)/loads/([^/]+)/files/([0-9]{1,18})/([0-9]{1,18})\Z")
_log = logging.getLogger(__name__)


def hot_methods(path: str) -> list[str]:
    """Methods of a path that are served here."""
    hot = (("POST", _PUBLISH), ("PUT", _UPLOAD), ("PUT", _LOAD_FILE))
    return [method for method, pattern in hot if pattern.match(path)]


class Dispatcher:
    """Serves other brokers, publishes and uploads itself, and hands on the rest; users are authorized first."""

    def __init__(self, broker: Broker, authorizer: Authorizer, app: ASGIApp) -> None:
        self._authorizer, self._app = authorizer, app
        # By an address that is trusted anybody may come who has a name lead there.
        trusts_addresses = isinstance(authorizer, AllowLoopback)
        self._names = this_machine(broker.settings.advertise) if trusts_addresses else None
        self._publish = Publisher(broker)
        self._upload = PayloadUpload(broker)
        self._load_file = LoadFileUpload(broker)
        self._internal = Internal(broker)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method, path = scope["method"], scope["path"]
        if path.startswith(PREFIX):
            await self._internal(scope, receive, send)
        elif (refusal := self._refusal(scope, method, path)) is not None:
            await _refuse(send, refusal)
        elif method == "POST" and (match := _PUBLISH.match(path)):
            await self._serve(self._publish(scope, receive, match[1]), 200, send)
        elif method == "PUT" and (match := _UPLOAD.match(path)):
            await self._serve(self._upload(scope, receive, match[1], match[2]), 201, send)
        elif method == "PUT" and (match := _LOAD_FILE.match(path)):
            place = (match[1], match[2], int(match[3]), int(match[4]))
            await self._serve(self._load_file(scope, receive, *place), 201, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, method: str, path: str) -> Forbidden | None:
        """Why the request is not served; a web page elsewhere has no part in what its reader may do."""
        client, action = scope.get("client"), action_of(method, path)
        if not self._authorizer.allows(client[0] if client else "", action, path):
            return Forbidden(f"this broker does not allow {action} requests from this address")
        if method not in SAFE_METHODS and (why := why_foreign(scope["headers"], self._names)) is not None:
            return Forbidden(f"this broker does not allow {action} requests of {why}")
        return None

    async def _serve(self, work: Awaitable[bytes], status: int, send: Send) -> None:
        try:
            body = await work
        except ClientGone:
            return
        except Exception as error:
            await _refuse(send, error)
            return
        length = b"%d" % len(body)
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def _refuse(send: Send, error: Exception) -> None:
    problem = problem_of(error)
    if problem.status == 500:
        _log.error("request failed", exc_info=error)
    body = problem.body()
    headers = [*problem.headers(), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
