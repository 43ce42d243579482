"""The settings of a consumer group, as `Group.create` takes them (docs/consuming.md explains each)."""

from collections.abc import Sequence
from typing import Literal, TypedDict


class DeadLetterSettings(TypedDict):
    """Where messages go that no worker could process: a topic of the same types of keys and values."""

    topic: str


class GroupSettings(TypedDict, total=False):
    """All settings; those that are not given keep their value, or have their default in a new group."""

    mode: Literal["queue", "stream"]
    acks: Literal["stored", "replicated"]
    lease_seconds: float
    max_deliveries: int
    backoff_seconds: Sequence[float]
    max_in_flight: int
    order: Literal["none", "key"]
    dead_letter: DeadLetterSettings | None
    session_seconds: float
