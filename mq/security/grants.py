"""What a principal may do: grants over topics, their groups and the cluster, by prefix.

A grant is written as one word, in tokens, in the policy and on the command line:

    topic:orders-*:read,publish        these topics, and all of their groups
    topic:orders-*/billing-*:consume   only these groups of these topics
    cluster:observe                    the cluster itself

A pattern is a name, or a prefix with `*` behind it. `*` does not match the brokers' own topics (`__groups`), unless the
pattern begins with their two underscores.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from filer.errors import InvalidInput
from filer.keys import INTERNAL_PREFIX
from filer.nearest import unknown_name

Action: TypeAlias = Literal["observe", "read", "publish", "consume", "load", "manage"]
ACTIONS: tuple[Action, ...] = get_args(Action)
_OF_CLUSTER: tuple[Action, ...] = ("observe", "manage")
_OF_GROUPS: tuple[Action, ...] = ("observe", "consume", "manage")
MOST_GRANTS = 100
_PATTERN = re.compile(r"[A-Za-z0-9._-]{0,200}\*|[A-Za-z0-9._-]{1,200}")
FORMS = "topic:PATTERN:ACTIONS, topic:PATTERN/GROUPS:ACTIONS or cluster:ACTIONS"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A name, or the prefix of names."""

    prefix: str
    is_whole: bool

    def matches(self, name: str) -> bool:
        """Whether the pattern matches a name."""
        if self.is_whole:
            return name == self.prefix
        return name.startswith(self.prefix) and (
            not name.startswith(INTERNAL_PREFIX) or self.prefix.startswith(INTERNAL_PREFIX)
        )

    def __str__(self) -> str:
        return self.prefix if self.is_whole else f"{self.prefix}*"


_ALL = Pattern("", is_whole=False)


@dataclass(frozen=True, slots=True)
class Grant:
    """Allows `actions` on the topics that match, or on the cluster (`topics` is None).

    With `groups` it allows them only on these groups of these topics, and to see the topics.
    """

    actions: frozenset[Action]
    topics: Pattern | None = None
    groups: Pattern | None = None

    def __str__(self) -> str:
        possible = _OF_CLUSTER if self.topics is None else ACTIONS if self.groups is None else _OF_GROUPS
        actions = "*" if len(self.actions) == len(possible) else ",".join(a for a in possible if a in self.actions)
        if self.topics is None:
            return f"cluster:{actions}"
        return f"topic:{self.topics}{'' if self.groups is None else f'/{self.groups}'}:{actions}"


class Grants:
    """All grants of a principal."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self.all = tuple(grants)

    def allow(self, action: Action, topic: str, group: str | None = None) -> bool:
        """Whether an action is allowed on a topic, or on a group of it. Any grant on it includes `observe`."""
        return any(
            grant.topics is not None
            and grant.topics.matches(topic)
            and (
                (action in grant.actions and _is_of_group(grant.groups, group))
                or (action == "observe" and (group is None or _is_of_group(grant.groups, group)))
            )
            for grant in self.all
        )

    def allow_everywhere(self, action: Action) -> bool:
        """Whether an action is allowed on every topic but the brokers' own."""
        return any(g.topics == _ALL and g.groups is None and action in g.actions for g in self.all)

    def allow_on_cluster(self, action: Action) -> bool:
        """Whether an action is allowed on the cluster itself."""
        return any(g.topics is None and (action in g.actions or action == "observe") for g in self.all)


def _is_of_group(groups: Pattern | None, group: str | None) -> bool:
    return groups is None or (group is not None and groups.matches(group))


NO_GRANTS = Grants(())
EVERYTHING = Grants(
    [
        Grant(frozenset(ACTIONS), Pattern("", is_whole=False)),
        Grant(frozenset(ACTIONS), Pattern(INTERNAL_PREFIX, is_whole=False)),
        Grant(frozenset(_OF_CLUSTER)),
    ]
)


def parse_grants(words: Iterable[str]) -> Grants:
    """The grants in these words. Raises `InvalidInput` for a word that is no grant, and for too many."""
    grants = [parse_grant(word) for word in words]
    if len(grants) > MOST_GRANTS:
        raise InvalidInput(f"{len(grants)} grants are too many: {MOST_GRANTS} are the most; use prefixes")
    return Grants(grants)


def parse_grant(word: str) -> Grant:
    """The grant in a word. Raises `InvalidInput`."""
    kind, *rest = word.split(":")
    if kind == "cluster" and len(rest) == 1:
        return Grant(_actions(rest[0], _OF_CLUSTER, word))
    if kind == "topic" and len(rest) == 2:
        topics, slash, groups = rest[0].partition("/")
        actions = _actions(rest[1], _OF_GROUPS if slash else ACTIONS, word)
        return Grant(actions, _pattern(topics, word), _pattern(groups, word) if slash else None)
    raise InvalidInput(f"{word!r:.300} is no grant: write {FORMS}")


def parse_pattern(text: str, within: str = "") -> Pattern:
    """The pattern in a text. Raises `InvalidInput`."""
    if not _PATTERN.fullmatch(text):
        raise InvalidInput(f"{text!r:.220}{within} is no pattern: write a name, or a prefix with * behind it")
    return Pattern(text.removesuffix("*"), not text.endswith("*"))


def _pattern(text: str, word: str) -> Pattern:
    return parse_pattern(text, f" in the grant {word!r:.300}")


def _actions(text: str, possible: tuple[Action, ...], word: str) -> frozenset[Action]:
    if text == "*":
        return frozenset(possible)
    known: dict[str, Action] = {action: action for action in possible}
    found = text.split(",")
    for each in found:
        if each not in known:
            raise InvalidInput(f"the grant {word!r:.300}: {unknown_name('action', each, known)}")
    return frozenset(known[each] for each in found)
