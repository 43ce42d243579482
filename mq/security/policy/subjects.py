"""Patterns of principals: a name, or the prefix of names with `*` behind it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from filer.errors import InvalidInput

LONGEST = 1000
WANTED = f"a principal's name, or a prefix with * behind it, of 1 to {LONGEST} printable characters"


@dataclass(frozen=True, slots=True)
class Subjects:
    """The principals of that name, or with names that begin with it."""

    text: str

    def match(self, name: str) -> bool:
        """Whether the pattern matches that principal."""
        return name.startswith(self.text[:-1]) if self.text.endswith("*") else name == self.text


def subjects_of(given: Mapping[str, Any]) -> Subjects:
    """The pattern in `principal`. Raises `InvalidInput`."""
    text = text_of(given, "principal", WANTED)
    if "*" in text[:-1]:
        raise InvalidInput(f"{text!r:.210} is not {WANTED}: * stands at its end alone")
    return Subjects(text)


def text_of(given: Mapping[str, Any], field: str, wanted: str) -> str:
    """A text for a principal, or for the id of a token. Raises `InvalidInput`."""
    text = given.get(field)
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST or not text.isprintable():
        raise InvalidInput(f"it needs {field}, {wanted}")
    return text
