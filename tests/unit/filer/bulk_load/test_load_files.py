"""Files of a load: the format of any segment file, and the same bytes however the rows came."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filer.bulk_load.load_files import LARGEST_ROW_BYTES, LoadFile, as_rows, load_files, slots_of_rows
from filer.bulk_load.load_segment import LoadSegment
from filer.errors import InvalidInput
from filer.format.schema import OF_BYTES, MessageSchema
from filer.format.segment_file import decode, read_footer
from filer.slots import slot_of

TIME_US = 1_700_000_000_000_000
WHOLE = LoadSegment("backfill", 7, 0, 65_536, TIME_US)


def messages(count: int, *, value_bytes: int = 20) -> pa.Table:
    """Messages of different sizes, some without a key, with headers and times."""
    return pa.table(
        {
            "key": pa.array([None if row % 10 == 9 else b"key-%d" % row for row in range(count)], pa.binary()),
            "value": [b"%d" % row + b"v" * (row % value_bytes) for row in range(count)],
            "event_time": pa.array([TIME_US + row for row in range(count)], pa.timestamp("us", "UTC")),
            "headers": pa.array(
                [None if row % 3 else [("n", b"x" * (row % 50))] for row in range(count)],
                pa.map_(pa.string(), pa.binary()),
            ),
        }
    )


def files_of(batches: Iterable[Any], segment: LoadSegment = WHOLE, **settings: int) -> list[LoadFile]:
    return list(load_files(batches, segment, **settings))


def in_batches(table: pa.Table, rows: int) -> list[pa.RecordBatch]:
    return [batch for first in range(0, len(table), rows) for batch in table.slice(first, rows).to_batches()]


def test_a_file_is_a_segment_file() -> None:
    (file,) = files_of([messages(100)])
    footer = read_footer(file.data.to_pybytes())
    assert (footer.segment, footer.base, footer.count, footer.writer) == (7, 0, 100, "load:backfill")
    assert (footer.first_timestamp_us, footer.last_timestamp_us, footer.refs, footer.sealed) == (
        TIME_US,
        TIME_US,
        0,
        False,
    )
    table = decode(file.data.to_pybytes())
    assert table["_offset"].to_pylist() == list(range(100))
    assert set(table["_timestamp"].to_pylist()) == {datetime.fromtimestamp(TIME_US / 1e6, UTC)}
    assert table.select(["key", "value", "event_time", "headers"]).to_pylist() == messages(100).to_pylist()
    assert file.name == "00000000000000000000.parquet"


@pytest.mark.parametrize("rows", [1, 7, 300, 5000])
def test_how_the_rows_came_does_not_show(rows: int) -> None:
    table = messages(5000)
    wanted = files_of([table], file_bytes=50_000)
    found = files_of(in_batches(table, rows), file_bytes=50_000)
    assert len(wanted) > 5
    assert [(f.base_offset, f.count, f.data.to_pybytes()) for f in found] == [
        (f.base_offset, f.count, f.data.to_pybytes()) for f in wanted
    ]


def test_files_follow_each_other_without_a_gap() -> None:
    files = files_of([messages(5000)], file_bytes=20_000)
    assert [f.base_offset for f in files] == [sum(f.count for f in files[:index]) for index in range(len(files))]
    read = pa.concat_tables(decode(f.data.to_pybytes()) for f in files)
    assert read["_offset"].to_pylist() == list(range(5000))
    assert read["value"].to_pylist() == messages(5000)["value"].to_pylist()


def test_a_large_file_has_row_groups_of_bounded_size() -> None:
    table = messages(8000, value_bytes=10_000)
    (file,) = files_of([table])
    groups = pq.ParquetFile(pa.BufferReader(file.data)).metadata
    sizes = [groups.row_group(index).total_byte_size for index in range(groups.num_row_groups)]
    assert len(sizes) > 2
    assert max(sizes) < 9 * 1024 * 1024
    assert decode(file.data.to_pybytes())["_offset"].to_pylist() == list(range(8000))


def test_no_messages_make_no_file() -> None:
    assert files_of([]) == []
    assert files_of([messages(0)]) == []


def test_types_become_those_of_the_topic() -> None:
    segment = LoadSegment("l", 1, 0, 65_536, TIME_US, MessageSchema.of("string", "json"))
    rows = pa.table({"key": pa.array(["a", "b"], pa.large_string()), "value": [b'{"n": 1}', b"2"]})
    (file,) = files_of([rows], segment)
    assert decode(file.data.to_pybytes()).select(["key", "value", "event_time"]).to_pylist() == [
        {"key": "a", "value": '{"n": 1}', "event_time": None},
        {"key": "b", "value": "2", "event_time": None},
    ]
    assert pq.ParquetFile(pa.BufferReader(file.data)).schema.column(3).logical_type.type == "JSON"


def test_a_key_of_another_segment_is_refused() -> None:
    stray = next(b"k%d" % n for n in range(100) if slot_of(b"k%d" % n) >= 100)
    narrow = LoadSegment("l", 1, 0, 100, TIME_US)
    with pytest.raises(InvalidInput, match=rf"message 1: its key .* has slot {slot_of(stray)}"):
        files_of([pa.table({"key": [None, stray], "value": [b"", b""]})], narrow)


def test_rows_without_a_key_go_anywhere() -> None:
    narrow = LoadSegment("l", 1, 40_000, 40_001, TIME_US)
    assert [f.count for f in files_of([pa.table({"value": [b"1", b"2"]})], narrow)] == [2]


REFUSED = [
    (pa.table({"valeu": [b""]}), "did you mean 'value'"),
    (pa.table({"key": [b""]}), "'value' is required"),
    (pa.table({"value": [1.5]}), "cannot be stored as binary"),
    (pa.table({"value": [b""], "event_time": [10**30 * 1.0]}), "event_time"),
    (pa.table({"value": [b""], "event_time": pa.array([2**62], pa.timestamp("us", "UTC"))}), "years 1 to 9999"),
    (
        pa.table({"value": [b""], "headers": pa.array([[("a", b""), ("a", b"")]], pa.map_(pa.string(), pa.binary()))}),
        "message 0: the header 'a' is given twice",
    ),
    (
        pa.table({"value": [b""], "headers": pa.array([[("a", None)]], pa.map_(pa.string(), pa.binary()))}),
        "header without a value",
    ),
]


@pytest.mark.parametrize(("rows", "reason"), REFUSED)
def test_what_cannot_be_stored_is_refused(rows: pa.Table, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        files_of([rows])


def test_what_is_not_json_is_refused_in_a_topic_of_json() -> None:
    with pytest.raises(InvalidInput, match="message 1: the topic's values must be JSON"):
        files_of(
            [pa.table({"value": ["{}", "{"]})],
            LoadSegment("l", 1, 0, 65_536, TIME_US, MessageSchema.of("binary", "json")),
        )


def test_a_message_too_large_is_refused() -> None:
    with pytest.raises(InvalidInput, match="message 0 has"):
        files_of([pa.table({"value": [b"x" * (LARGEST_ROW_BYTES + 1)]})])


def test_rows_without_a_key_are_spread_by_their_number() -> None:
    rows = as_rows(pa.table({"value": [b""] * 1000, "key": [b"k", *[None] * 999]}), OF_BYTES)
    slots = slots_of_rows(rows, 0)
    assert slots[0] == slot_of(b"k")
    assert all(200 < ((slots >= start) & (slots < start + 16_384)).sum() < 300 for start in range(0, 65_536, 16_384))
    assert slots_of_rows(rows.slice(400), 400).tolist() == slots[400:].tolist()
