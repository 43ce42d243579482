"""The limits on what the requests of one principal may take of a broker."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from filer.errors import InvalidInput
from mq.security.grants import Pattern, parse_pattern

MOST = 2**53
_STORAGE, STORAGE_TOPICS = "storage_bytes", "storage_topics"


@dataclass(frozen=True, slots=True)
class Limits:
    """None is no limit. Each broker counts for itself, except for storage.

    `groups` is how many consumer groups of each topic a coordinator has for it. `storage_bytes` is how much the topics
    that `storage_topics` names may have on the store.
    """

    requests_per_second: int | None = None
    publish_bytes_per_second: int | None = None
    read_bytes_per_second: int | None = None
    streams: int | None = None
    connections: int | None = None
    topics_per_hour: int | None = None
    groups: int | None = None
    storage_bytes: int | None = None
    storage_topics: str | None = None

    def given(self) -> dict[str, int | str]:
        """The limits that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def stored(self) -> Pattern | None:
        """The topics whose storage is limited; None if there is no such limit."""
        return None if self.storage_topics is None else parse_pattern(self.storage_topics)


LIMITS = tuple(Limits.__dataclass_fields__)


def limits_of(given: Mapping[str, Any]) -> Limits:
    """The limits among these fields. Raises `InvalidInput` for one with a wrong value, and if there is none."""
    found = {name: given[name] for name in LIMITS if name in given}
    for name, value in found.items():
        if name != STORAGE_TOPICS and not _is_limit(value):
            raise InvalidInput(f"{name} is a whole number from 1 on, not {value!r:.80}; the most is {MOST}")
    _check_storage(found)
    if not found:
        raise InvalidInput(f"it limits nothing: give it {', '.join(LIMITS)}, or one of them")
    return Limits(**found)


def known_limits(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are valid limits. The two of storage go together."""
    found = {
        name: given[name] for name in LIMITS if name in given and (name == STORAGE_TOPICS or _is_limit(given[name]))
    }
    try:
        _check_storage(found)
    except InvalidInput:
        return {name: value for name, value in found.items() if name not in (_STORAGE, STORAGE_TOPICS)}
    return found


def _is_limit(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST


def _check_storage(found: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` unless a limit of storage names its topics, and the other way round."""
    topics = found.get(STORAGE_TOPICS)
    if (topics is None) != (_STORAGE not in found):
        raise InvalidInput(f"{_STORAGE} and {STORAGE_TOPICS} belong together: so much for the topics that it names")
    if topics is None:
        return
    if not isinstance(topics, str):
        raise InvalidInput(f"{STORAGE_TOPICS} is a topic's name, or a prefix with * behind it, not {topics!r:.80}")
    try:
        parse_pattern(topics)
    except InvalidInput as error:
        raise InvalidInput(f"{STORAGE_TOPICS}: {error}") from error
