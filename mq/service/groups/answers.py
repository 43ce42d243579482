"""The answers to requests about groups, wherever the group is coordinated. They are written already."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from mq.forms.render import Part


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON object in parts. `is_new`: the request has created what it describes."""

    parts: Sequence[Part]
    is_new: bool = False

    @classmethod
    def of(cls, content: Mapping[str, Any], *, is_new: bool = False) -> "Document":
        """The object with that content."""
        return cls([orjson.dumps(content)], is_new)

    def content(self) -> dict[str, Any]:
        """The content, parsed."""
        found: dict[str, Any] = orjson.loads(b"".join(self.parts))
        return found


@dataclass(frozen=True, slots=True)
class Claimed:
    """So many claimed messages and their claims, in parts, in that format."""

    media_type: str
    parts: Sequence[Part]
    count: int


Names = Sequence[tuple[str, str]]
"""The names of groups, each with its mode."""
