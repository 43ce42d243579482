"""The result of a read of one segment."""

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive messages of one segment, in the columns of `MessageSchema.log`; `end` is the offset behind them.

    `size_bytes` is their size. It is kept, since Arrow takes long to compute it.
    """

    segment: int
    end: int
    table: pa.Table
    size_bytes: int

    @classmethod
    def of(cls, segment: int, end: int, table: pa.Table) -> "Run":
        """Make a run of the messages of that table."""
        return cls(segment, end, table, table.nbytes if table.num_rows else 0)
