"""Which requests over HTTP do what a frame of a socket does: whoever may not make them may not send it. Pure."""

from mq.http.sockets.requests import ACK, COMMIT, CREDIT, EXTEND, LET_GO, RELEASE, UNSUBSCRIBE
from mq.http.sockets.subscription import SubscribeBody

OPERATIONS = {ACK: "acks", RELEASE: "releases", EXTEND: "extensions", COMMIT: "commits"}
"""What is asked of a group, by the word that HTTP has for it."""
OF_SUBSCRIPTIONS = (UNSUBSCRIBE, CREDIT, LET_GO)
"""They change a subscription that this socket has begun, and that goes on only while it is allowed."""
Like = tuple[tuple[str, str], ...]
"""Methods and paths."""


def like_publish(topic: str) -> Like:
    """What publishing is like."""
    return (("POST", f"/v1/topics/{topic}/messages"),)


def like_subscribe(topic: str, asked: SubscribeBody) -> Like:
    """What that subscription is like. A member of a stream group reads the segments that it is given."""
    if asked.mode is None:
        return (("GET", f"/v1/topics/{topic}/subscribe"),)
    group = f"/v1/topics/{topic}/groups/{asked.group}"
    if asked.mode == "queue":
        return (("POST", f"{group}/claims"),)
    return (("POST", f"{group}/members"), ("GET", f"/v1/topics/{topic}/segments/0/messages"))


def like_group_request(topic: str, group: str, kind: str) -> Like:
    """What an ack, a release, an extension or a commit is like."""
    return (("POST", f"/v1/topics/{topic}/groups/{group}/{OPERATIONS[kind]}"),)
