"""The ASGI app of a broker: it serves the hot paths itself and passes everything else to FastAPI.

Inside FastAPI the same endpoints would lose a quarter of their throughput to middleware and routing.
"""

import contextlib
from functools import partial
from typing import NoReturn

from starlette.types import ASGIApp, Receive, Scope, Send

from filer.errors import BraidError
from mq.base.errors import Forbidden, QuotaExceeded, Unauthenticated
from mq.broker import Broker
from mq.http.ended_permissions import record_end
from mq.http.endpoints.load_file_upload import LoadFileUpload
from mq.http.endpoints.payload_upload import PayloadUpload
from mq.http.endpoints.publish import Publisher
from mq.http.endpoints.topics import PutTopic
from mq.http.guard import Guard, refusal_of_broker
from mq.http.hidden_names import HIDDEN_NAMES, HiddenNames
from mq.http.internal.endpoint import InternalEndpoint
from mq.http.metered import SHARE, Metered, asks_to_wait, closing
from mq.http.principals import PRINCIPAL, check_members
from mq.http.rechecked import Rechecked
from mq.http.reply import Reply, serve
from mq.http.routes import LOAD_FILE, METRICS, PUBLISH, PUT_TOPIC, READYZ, UPLOAD, RouteMatch, match_of
from mq.limits.quotas import HOLD_SECONDS, Share
from mq.limits.turns import ASKER, Line
from mq.peers.calls import PREFIX
from mq.security.caller import caller_of
from mq.security.needs import Need
from mq.security.principal import ACTING, TRUSTED

# WebSocket's close code for a request that is not allowed (RFC 6455 §7.4.1).
_POLICY_VIOLATION = 1008
# A longer number is no segment or offset.
_MOST_DIGITS = 18


class Dispatcher:
    """Serves other brokers, publishes, uploads and most `PUT`s of topics itself, and passes on the rest.

    Authorizes users first.
    """

    def __init__(self, broker: Broker, guard: Guard, publisher: Publisher, app: ASGIApp) -> None:
        self._broker, self._guard, self._publish, self._app = broker, guard, publisher, app
        self._shows_metrics = broker.settings.metrics == "any"
        self._serves_brokers = broker.settings.serves_brokers_in_public
        self._is_clustered = broker.is_clustered
        self._upload = PayloadUpload(broker)
        self._load_file = LoadFileUpload(broker)
        self._put_topic = PutTopic(broker)
        self._internal = InternalEndpoint(broker)
        self._turns = broker.turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            if scope["type"] == "websocket" and self._admit(scope) is not None:
                await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
                return
            await self._app(scope, receive, send)
            return
        is_internal = scope["path"].startswith(PREFIX)
        refusal = self._refusal_of_broker(scope) if is_internal else self._admit(scope)
        if self._guard.asks_for_credentials and not is_internal and refusal is None:
            now_seconds = self._broker.clock.monotonic_seconds
            need = match_of(scope).need
            scope[HIDDEN_NAMES] = hidden = HiddenNames(self._broker, scope[PRINCIPAL], [need.topic], scope)
            send = hidden.sender(send)
            admit, record = partial(self._admit, scope), partial(record_end, self._broker, scope)
            again = Rechecked(scope, receive, send, admit, record, now_seconds)
            receive, send = again.receive, again.send
            refusal = await self._refusal_by_members(scope, need)
            if refusal is None and (share := self._broker.quotas.share(scope[PRINCIPAL].name)) is not None:
                await self._serve_metered(scope, receive, send, share, need)
                return
            if refusal is None and (seat := caller_of(scope).seat) is not None:
                seat.leave()
        await self._serve(scope, receive, send, refusal)

    async def _serve_metered(self, scope: Scope, receive: Receive, send: Send, share: Share, need: Need) -> None:
        """Serve a request within the quota of its principal."""
        match = match_of(scope)
        try:
            share.sit(caller_of(scope).seat)
            share.begin(need)
            scope[SHARE] = share
            with share.stream() if match.is_endless else contextlib.nullcontext():
                reserved = match.creates_topic and not self._has_topic(need.topic)
                if reserved:
                    share.reserve_topic()
                metered = Metered(scope, receive, send, share, self._broker.clock, reserved=int(reserved))
                try:
                    await self._serve(scope, metered.receive, metered.send, None)
                finally:
                    metered.end()
        except QuotaExceeded as refusal:
            await self._broker.clock.sleep(HOLD_SECONDS)
            await self._serve(scope, receive, closing(send) if refusal.limit == "connections" else send, refusal)

    def _has_topic(self, name: str) -> bool:
        """Whether there is a topic or topic group of that name, as far as this broker knows."""
        found = self._broker.topics.get(name)
        return found is not None and not found.state.deleted

    async def _serve(self, scope: Scope, receive: Receive, send: Send, refusal: BraidError | None) -> None:
        """Serve a request that is allowed, or answer why it is not."""
        match = match_of(scope)
        if refusal is not None and match.route is not None and match.route.is_probe:
            await serve(self._probe(match), scope, send)
        elif refusal is not None and not (self._shows_metrics and match.route is METRICS):
            if match.is_for(PUBLISH):
                self._publish.count_refused(refusal)
            await serve(_raise(refusal), scope, send)
        elif scope["path"].startswith(PREFIX):
            await serve(self._internal(scope, receive), scope, send)
        elif match.is_for(PUBLISH):
            ASKER.set(scope["client"])
            with self._turns.publishing:
                await serve(self._publish(scope, receive, *match.values), scope, send)
        elif match.is_for(UPLOAD):
            await serve(self._upload(scope, receive, *match.values), scope, send)
        elif match.is_for(LOAD_FILE) and all(map(_is_number, match.values[2:])):
            topic, load, segment, base_offset = match.values
            await serve(self._load_file(scope, receive, topic, load, int(segment), int(base_offset)), scope, send)
        else:
            # Routing and checking take longer than the work of most of these requests.
            ASKER.set(scope["client"])
            await self._line(match, scope["query_string"]).wait()
            if match.is_for(PUT_TOPIC) and not scope["query_string"]:
                await serve(self._put_topic(scope, receive, *match.values), scope, send)
            else:
                await self._app(scope, receive, send)

    def _line(self, match: RouteMatch, query: bytes) -> Line:
        """The line in which the request waits for its turn."""
        turn = "others" if match.route is None else match.route.turn
        if turn == "streams" or (turn == "pages" and asks_to_wait(query)):
            return self._turns.streams
        return self._turns.pages if turn == "pages" else self._turns.others

    async def _probe(self, match: RouteMatch) -> Reply:
        """The answer to a probe that may not know more: probes come from any part of the cluster's machinery."""
        if match.route is not READYZ:
            return Reply(b'{"status":"ok"}')
        ready = self._broker.readiness.ready
        return Reply(b'{"ready":%b}' % (b"true" if ready else b"false"), 200 if ready else 503)

    async def _refusal_by_members(self, scope: Scope, need: Need) -> BraidError | None:
        """Why an action on a topic group is not allowed, or cannot be done: it applies to each topic in the group."""
        if need.action != "manage" or not need.topic:
            return None
        try:
            await check_members(self._broker, scope[PRINCIPAL], need.topic, "manage")
        except BraidError as refusal:
            return refusal
        return None

    def _refusal_of_broker(self, scope: Scope) -> BraidError | None:
        """Why the sender is no broker that is served here. Proofs are not even looked at if no brokers are served."""
        if not self._is_clustered:
            return Forbidden("this broker is in no cluster, and has no other brokers to serve: --zookeeper forms one")
        if not self._serves_brokers:
            return Forbidden("brokers have a port of their own here, and are not served at that for clients")
        return refusal_of_broker(scope["headers"])

    def _admit(self, scope: Scope) -> BraidError | None:
        """Why the request is not allowed. If it is allowed, the scope names its principal from now on."""
        try:
            scope[PRINCIPAL] = principal = self._guard.admit(caller_of(scope), match_of(scope).need, scope["headers"])
            ACTING.set("" if principal is TRUSTED else principal.name)
        except (Forbidden, Unauthenticated) as refusal:
            return refusal
        return None


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= _MOST_DIGITS


async def _raise(refusal: BraidError) -> NoReturn:
    raise refusal
