"""What a read finds of one segment."""

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive messages of one segment, in the columns of `MessageSchema.log`; `end` is the offset behind them.

    `size_bytes` is what they take. It is remembered: Arrow takes long to tell it.
    """

    segment: int
    end: int
    table: pa.Table
    size_bytes: int

    @classmethod
    def of(cls, segment: int, end: int, table: pa.Table) -> "Run":
        """The messages of that table."""
        return cls(segment, end, table, table.nbytes if table.num_rows else 0)
