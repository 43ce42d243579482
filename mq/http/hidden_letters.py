"""The topic of a group's dead letters, as far as the client may know it."""

from collections.abc import Mapping
from typing import Any

from groups.settings import default_dead_letter_topic
from mq.http.hidden_names import HIDDEN
from mq.security.principal import Principal
from mq.service.groups.answers import Document


def dead_letter_topic(settings: Mapping[str, Any]) -> str | None:
    """The topic for dead letters in these settings of a group; None if they have none that could be one."""
    target = settings.get("dead_letter")
    named = target.get("topic") if isinstance(target, dict) else None
    return named if isinstance(named, str) else None


def without_hidden_letters(answer: Document, topic: str, principal: Principal) -> Document:
    """The description of a group of that topic, without the name of a topic that the principal may not observe.

    The default is shown: it says no more than the topic's own name.
    """
    if principal.grants.allow_everywhere("observe"):
        return answer
    content = answer.content()
    named = dead_letter_topic(content["settings"])
    if named is None or named == default_dead_letter_topic(topic) or principal.sees(named):
        return answer
    content["settings"]["dead_letter"] = {"topic": HIDDEN}
    if "dead_letters_delayed" in content:
        # The reason names the topic.
        content["dead_letters_delayed"]["reason"] = HIDDEN
    return Document.of(content, is_new=answer.is_new)
