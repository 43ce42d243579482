"""Names in URLs. They are checked here, because `..` or a slash would silently make another URL."""

import filer.errors
from braidmq.errors import InvalidName
from filer.keys import check_name


def topic_path(topic: object) -> str:
    """Return the path of a topic on its broker. Raises `InvalidName`."""
    if not isinstance(topic, str):
        raise InvalidName(f"{topic!r} cannot name a topic: a name is text")
    try:
        return f"/v1/topics/{check_name(topic)}"
    except filer.errors.InvalidName as failure:
        raise InvalidName(str(failure)) from failure


def topic_group_path(group: object) -> str:
    """Return the path of a topic group on its broker. Raises `InvalidName`."""
    return topic_path(group).replace("/v1/topics/", "/v1/topic-groups/", 1)


def group_path(topic: str, group: str) -> str:
    """Return the path of a consumer group on its broker. Raises `InvalidName`."""
    try:
        name = check_name(group, what="group")
        return f"{topic_path(topic)}/groups/{name}"
    except filer.errors.InvalidName as failure:
        raise InvalidName(str(failure)) from failure
