"""The rows of a file that become columns once somebody asks for them.

Nobody reads most files of single messages from memory, and making their columns takes as long as making the file.
"""

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa


class LaterTable:
    """So many rows. Belongs to one thread."""

    __slots__ = ("_made", "_make", "num_rows")

    def __init__(self, num_rows: int, make: Callable[[], pa.Table]) -> None:
        self.num_rows = num_rows
        self._make: Callable[[], pa.Table] | None = make
        self._made: pa.Table | None = None

    def table(self) -> pa.Table:
        """The rows. They are made once, and what they are made of is let go then."""
        if self._make is not None:
            self._made, self._make = self._make(), None
        return self._made


Rows: TypeAlias = pa.Table | LaterTable


def table_of(rows: Rows) -> pa.Table:
    """These rows as columns."""
    return rows.table() if isinstance(rows, LaterTable) else rows
