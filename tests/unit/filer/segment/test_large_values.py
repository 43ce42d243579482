"""A large value by itself: it is there once, in its request and in its column."""

import pyarrow as pa
import pytest

from filer.format.schema import MessageSchema, ValueType
from filer.segment.next_file import Single, rows_of_payloads
from filer.segment.segment_log import SegmentRef

LARGE_BYTES = 1024 * 1024


@pytest.mark.parametrize("value_type", ["binary", "string", "json"])
@pytest.mark.parametrize("size_bytes", [0, 1, LARGE_BYTES - 1, LARGE_BYTES, 3 * LARGE_BYTES])
def test_a_column_is_what_it_was_given(value_type: ValueType, size_bytes: int) -> None:
    value = b"7" * size_bytes
    rows = rows_of_payloads(
        SegmentRef("t", 0, MessageSchema.of("binary", value_type)), [Single(b"key", value, None, None)]
    )
    rows.validate(full=True)
    (found,) = rows["value"].to_pylist()
    assert found == (value if value_type == "binary" else value.decode())


def test_a_large_value_is_not_copied() -> None:
    value = bytes(LARGE_BYTES)
    rows = rows_of_payloads(SegmentRef("t", 0), [Single(None, value, None, None)])
    assert rows["value"].chunk(0).buffers()[2].address == pa.py_buffer(value).address
