from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import orjson
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from braidmq import InvalidArgument
from braidmq.publish.encoding.tables import TablePlan, arrow_table, message_tables

ROWS: dict[str, Any] = {"tail": ["N1", None, "N2"], "delay": [1, 2, 3], "text": ["a", "b", None]}
EXPECTED_VALUES = [
    {"tail": "N1", "delay": 1, "text": "a"},
    {"tail": None, "delay": 2, "text": "b"},
    {"tail": "N2", "delay": 3, "text": None},
]


def wire(frame: Any, *, slice_bytes: int = 1 << 20, **plan: Any) -> list[dict[str, Any]]:
    tables = list(message_tables(arrow_table(frame), TablePlan(**plan), slice_bytes=slice_bytes))
    for table in tables:
        for name in ("key", "value"):
            assert table[name].type in (pa.string(), pa.binary())
    return [row for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize(
    "frame",
    [
        pa.table(ROWS),
        pa.RecordBatch.from_pydict(ROWS),
        pd.DataFrame(ROWS),
        pd.DataFrame(ROWS, index=[7, 8, 9]),
        pl.DataFrame(ROWS),
        pa.table({**ROWS, "tail": pa.array(ROWS["tail"], pa.large_string())}),
        pa.table({**ROWS, "tail": pa.array(ROWS["tail"], pa.string_view())}),
        pa.table({**ROWS, "tail": pa.array(ROWS["tail"]).dictionary_encode()}),
        pd.DataFrame(ROWS).astype({"tail": "category"}),
        pl.DataFrame(ROWS).with_columns(pl.col("tail").cast(pl.Categorical)),
    ],
)
def test_every_kind_of_table_gives_the_same_messages(frame: Any) -> None:
    rows = wire(frame, key="tail")
    assert [row["key"] for row in rows] == ["N1", None, "N2"]
    assert [orjson.loads(row["value"]) for row in rows] == EXPECTED_VALUES
    assert all(row["headers"] == [("content-type", b"application/json")] for row in rows)


def test_a_text_column_is_sent_unchanged() -> None:
    rows = wire(pa.table(ROWS), value="text")
    assert rows == [{"key": None, "value": "a"}, {"key": None, "value": "b"}, {"key": None, "value": None}]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)], ids=str)
def test_binary_of_any_kind_is_sent_unchanged(kind: pa.DataType) -> None:
    rows = wire(pa.table({"v": pa.array([b"\x00\xff", None], kind)}), value="v")
    assert [row["value"] for row in rows] == [b"\x00\xff", None]


def test_other_types_go_as_json_and_say_so() -> None:
    rows = wire(pa.table(ROWS), value="delay")
    assert [row["value"] for row in rows] == [b"1", b"2", b"3"]
    assert rows[0]["headers"] == [("content-type", b"application/json")]


def test_keys_of_other_types_are_their_text() -> None:
    assert [row["key"] for row in wire(pa.table(ROWS), key="delay", value="text")] == ["1", "2", "3"]


def test_constant_headers_are_given_to_all_and_own_content_types_respected() -> None:
    rows = wire(pa.table(ROWS), headers={"source": "test", "content-type": "text/x"})
    assert all(row["headers"] == [("source", b"test"), ("content-type", b"text/x")] for row in rows)


def test_a_map_column_gives_the_headers() -> None:
    headers = pa.array([[("a", "1")], None], pa.map_(pa.string(), pa.string()))
    rows = wire(pa.table({"v": ["x", "y"], "h": headers}), value="v", headers="h")
    assert [row["headers"] for row in rows] == [[("a", b"1")], None]


NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
FAR = pa.table({"v": ["x"], "t": pa.array([2**62], pa.timestamp("s"))})


@pytest.mark.parametrize(
    "column",
    [
        pa.array([NOON, None], pa.timestamp("us", "UTC")),
        pa.array([NOON, None], pa.timestamp("s", "Asia/Tokyo")),
        pa.array([datetime(2013, 1, 1, 12), None], pa.timestamp("ms")),
        pa.array([1_357_041_600_000_000_999, None], pa.timestamp("ns")),
        pa.array(["2013-01-01T12:00:00Z", None]),
        pa.array(["2013-01-01T13:00:00+01:00", None], pa.large_string()),
    ],
)
def test_times_of_any_unit_and_text_are_event_times(column: Any) -> None:
    rows = wire(pa.table({"v": ["x", "y"], "t": column}), value="v", event_time="t")
    assert [row["event_time"] for row in rows] == [NOON, None]


@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_whole_numbers_are_event_times_in_the_unit_that_is_given(unit: Any, factor: int) -> None:
    column = pa.array([1_357_041_600 * factor, None], pa.int64())
    rows = wire(pa.table({"v": ["x", "y"], "t": column}), value="v", event_time="t", event_time_unit=unit)
    assert [row["event_time"] for row in rows] == [NOON, None]


@pytest.mark.parametrize("kind", [pa.int32(), pa.uint32(), pa.uint64(), pa.int64()])
def test_whole_numbers_of_any_width_are_event_times(kind: Any) -> None:
    column = pa.array([int(NOON.timestamp()), None], kind)
    for each in (column, column.dictionary_encode()):
        rows = wire(pa.table({"v": ["x", "y"], "t": each}), value="v", event_time="t", event_time_unit="s")
        assert [row["event_time"] for row in rows] == [NOON, None]


def test_days_are_event_times_at_midnight() -> None:
    rows = wire(pa.table({"v": ["x"], "t": [date(2013, 1, 1)]}), value="v", event_time="t")
    assert rows[0]["event_time"] == datetime(2013, 1, 1, tzinfo=UTC)


def test_slices_cover_every_row_once_in_order() -> None:
    table = pa.table({"v": [f"{n:05d}" for n in range(5000)]})
    parts = list(message_tables(table, TablePlan(value="v"), slice_bytes=1000))
    assert len(parts) > 10
    assert pa.concat_tables(parts)["value"].to_pylist() == table["v"].to_pylist()


@pytest.mark.parametrize(
    ("frame", "plan", "message"),
    [
        (pa.table(ROWS), {"key": "tails"}, "did you mean 'tail'"),
        (pa.table(ROWS), {"headers": "tail"}, "cannot be the headers"),
        (pa.table(ROWS), {"event_time": "text"}, "cannot be the event time"),
        (FAR, {"value": "v", "event_time": "t"}, "cannot be the event time"),
        (pa.table({"n": [1]}), {"event_time": "n"}, "column 'n' of type int64 has no times.*unit: s, ms, us or ns"),
        (pa.table({"n": [1.5]}), {"event_time": "n"}, "column 'n' of type double cannot be the event time"),
        (pa.table({"n": [True]}), {"event_time": "n"}, "column 'n' of type bool cannot be the event time"),
        (FAR, {"value": "v", "event_time": "t", "event_time_unit": "s"}, "no column of whole numbers: leave out"),
        (pa.table({"n": [2**62]}), {"event_time": "n", "event_time_unit": "s"}, "cannot be the event time"),
        (
            pa.table({"n": [1, None, 1_735_689_600_000]}),  # milliseconds
            {"event_time": "n", "event_time_unit": "s", "first_row": 7},
            "column 'n', row 9: the event time lies outside the years 1 to 9999: do its numbers count s since 1970",
        ),
        (
            pa.table({"v": ["x"], "n": pa.array([2**60], pa.timestamp("us"))}),
            {"value": "v", "event_time": "n"},
            "row 0: the event time lies outside the years 1 to 9999$",
        ),
        (
            pa.table({"n": pa.array([2**64 - 1], pa.uint64())}),
            {"event_time": "n", "event_time_unit": "s"},
            "column 'n' of",
        ),
        (
            pa.table({"v": ["x"], "n": pa.array([None, 2**62, 1], pa.timestamp("s"))[1:2]}),
            {"value": "v", "event_time": "n", "first_row": 3},
            r"column 'n' of type timestamp\[s\], row 3 cannot be the event time: it lies outside the years 1 to 9999$",
        ),
        (pa.table({"n": [time(9)]}), {"event_time": "n"}, "cannot be the event time: give timestamps, days, text of"),
        (pa.table({"n": [timedelta(1)]}), {"event_time": "n"}, "cannot be the event time: give timestamps, days, text"),
        (pa.table({"n": [1]}), {"event_time": "n", "event_time_unit": "m"}, "did you mean 'ms'"),
        (pa.table({"n": [1]}), {"event_time_unit": "s"}, "needs event_time"),
        (pa.table({"n": [1]}), {"non_finite": "nul"}, "did you mean 'null'"),
        (pa.table({"l": [[1]]}), {"key": "l"}, "cannot be the key"),
        (pa.table([["x"], ["y"]], names=["v", "v"]), {"value": "v"}, "several columns are named 'v'"),
        (pa.table(ROWS), {"headers": {None: "x"}}, "headers map text to bytes or text, not"),
        (pa.table(ROWS), {"headers": {"n": 1}}, "headers map text to bytes or text, not"),
        ([{"a": 1}], {}, "list is not a table"),
        (pl.LazyFrame(ROWS), {}, "collect"),
        (pd.Series([1]), {}, "Series"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(frame: Any, plan: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        wire(frame, **plan)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("next week", "'next week' cannot be the event time: give RFC 3339, as in 2026-03-01T04:00:00Z"),
        ("", "'' cannot be the event time: give RFC 3339, as in 2026-03-01T04:00:00Z"),
        ("2026-02-30T04:00:00Z", "'2026-02-30T04:00:00Z' cannot be the event time: give RFC 3339, as in"),
        (
            "2026-03-01 04:00:00",
            "'2026-03-01 04:00:00' cannot be the event time: it has no zone; in UTC it ends with Z",
        ),
        ("x" * 100_000, "xxx… cannot be the event time: give RFC 3339"),
    ],
)
def test_text_that_is_no_time_is_told_with_its_row(text: str, why: str) -> None:
    good: list[str | None] = ["2026-03-01T04:00:00.5Z", None, "2026-03-01 06:00:00+02:00"]
    column = pa.chunked_array([pa.array(good * 40), pa.array([*good, *good, text, text, *good])])
    for each in (column, column.dictionary_encode(), column.cast(pa.large_string())):
        with pytest.raises(InvalidArgument) as raised:
            wire(pa.table({"when": each}), event_time="when", first_row=1000)
        message = str(raised.value)
        assert why in message and ", row 1126: " in message and message.startswith("column 'when' of type "), message
        assert len(message) < 250 and "\n" not in message
