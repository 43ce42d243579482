"""The settings of a consumer group: their defaults and bounds (docs/consuming.md)."""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from filer.errors import InvalidConfig
from filer.keys import MOST_NAME_CHARS, check_name
from filer.strict_settings import merged_settings

Mode = Literal["queue", "stream"]
Acks = Literal["stored", "replicated"]
_Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
MOST_LEASE_SECONDS = 43_200
MOST_SESSION_SECONDS = 3_600
DEAD_SUFFIX = ".dead"
_DIGEST_CHARS = 16
FIXED_SETTINGS = ("mode", "order")
"""By these, a coordinator that takes over knows what may have been handed out."""
STREAM_SETTINGS = frozenset(("session_seconds",))
"""The settings of stream groups. The others are those of queue groups."""


class DeadLetter(BaseModel):
    """Where messages go that no consumer could process."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    topic: Annotated[str, AfterValidator(check_name)]


class GroupSettings(BaseModel):
    """All settings of a group of either mode; `in_force` are those that have a meaning in its own mode.

    `acks` says when the group's memory counts as durable, and is answered: as for the messages of a topic.
    `dead_letter` is None if dead messages go nowhere; they are counted all the same.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Mode = "queue"
    acks: Acks = "stored"
    lease_seconds: Annotated[float, Field(ge=1, le=MOST_LEASE_SECONDS, allow_inf_nan=False)] = 30
    max_deliveries: Annotated[int, Field(ge=1, le=1000)] = 5
    backoff_seconds: Annotated[tuple[_Seconds, ...], Field(min_length=1, max_length=100)] = (1, 5, 30, 300)
    max_in_flight: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    order: Literal["none", "key"] = "none"
    dead_letter: DeadLetter | None = None
    session_seconds: Annotated[float, Field(ge=1, le=MOST_SESSION_SECONDS, allow_inf_nan=False)] = 30

    @model_validator(mode="after")
    def _internal_topics_take_none(self) -> Self:
        if self.dead_letter is not None and self.dead_letter.topic.startswith("__"):
            raise ValueError("dead_letter.topic: names that begin with __ are internal")
        return self

    def in_force(self) -> dict[str, Any]:
        """The settings that count in its mode, as JSON has them."""
        return {name: value for name, value in self.model_dump(mode="json").items() if _counts(name, self.mode)}

    def backoff_ms(self, deliveries: int) -> int:
        """How long a message waits after so many deliveries that failed, from 1 on."""
        return round(self.backoff_seconds[min(deliveries, len(self.backoff_seconds)) - 1] * 1000)

    @property
    def lease_ms(self) -> int:
        """How long a claim is valid, unless it is extended."""
        return round(self.lease_seconds * 1000)

    @property
    def session_ms(self) -> int:
        """How long a member keeps its segments without being heard."""
        return round(self.session_seconds * 1000)


def _counts(name: str, mode: str) -> bool:
    return name in ("mode", "acks") or (name in STREAM_SETTINGS) == (mode == "stream")


def recorded_settings(plain: Mapping[str, Any]) -> GroupSettings:
    """The settings in a record. Groups with the same ones share an object. Raises `ValueError` if they are wrong."""
    return _shared_settings(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS))


@lru_cache(maxsize=1024)
def _shared_settings(data: bytes) -> GroupSettings:
    return GroupSettings.model_validate(orjson.loads(data))


def default_settings(topic: str, acks: Acks) -> GroupSettings:
    """The settings of a group without any given ones. It is as durable as its topic, which has these `acks`."""
    return GroupSettings(acks=acks, dead_letter=_default_dead_letter(topic))


def _default_dead_letter(topic: str) -> DeadLetter | None:
    # Dead letters of dead letters would go round for ever.
    return None if topic.endswith(DEAD_SUFFIX) else DeadLetter(topic=default_dead_letter_topic(topic))


def default_dead_letter_topic(topic: str) -> str:
    """Where dead letters of a topic's groups go unless they say otherwise: `<topic>.dead`.

    If that would be too long for a name, a digest of the topic's name replaces its end, so that each topic has its own.
    """
    name = f"{topic}{DEAD_SUFFIX}"
    if len(name) <= MOST_NAME_CHARS:
        return name
    digest = sha256(topic.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{topic[: MOST_NAME_CHARS - len(DEAD_SUFFIX) - _DIGEST_CHARS - 1]}-{digest}{DEAD_SUFFIX}"


def parse_settings(given: Mapping[str, Any], base: GroupSettings) -> GroupSettings:
    """The settings `base` with the given ones. Raises `InvalidConfig`, which names the setting and what would be right.

    A setting of the other mode is refused: it would do nothing.
    """
    mode = given.get("mode", base.mode)
    if mode == "stream" and base.mode == "queue":
        base = GroupSettings(mode="stream", acks=base.acks)
    settings = merged_settings(base, given, what="setting of a group")
    for name in given:
        if not _counts(name, settings.mode):
            known = ", ".join(each for each in settings.in_force() if each != "mode")
            raise InvalidConfig(f"{name}: {settings.mode} groups have no such setting; theirs are {known}")
    return settings
