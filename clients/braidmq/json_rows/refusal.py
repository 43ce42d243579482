"""A value that would not keep its meaning: which one, and why."""

from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from braidmq.errors import InvalidArgument

_SHOWN_CHARACTERS = 60


class Refusal(Exception):
    """A value cannot be written or read. `index` counts within the array that holds it, `path` leads to that array.

    `column` is its column, once that is known.
    """

    def __init__(self, index: int, why: str, path: str = "") -> None:
        super().__init__(why)
        self.index, self.why, self.path = index, why, path
        self.column: str | None = None

    def told(self) -> str:
        """The column and the reason."""
        return self.why if self.column is None else f"column {self.column + self.path!r}: {self.why}"

    def within(
        self, step: str, indexes: "Sequence[int] | np.ndarray[tuple[int, ...], np.dtype[np.int64]]"
    ) -> "Refusal":
        """The same refusal in the array around it. Its value `i` came from value `indexes[i]` of that array."""
        return Refusal(int(indexes[self.index]), self.why, step + self.path)

    def below(self, step: str) -> "Refusal":
        """The same refusal, one step further down at the same index."""
        return Refusal(self.index, self.why, step + self.path)

    def raise_for(self, column: str | None, first_row: int) -> NoReturn:
        """Raise `InvalidArgument` with the column, the row (from 0) and the reason."""
        where = f"row {first_row + self.index}"
        if column is not None:
            where = f"column {column + self.path!r}, {where}"
        raise InvalidArgument(f"{where}: {self.why}") from self


def shown(value: object) -> str:
    """A value as an error message shows it."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
