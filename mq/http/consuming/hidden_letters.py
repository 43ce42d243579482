"""The topic of a group's dead letters, as far as the client may know it."""

from typing import Any

import orjson

from groups.settings import default_dead_letter_topic
from mq.http.consuming.group_answer import GroupAnswer
from mq.http.hidden_names import HIDDEN
from mq.security.principal import Principal


def dead_letter_topic(settings: bytes) -> str | None:
    """The topic for dead letters in these settings of a group; None if they have none that could be one."""
    try:
        return _named(orjson.loads(settings or b"{}"))
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return None


def without_hidden_letters(answer: GroupAnswer, topic: str, principal: Principal) -> GroupAnswer:
    """The description of a group of that topic, without the name of a topic that the principal may not observe.

    The default is shown: it says no more than the topic's own name.
    """
    if answer.status >= 400 or principal.grants.allow_everywhere("observe"):
        return answer
    document: dict[str, Any] = orjson.loads(b"".join(answer.parts))
    try:
        named = _named(document["settings"])
    except (LookupError, TypeError):
        return answer
    if named is None or named == default_dead_letter_topic(topic) or principal.sees(named):
        return answer
    document["settings"]["dead_letter"] = {"topic": HIDDEN}
    if "dead_letters_delayed" in document:
        # The reason names the topic.
        document["dead_letters_delayed"]["reason"] = HIDDEN
    return GroupAnswer.of(document, answer.status)


def _named(settings: Any) -> str | None:
    """The name of the topic. Raises `LookupError` and `TypeError`."""
    named = settings["dead_letter"]["topic"]
    return named if isinstance(named, str) else None
