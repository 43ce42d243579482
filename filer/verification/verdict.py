"""What a check found out about a file."""

from dataclasses import dataclass
from typing import Literal

Condition = Literal["ok", "unchecked", "given up", "damaged", "missing"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The condition of an object on the store, by its key.

    `unchecked`: it fits its name, and has no digests: version 0.1 wrote the file, or no SHA-256 of the payload was
    announced. `given up`: it is lost, and readers do not wait for it. `why` says what is wrong with one that is damaged
    or missing; it is empty for sound ones.
    """

    key: str
    condition: Condition
    why: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is known against it."""
        return self.condition in ("ok", "unchecked", "given up")
