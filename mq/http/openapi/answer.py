"""The base of the models of answers."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Absent:
    """The default of a field that may be missing. All other fields are always there, null or not."""


ABSENT: Any = Absent()


class Answer(BaseModel):
    """A JSON object in an answer. The text below a field describes it."""

    model_config = ConfigDict(use_attribute_docstrings=True)
