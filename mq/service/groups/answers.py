"""The answers to requests about groups, wherever the group is coordinated. They are written already."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from mq.forms.render import Part
from mq.service.groups.claims_page import count_of


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
    """Claimed messages and their claims, in parts, in that format.

    `messages` is their number; None if a coordinator of an earlier version has not sent it.
    """

    media_type: str
    parts: Sequence[Part]
    messages: int | None

    def count(self) -> int:
        """The number of messages. For a coordinator of an earlier version this parses the page."""
        return count_of(self.media_type, b"".join(self.parts)) if self.messages is None else self.messages


Names = Sequence[tuple[str, str]]
"""The names of groups, each with its mode."""
