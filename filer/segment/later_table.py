"""The rows of a file that become columns only when a reader asks for them.

Most files of single messages are never read from memory, and making their columns takes as long as making the file.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

RowNumbers: TypeAlias = npt.NDArray[np.int64]
"""Numbers of rows of a file, from 0 on, in ascending order."""
Part = TypeVar("Part")


class LaterTable(Generic[Part]):
    """So many rows. `make` makes them of `part`, alone or together with the parts of the files that follow it.

    Until then, each row takes `row_bytes` beside its data. `pick` makes the keys and values of some of them. Belongs to
    one thread.
    """

    __slots__ = ("_made", "_make", "_part", "_pick", "num_rows", "row_bytes")

    def __init__(
        self,
        num_rows: int,
        part: Part,
        make: Callable[[Sequence[Part]], pa.Table],
        *,
        row_bytes: int = 0,
        pick: Callable[[Part, RowNumbers], pa.Table] | None = None,
    ) -> None:
        self.num_rows, self.row_bytes = num_rows, row_bytes
        self._part: Part | None = part
        self._make, self._pick = make, pick
        self._made: pa.Table | None = None

    def table(self) -> pa.Table:
        """The rows. They are made once, and then their source is released."""
        if self._part is not None:
            self._made, self._part = self._make([self._part]), None
        return self._made

    def picked(self, numbers: RowNumbers) -> pa.Table:
        """The columns `key` and `value` of these rows, at least. Makes all rows only if some cannot be made alone."""
        if self._part is None or self._pick is None:
            return self.table().take(numbers)
        return self._pick(self._part, numbers)

    def to_make(self) -> tuple[Callable[[Sequence[Part]], pa.Table], Part] | None:
        """The function that makes the rows, and the part it needs; None if they are made."""
        return None if self._part is None else (self._make, self._part)


Rows: TypeAlias = pa.Table | LaterTable[Any]


def table_of(rows: Rows) -> pa.Table:
    """These rows as columns."""
    return rows.table() if isinstance(rows, LaterTable) else rows


def picked_rows(rows: Rows, numbers: RowNumbers) -> pa.Table:
    """The columns `key` and `value` of these rows, at least."""
    return rows.picked(numbers) if isinstance(rows, LaterTable) else rows.select(["key", "value"]).take(numbers)


def tables_of(files: Sequence[Rows]) -> list[pa.Table]:
    """The rows of files that follow each other, as columns.

    Those that are not made yet are made in one go, since each file by itself costs more than its messages do. The files
    stay as they are, so that the rows are not held twice.
    """
    tables: list[pa.Table] = []
    to_make = [rows.to_make() if isinstance(rows, LaterTable) else None for rows in files]
    for make, group in groupby(zip(files, to_make, strict=True), lambda each: each[1] and each[1][0]):
        if make is None:
            tables += [table_of(rows) for rows, _ in group]
        else:
            tables.append(make([later[1] for _, later in group if later is not None]))
    return tables
