"""The settings of a topic, as `create_topic` takes them (docs/http.md explains each)."""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict


class TargetSettings(TypedDict, total=False):
    """The traffic per second that one segment should carry."""

    messages: float
    bytes: float


class RetentionSettings(TypedDict, total=False):
    """How long messages are kept; None for ever."""

    seconds: float | None
    bytes: int | None


class TopicSettings(TypedDict, total=False):
    """All settings; those that are not given keep their value, or have their default in a new topic."""

    segments: int
    acks: Literal["stored", "replicated"]
    replicas: int
    key_type: Literal["binary", "string"]
    value_type: Literal["binary", "string", "json"]
    min_segments: int
    max_segments: int
    target: TargetSettings
    scaling: Mapping[str, Any]
    retention: RetentionSettings
    overflow: Literal["reject", "block", "drop_oldest"]
    segment_bytes: int
    segment_seconds: float
    rollup_bytes: int
