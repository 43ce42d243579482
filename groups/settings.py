"""The settings of a consumer group: their defaults and bounds (docs/consuming.md)."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from filer.keys import check_name
from filer.strict_settings import merged_settings

Mode = Literal["queue"]
_Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
MOST_LEASE_SECONDS = 43_200
DEAD_SUFFIX = ".dead"
FIXED_SETTINGS = ("mode", "order")
"""A coordinator that takes over tells by them what may have been handed out."""


class DeadLetter(BaseModel):
    """Where messages go that nobody could work on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    topic: Annotated[str, AfterValidator(check_name)]


class GroupSettings(BaseModel):
    """All settings of a group.

    `dead_letter` is None if dead messages go nowhere; they are counted all the same.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Mode = "queue"
    lease_seconds: Annotated[float, Field(ge=1, le=MOST_LEASE_SECONDS, allow_inf_nan=False)] = 30
    max_deliveries: Annotated[int, Field(ge=1, le=1000)] = 5
    backoff_seconds: Annotated[tuple[_Seconds, ...], Field(min_length=1, max_length=100)] = (1, 5, 30, 300)
    max_in_flight: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    order: Literal["none", "key"] = "none"
    dead_letter: DeadLetter | None = None

    @model_validator(mode="after")
    def _internal_topics_take_none(self) -> Self:
        if self.dead_letter is not None and self.dead_letter.topic.startswith("__"):
            raise ValueError("dead_letter.topic: names that begin with __ are internal")
        return self

    def backoff_ms(self, deliveries: int) -> int:
        """How long a message waits after so many deliveries that failed, from 1 on."""
        return round(self.backoff_seconds[min(deliveries, len(self.backoff_seconds)) - 1] * 1000)

    @property
    def lease_ms(self) -> int:
        """How long a claim is valid, unless it is extended."""
        return round(self.lease_seconds * 1000)


def default_settings(topic: str) -> GroupSettings:
    """Those of a group of that topic about which nobody has said anything."""
    return GroupSettings(dead_letter=_default_dead_letter(topic))


def _default_dead_letter(topic: str) -> DeadLetter | None:
    # Dead letters of dead letters would go round for ever.
    return None if topic.endswith(DEAD_SUFFIX) else DeadLetter(topic=f"{topic}{DEAD_SUFFIX}")


def parse_settings(given: Mapping[str, Any], base: GroupSettings) -> GroupSettings:
    """The settings `base` with what is given. Raises `InvalidConfig` that names the setting and what would be right."""
    return merged_settings(base, given, what="setting of a group")
