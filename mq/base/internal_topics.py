"""What users may not do with the brokers' own topics (docs/decisions/0029-internal-topics.md)."""

from filer.keys import GROUPS_TOPIC, INTERNAL_PREFIX, RESERVED_TOPICS, is_internal
from mq.base.errors import InternalTopic

_INSTEAD = {GROUPS_TOPIC: "; what it says of a group is changed through the group"}


def why_not_changed(topic: str) -> InternalTopic | None:
    """Return why no request may change the messages, settings or groups of that topic; None if requests may."""
    if topic not in RESERVED_TOPICS:
        return None
    return InternalTopic(
        f"topic {topic!r} is the brokers' own: it can be browsed, subscribed to and read by its files, but only "
        f"brokers write, configure and delete it; use a topic of another name{_INSTEAD.get(topic, '')}"
    )


def check_new_name(topic: str) -> None:
    """Raise `InternalTopic` if users may not create a topic of that name."""
    if is_internal(topic):
        raise InternalTopic(
            f"{topic!r} cannot name a new topic: names that begin with {INTERNAL_PREFIX} are kept for the brokers' own "
            "topics; use one that begins otherwise"
        )
