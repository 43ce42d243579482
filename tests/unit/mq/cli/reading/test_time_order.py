import numpy as np
import pyarrow as pa

from filer.format.schema import TIMESTAMP
from mq.cli.reading.time_order import in_time_order


def page(*rows: tuple[int, int, int]) -> pa.Table:
    """Rows of segment, offset and time."""
    segments, offsets, times = zip(*rows, strict=True)
    return pa.table(
        {
            "segment": np.array(segments, np.int64),
            "_offset": np.array(offsets, np.int64),
            "_timestamp": pa.array(np.array(times, np.int64)).cast(TIMESTAMP),
        }
    )


def ids(table: pa.Table) -> list[str]:
    return [f"{row['segment']}-{row['_offset']}" for row in table.to_pylist()]


def test_messages_of_several_segments_come_by_time() -> None:
    rows = page((0, 0, 1), (0, 1, 4), (1, 0, 2), (1, 1, 4), (1, 2, 5))
    assert ids(in_time_order(rows, {})) == ["0-0", "1-0", "0-1", "1-1", "1-2"]


def test_a_successor_never_comes_before_its_predecessors_whatever_its_clock_says() -> None:
    # 3 follows 0, through 2, which has no message in the page. Its broker's clock is behind.
    rows = page((0, 0, 10), (0, 1, 20), (1, 0, 15), (3, 0, 12), (3, 1, 25))
    assert ids(in_time_order(rows, {2: (0,), 3: (2,)})) == ["0-0", "1-0", "0-1", "3-0", "3-1"]


def test_a_page_in_order_is_not_copied() -> None:
    rows = page((0, 0, 1), (0, 1, 1), (1, 0, 3))
    assert in_time_order(rows, {}) is rows
