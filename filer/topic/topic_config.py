"""A topic's configuration: every setting, its default and its bounds in one place (docs/design.md §8, §11)."""

from collections.abc import Mapping
from math import inf
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from filer.strict_settings import merged_settings

MIB = 1024 * 1024
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, le=1e12)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Target(_Strict):
    """The traffic that one segment should carry per second: the aim of splits and merges."""

    messages: _Positive = 10_000
    bytes: _Positive = 4 * MIB


class SplitRule(_Strict):
    """Split when the rate has been above `times_target` × target for `for_seconds`."""

    times_target: _Positive
    for_seconds: _Positive


class MergeRule(_Strict):
    """Merge when the rates have been below `times_target` × target for `for_seconds`."""

    times_target: _Positive = 0.5
    for_seconds: _Positive = 1200


_SPLIT_DEFAULT = (
    SplitRule(times_target=5, for_seconds=120),
    SplitRule(times_target=2, for_seconds=300),
    SplitRule(times_target=1, for_seconds=600),
)


MERGE_SHARE = 0.75
"""A merge rule is at most this share of the lowest split rule: merged segments must not soon split again."""


class Scaling(_Strict):
    """When segments split and merge on their own."""

    enabled: bool = True
    split: tuple[SplitRule, ...] = Field(default=_SPLIT_DEFAULT, max_length=16)
    merge: MergeRule = MergeRule()
    cooldown_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False, le=1e9)] = 600

    @model_validator(mode="after")
    def _steady(self) -> "Scaling":
        lowest = min((rule.times_target for rule in self.split), default=inf)
        if self.merge.times_target > MERGE_SHARE * lowest:
            raise ValueError(
                f"merge.times_target ({self.merge.times_target:g}) must be at most {MERGE_SHARE:g} of the lowest "
                f"times_target of split ({lowest:g}), or merged segments would soon split again"
            )
        return self


class Retention(_Strict):
    """How long messages are kept; null for ever. The newest file of an open segment always stays."""

    seconds: _Positive | None = None
    bytes: Annotated[int, Field(gt=0, le=2**62)] | None = None


class TopicConfig(_Strict):
    """The configuration of a topic. Sizes are bytes, times seconds."""

    acks: Literal["stored", "replicated"] = "stored"
    replicas: Annotated[int, Field(ge=1, le=9)] = 1
    key_type: Literal["binary", "string"] = "binary"
    value_type: Literal["binary", "string", "json"] = "binary"
    min_segments: Annotated[int, Field(ge=1, le=4096)] = 1
    max_segments: Annotated[int, Field(ge=1, le=4096)] = 1024
    target: Target = Target()
    scaling: Scaling = Scaling()
    retention: Retention = Retention()
    overflow: Literal["reject", "block", "drop_oldest"] = "reject"
    segment_bytes: Annotated[int, Field(ge=1024, le=2**50)] = 16 * 1024 * MIB
    segment_seconds: Annotated[float, Field(ge=1, le=1e9, allow_inf_nan=False)] = 7 * 86_400
    rollup_bytes: Annotated[int, Field(ge=1024, le=1024 * MIB)] = 64 * MIB

    @model_validator(mode="after")
    def _consistent(self) -> "TopicConfig":
        if self.min_segments > self.max_segments:
            raise ValueError(f"min_segments ({self.min_segments}) is above max_segments ({self.max_segments})")
        if self.acks == "replicated" and self.replicas < 2:
            raise ValueError("acks 'replicated' needs replicas of 2 or more")
        return self


AT_CREATION = "segments"
"""The number of segments a topic begins with: given beside the settings when the topic is created."""

FIXED_FIELDS = ("key_type", "value_type")
"""Settings that determine the format of files already written: they cannot change while a topic exists."""


def parse_config(settings: Mapping[str, Any], *, base: TopicConfig | None = None) -> TopicConfig:
    """The configuration from user input on top of `base`, or of the defaults; objects are merged field by field.

    Raises `InvalidConfig`, which names the first wrong setting, and the nearest known one if it is unknown.
    """
    return merged_settings(base or TopicConfig(), settings, beside=(AT_CREATION,))
