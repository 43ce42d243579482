"""What a read finds of one segment."""

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive messages of one segment, in the columns of `log_schema`; `end` is the offset after the last one."""

    segment: int
    end: int
    table: pa.Table
