"""Columns of numbers that go up by the same step are told from all others by their bytes."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filer.bulk_load.stepped_columns import is_arithmetic

ROWS = 50_000
FIRST = 1_700_000_000_000_000


def found(numbers: list[int], *, first: int, step: int, rows: int | None = None, **settings: object) -> bool:
    """Whether it is found that a column goes up like that, in a file of a single row group."""
    sink = pa.BufferOutputStream()
    written = {"compression": "zstd", "column_encoding": {"x": "DELTA_BINARY_PACKED"}} | settings
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    pq.write_table(pa.table({"x": numbers}, schema), sink, use_dictionary=False, **written)
    data = sink.getvalue().to_pybytes()
    column = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0)
    wanted = len(numbers) if rows is None else rows
    return is_arithmetic(lambda start, stop: data[start:stop], column, wanted, first=first, step=step)


@pytest.mark.parametrize("first", [0, 1, 63, 64, FIRST])
@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("rows", [1, 2, 256, 257, 258, ROWS])
def test_steps_are_told_in_one_page_and_in_several(first: int, step: int, rows: int) -> None:
    numbers = [first + step * row for row in range(rows)]
    assert found(numbers, first=first, step=step)
    assert found(numbers, first=first, step=step, max_rows_per_page=ROWS)


@pytest.mark.parametrize("index", [0, 1, 255, 256, 19_999, 20_000, ROWS - 1])
def test_a_single_number_that_is_another_is_seen(index: int) -> None:
    for step in (0, 1):
        numbers = [FIRST + step * row for row in range(ROWS)]
        numbers[index] += 1
        assert not found(numbers, first=FIRST, step=step)


def test_another_first_number_step_or_count_is_not_taken() -> None:
    numbers = list(range(5, 305))
    assert found(numbers, first=5, step=1)
    assert not found(numbers, first=4, step=1)
    assert not found(numbers, first=5, step=0)
    assert not found(numbers, first=5, step=1, rows=299)
    assert not found(numbers, first=5, step=1, rows=301)


def test_what_is_written_otherwise_is_left_to_decoding() -> None:
    numbers = list(range(300))
    assert not found(numbers, first=0, step=1, compression="snappy")
    assert not found(numbers, first=0, step=1, column_encoding={"x": "PLAIN"})
