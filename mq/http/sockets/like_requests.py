"""Which requests over HTTP do what a frame of a socket does: whoever may not make them may not send it. Pure."""

from mq.http import routes
from mq.http.routes import Asked
from mq.http.sockets.requests import ACK, COMMIT, CREDIT, EXTEND, LET_GO, RELEASE, UNSUBSCRIBE
from mq.http.sockets.subscription import SubscribeBody

OPERATIONS = {ACK: "acks", RELEASE: "releases", EXTEND: "extensions", COMMIT: "commits"}
"""What is asked of a group, by the word that HTTP has for it."""
OF_SUBSCRIPTIONS = (UNSUBSCRIBE, CREDIT, LET_GO)
"""They change a subscription that this socket has begun, and that goes on only while it is allowed."""
_DECIDING = {ACK: routes.ACK, RELEASE: routes.RELEASE, EXTEND: routes.EXTEND, COMMIT: routes.COMMIT}


def like_subscribe(topic: str, asked: SubscribeBody) -> list[Asked]:
    """What that subscription is like. A member of a stream group reads the segments that it is given."""
    if asked.mode is None:
        return [routes.SUBSCRIBE.of(topic)]
    assert asked.group is not None
    if asked.mode == "queue":
        return [routes.CLAIM.of(topic, asked.group)]
    return [routes.JOIN.of(topic, asked.group), routes.READ_SEGMENT.of(topic, "0")]


def like_group_request(topic: str, group: str, kind: str) -> Asked:
    """What an ack, a release, an extension or a commit is like."""
    return _DECIDING[kind].of(topic, group)
