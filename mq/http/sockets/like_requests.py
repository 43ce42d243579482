"""The HTTP requests like a frame of a socket: a client that may not make them may not send the frame. Pure."""

from mq.http import routes
from mq.http.routes import RouteMatch
from mq.http.sockets.requests import ACK, COMMIT, CREDIT, EXTEND, LET_GO, RELEASE, UNSUBSCRIBE
from mq.http.sockets.subscription import SubscribeBody
from mq.service.groups import operations

OPERATIONS = {
    ACK: operations.ACK,
    RELEASE: operations.RELEASE,
    EXTEND: operations.EXTEND,
    COMMIT: operations.COMMIT,
}
"""The operations on a group."""
OF_SUBSCRIPTIONS = (UNSUBSCRIBE, CREDIT, LET_GO)
"""They change a subscription of this socket, which goes on only while it is allowed."""
_DECIDING = {ACK: routes.ACK, RELEASE: routes.RELEASE, EXTEND: routes.EXTEND, COMMIT: routes.COMMIT}


def like_subscribe(topic: str, asked: SubscribeBody) -> list[RouteMatch]:
    """The HTTP requests like that subscription. A member of a stream group reads the segments that it is given."""
    if asked.mode is None:
        return [routes.SUBSCRIBE.of(topic)]
    assert asked.group is not None
    if asked.mode == "queue":
        return [routes.CLAIM.of(topic, asked.group)]
    return [routes.JOIN.of(topic, asked.group), routes.READ_SEGMENT.of(topic, "0")]


def like_group_request(topic: str, group: str, kind: str) -> RouteMatch:
    """The HTTP request like an ack, a release, an extension or a commit."""
    return _DECIDING[kind].of(topic, group)
