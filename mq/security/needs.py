"""What a request needs: an action on a topic, on a group of it, or on the cluster. Decided by method and path alone.

So nothing is looked up before a request is allowed, and a refusal takes the same time and has the same words whether a
topic exists or not. What a body names besides is checked where it is understood (`Principal.require`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from mq.security.grants import Action

Subject = Literal["anybody", "topic", "group", "cluster"]


@dataclass(frozen=True, slots=True)
class Need:
    """An action on the topic, or on the group of a topic, that a path names, or on the cluster.

    On `anybody` every principal may do it: what is answered depends on the principal.
    """

    action: Action
    subject: Subject
    topic: str = ""
    group: str = ""


_TOPIC, _GROUP = "{topic}", "{group}"
_T = f"/v1/topics/{_TOPIC}"
_G = f"{_T}/groups/{_GROUP}"
_LOAD = f"{_T}/loads/{{load}}"
NEEDS: dict[tuple[str, str], tuple[Action, Subject]] = {
    ("GET", "/livez"): ("observe", "anybody"),
    ("GET", "/healthz"): ("observe", "anybody"),
    ("GET", "/readyz"): ("observe", "cluster"),
    ("GET", "/metrics"): ("observe", "cluster"),
    ("GET", "/docs"): ("observe", "anybody"),
    ("GET", "/docs/{name}"): ("observe", "anybody"),
    ("GET", "/openapi.json"): ("observe", "anybody"),
    ("GET", "/v1/cluster"): ("observe", "anybody"),
    ("GET", "/v1/cluster/verification"): ("observe", "cluster"),
    ("GET", "/v1/cluster/policy"): ("manage", "cluster"),
    ("PUT", "/v1/cluster/policy"): ("manage", "cluster"),
    ("POST", "/v1/cluster/brokers/{name}/drain"): ("manage", "cluster"),
    ("DELETE", "/v1/cluster/brokers/{name}/drain"): ("manage", "cluster"),
    ("GET", "/v1/topics"): ("observe", "anybody"),
    ("GET", "/v1/topic-groups"): ("observe", "anybody"),
    # A topic group is a topic too, under its own name.
    ("GET", f"/v1/topic-groups/{_TOPIC}"): ("observe", "topic"),
    ("PUT", f"/v1/topic-groups/{_TOPIC}"): ("manage", "topic"),
    ("DELETE", f"/v1/topic-groups/{_TOPIC}"): ("manage", "topic"),
    ("GET", _T): ("observe", "topic"),
    ("PUT", _T): ("manage", "topic"),
    ("DELETE", _T): ("manage", "topic"),
    ("GET", f"{_T}/route"): ("observe", "topic"),
    ("GET", f"{_T}/history"): ("observe", "topic"),
    ("GET", f"{_T}/verification"): ("observe", "topic"),
    ("POST", f"{_T}/upkeep"): ("manage", "topic"),
    ("POST", f"{_T}/segments/{{segment}}/split"): ("manage", "topic"),
    ("POST", f"{_T}/segments/{{segment}}/merge"): ("manage", "topic"),
    ("GET", f"{_T}/messages"): ("read", "topic"),
    ("GET", f"{_T}/messages/{{message}}"): ("read", "topic"),
    ("GET", f"{_T}/messages/{{message}}/payload"): ("read", "topic"),
    ("GET", f"{_T}/segments/{{segment}}/messages"): ("read", "topic"),
    ("GET", f"{_T}/segments/{{segment}}/files"): ("read", "topic"),
    ("GET", f"{_T}/files"): ("read", "topic"),
    ("GET", f"{_T}/positions"): ("read", "topic"),
    ("GET", f"{_T}/subscribe"): ("read", "topic"),
    # What goes over a socket is looked at frame by frame.
    ("GET", f"{_T}/socket"): ("observe", "topic"),
    ("POST", f"{_T}/subscribe/tickets"): ("read", "topic"),
    ("POST", f"{_T}/socket/tickets"): ("observe", "topic"),
    ("POST", f"{_T}/messages"): ("publish", "topic"),
    ("POST", f"{_T}/uploads"): ("publish", "topic"),
    ("PUT", f"{_T}/uploads/{{upload}}"): ("publish", "topic"),
    ("POST", f"{_T}/loads"): ("load", "topic"),
    ("POST", f"{_LOAD}/urls"): ("load", "topic"),
    ("GET", _LOAD): ("load", "topic"),
    ("POST", _LOAD): ("load", "topic"),
    ("DELETE", _LOAD): ("load", "topic"),
    ("PUT", f"{_LOAD}/files/{{segment}}/{{base_offset}}"): ("load", "topic"),
    ("GET", f"{_T}/groups"): ("observe", "topic"),
    ("GET", _G): ("observe", "group"),
    ("PUT", _G): ("manage", "group"),
    ("DELETE", _G): ("manage", "group"),
    ("POST", f"{_G}/reset"): ("manage", "group"),
    ("POST", f"{_G}/redrive"): ("manage", "group"),
    ("GET", f"{_G}/messages"): ("consume", "group"),
    ("POST", f"{_G}/claims"): ("consume", "group"),
    ("POST", f"{_G}/acks"): ("consume", "group"),
    ("POST", f"{_G}/releases"): ("consume", "group"),
    ("POST", f"{_G}/extensions"): ("consume", "group"),
    ("POST", f"{_G}/commits"): ("consume", "group"),
    ("POST", f"{_G}/members"): ("consume", "group"),
    ("POST", f"{_G}/members/{{member}}/heartbeats"): ("consume", "group"),
    ("DELETE", f"{_G}/members/{{member}}"): ("consume", "group"),
}
"""Every route, and what it needs. A route that is missing here is for those who manage the cluster; a test finds it."""
_UNKNOWN = Need("manage", "cluster")


@dataclass(slots=True)
class _Node:
    """The routes that begin alike: what follows by its word, or any word, and what ends here by its method."""

    words: dict[str, "_Node"] = field(default_factory=dict)
    any_word: "_Node | None" = None
    ends: dict[str, "_End"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _End:
    action: Action
    subject: Subject
    topic_at: int | None
    group_at: int | None


def need_of(method: str, path: str) -> Need:
    """What a request of that method to that path needs. No answer is kept: clients choose the paths."""
    words = path.split("/", _MOST_WORDS)
    node: _Node | None = _ROOT
    for word in words:
        assert node is not None
        node = node.words.get(word) or node.any_word
        if node is None:
            return _UNKNOWN
    end = node.ends.get("GET" if method == "HEAD" else method) if node is not None else None
    if end is None:
        return _UNKNOWN
    return Need(end.action, end.subject, _word(words, end.topic_at), _word(words, end.group_at))


def _word(words: Sequence[str], index: int | None) -> str:
    return "" if index is None else words[index]


def _tree() -> _Node:
    root = _Node()
    for (method, template), (action, subject) in NEEDS.items():
        words = template.split("/")
        node = root
        for word in words:
            if word.startswith("{"):
                node.any_word = node = node.any_word or _Node()
            else:
                node = node.words.setdefault(word, _Node())
        node.ends[method] = _End(action, subject, _index(words, _TOPIC), _index(words, _GROUP))
    return root


def _index(words: Sequence[str], word: str) -> int | None:
    return words.index(word) if word in words else None


_MOST_WORDS = max(template.count("/") for _, template in NEEDS) + 1
_ROOT = _tree()
