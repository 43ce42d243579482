"""`/internal/v1`: the calls between brokers. A caller must prove that it is one (`door`)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.types import Receive, Scope

from mq.base.errors import NotFound
from mq.broker import Broker
from mq.http.internal.broker_calls import BrokerCalls
from mq.http.internal.door import Door
from mq.http.internal.follower_calls import FollowerCalls
from mq.http.internal.group_calls import GroupCalls
from mq.http.internal.owner_calls import OwnerCalls
from mq.http.internal.traffic_calls import TrafficCalls
from mq.http.reply import Reply
from mq.peers.calls import (
    APPEND,
    ASK_GROUP,
    AVERAGES,
    DRAIN,
    GIVE_AVERAGES,
    PRESENCE,
    PROVE_STORE,
    READ_TAIL,
    REFRESH,
    REPLICATE,
    REPORT_TRAFFIC,
    SEAL,
    SIGHT,
    SLOT_TRAFFIC,
    TAKE_OVER,
    TELL_REFUSED,
    UNDRAIN,
    VIEW_TRAFFIC,
    Call,
    CallTable,
)
from mq.peers.older_brokers import OLDER_REPORT_TRAFFIC, OLDER_VIEW_TRAFFIC
from mq.peers.transport import PeerAnswer

Handler = Callable[[Any, Any, Receive], Awaitable[PeerAnswer]]


class InternalEndpoint:
    """Serves the other brokers of the cluster."""

    def __init__(self, broker: Broker) -> None:
        self._door = Door(broker)
        self._handlers = _handlers(broker)
        self._table = CallTable(tuple(self._handlers))

    async def __call__(self, scope: Scope, receive: Receive) -> Reply:
        """Serve one request; raises what `problem_of` knows."""
        return await self._door.serve(scope, receive, self._serve)

    async def _serve(self, scope: Scope, receive: Receive) -> Reply:
        method, path = scope["method"], scope["path"]
        found = self._table.find(method, path, scope["query_string"])
        if found is None:
            raise NotFound("path", f"there is no {method} {path}")
        call, parameters = found
        answer = await self._handlers[call](call, parameters, receive)
        headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        return Reply(answer.body, answer.status, headers)


def _handlers(broker: Broker) -> Mapping[Call[Any, Any], Handler]:
    owner, follower = OwnerCalls(broker), FollowerCalls(broker)
    traffic, whole = TrafficCalls(broker), BrokerCalls(broker)
    return {
        APPEND: owner.append,
        SEAL: owner.seal,
        READ_TAIL: owner.read_tail,
        ASK_GROUP: GroupCalls(broker).ask,
        REPLICATE: follower.replicate,
        TAKE_OVER: follower.take_over,
        REPORT_TRAFFIC: traffic.take_report,
        OLDER_REPORT_TRAFFIC: traffic.take_report,
        VIEW_TRAFFIC: traffic.view,
        OLDER_VIEW_TRAFFIC: traffic.view,
        SLOT_TRAFFIC: traffic.by_slot,
        AVERAGES: traffic.averages,
        GIVE_AVERAGES: traffic.take_averages,
        REFRESH: whole.refresh,
        DRAIN: whole.drain,
        UNDRAIN: whole.undrain,
        PRESENCE: whole.presence,
        SIGHT: whole.sight,
        TELL_REFUSED: whole.take_refusal,
        PROVE_STORE: whole.prove_store,
    }
