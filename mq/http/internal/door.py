"""Lets only brokers of the cluster call. They prove it by a signature or, if there are no keys, by its secret."""

from collections.abc import Awaitable, Callable

from starlette.types import Receive, Scope

from mq.base.errors import Forbidden
from mq.broker import Broker
from mq.http.problems import problem_of
from mq.http.reply import Reply, problem_reply, reply_of
from mq.peer_keys.digests import CheckedBody, digest_of
from mq.peer_keys.incoming import Incoming, NotServed, Refusal
from mq.peer_keys.signatures import REQUEST_HEADER, Stamp
from mq.peers.calls import BROKER_HEADER, SECRET_HEADER

_SECRET, _BROKER, _SIGNED = (name.lower().encode() for name in (SECRET_HEADER, BROKER_HEADER, REQUEST_HEADER))
Endpoint = Callable[[Scope, Receive], Awaitable[Reply]]


class Door:
    """Admits the brokers of the cluster, notes that they live, and signs the answers to them."""

    def __init__(self, broker: Broker) -> None:
        self._peers, self._heard, self._incoming = broker.peers, broker.last_heard, broker.incoming
        self._is_optional = broker.settings.peer_keys_optional

    async def serve(self, scope: Scope, receive: Receive, endpoint: Endpoint) -> Reply:
        """The reply to a request. Raises `Forbidden` for one of another sender, and what the endpoint raises."""
        given = {
            name: value.decode("latin-1") for name, value in scope["headers"] if name in (_SECRET, _BROKER, _SIGNED)
        }
        if self._incoming is not None and (_SIGNED in given or not self._is_optional):
            return await self._serve_signed(self._incoming, given.get(_SIGNED), scope, receive, endpoint)
        if not self._peers.knows(given.get(_SECRET, "")):
            raise Forbidden("this path is only for the brokers of the cluster")
        self._heard.note(given.get(_BROKER, ""))
        return await endpoint(scope, receive)

    async def _serve_signed(
        self, incoming: Incoming, header: str | None, scope: Scope, receive: Receive, endpoint: Endpoint
    ) -> Reply:
        """Serve a signed request. Errors are answers too, and signed.

        Stopped after the endpoint has served the request, before its answer is signed, the caller has no answer: as
        after any end of this process, it does not know what was done.
        """
        if header is None:
            raise Forbidden("the brokers of this cluster prove by keys who they are: give --peer-keys")
        method, target = scope["method"], _target(scope)
        stamp = incoming.stamp(header, method, target)
        try:
            incoming.admit(stamp)
        except NotServed as refused:
            return await _signed(incoming, stamp, problem_reply(problem_of(refused)), refused.why)
        self._heard.note(stamp.sender)
        work = endpoint(scope, CheckedBody(receive, stamp.digest))
        return await _signed(incoming, stamp, await reply_of(work, method, scope["path"]))


def _target(scope: Scope) -> str:
    """Path and query, as the caller wrote them: names of topics need no escapes."""
    query: bytes = scope["query_string"]
    return f"{scope['path']}{'?' if query else ''}{query.decode('latin-1')}"


async def _signed(incoming: Incoming, stamp: Stamp, reply: Reply, refusal: Refusal | None = None) -> Reply:
    said = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in reply.headers}
    headers = incoming.answered(stamp, reply.status, said, await digest_of(reply.body), refusal)
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return Reply(reply.body, reply.status, encoded)
