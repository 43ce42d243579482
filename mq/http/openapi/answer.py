"""The base of the models of answers."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class Absent:
    """The default of a field that may be missing. All other fields are always there, null or not."""


ABSENT: Any = Absent()
Slots = Annotated[list[int], Field(min_length=2, max_length=2, description="The slots `[from, to)` of its keys.")]
"""The slots of a segment."""


class Answer(BaseModel):
    """A JSON object in an answer. The text below a field describes it."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Difference(Answer):
    """A wish that was ignored, since it counts at creation only."""

    wanted: Any
    actual: Any


class Put(Answer):
    """What a `PUT` answers beside the description of what it created or changed."""

    created: bool
    differs: dict[str, Difference]
    """The settings of the request that the broker ignored, by name."""
