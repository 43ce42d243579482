"""Columns without values."""

import resource
from pathlib import Path

import pyarrow as pa
import pytest

from filer.format.nulls import MOST_SHARED, null_column
from filer.format.schema import MessageSchema

MIB = 1024 * 1024


@pytest.mark.parametrize("kind", sorted({*MessageSchema.of("binary", "string").log.types}, key=str), ids=str)
@pytest.mark.parametrize("count", [0, 1, 1024, 1025, 70_000, MOST_SHARED + 1])
def test_is_as_arrow_makes_it(kind: pa.DataType, count: int) -> None:
    column = null_column(count, kind)
    column.validate(full=True)
    assert column.type == kind and len(column) == column.null_count == count
    assert column.equals(pa.nulls(count, kind))


def test_takes_no_memory() -> None:
    kinds = MessageSchema.of().log.types
    null_column(MOST_SHARED, kinds[0])
    before_bytes, arrow_bytes = resident_bytes(), pa.total_allocated_bytes()
    held = [null_column(MOST_SHARED, kind) for _ in range(10) for kind in kinds]
    for column in held:
        column.validate(full=True)
    assert pa.total_allocated_bytes() - arrow_bytes < MIB
    assert resident_bytes() - before_bytes < 20 * MIB


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()
