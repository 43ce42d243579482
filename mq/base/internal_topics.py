"""What users may not do with the brokers' own topics (docs/decisions/0029-internal-topics.md)."""

import re

from filer.keys import GROUPS_TOPIC, INTERNAL_PREFIX, RESERVED_TOPICS, is_internal
from mq.base.errors import InternalTopic

_TOPICS = "/v1/topics/"
_INTERNAL = f"{_TOPICS}{INTERNAL_PREFIX}"
_ALLOWED = re.compile(r"upkeep|segments/\d+/(?:split|merge)")
"""They change no message. Brokers do the same by themselves, and an operator may not want to wait for that."""
_INSTEAD = {GROUPS_TOPIC: "; what it says of a group is changed through the group"}


def why_not_changed(path: str) -> InternalTopic | None:
    """Why no request that is more than a read is allowed at that path; None if it is.

    All requests that publish, upload, load, configure or delete are below the path of their topic.
    """
    if not path.startswith(_INTERNAL):
        return None
    topic, _, rest = path.removeprefix(_TOPICS).partition("/")
    if topic not in RESERVED_TOPICS or _ALLOWED.fullmatch(rest):
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
