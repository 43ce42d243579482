import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from braidmq import InvalidArgument
from braidmq.json_rows.encoding import NonFinite, json_values, rows_to_json


def texts(column: Any, **named: Any) -> list[str]:
    """The JSON of the values of one column."""
    found = json_values(column, "c", **named).to_pylist()
    return ["null" if each is None else each.decode() for each in found]


def test_rows_become_objects_of_all_columns_in_their_order() -> None:
    table = pa.table({"n": [1, None], 'a "name"\n': ['x\n"y"', "ü"]})
    assert rows_to_json(table).to_pylist() == [
        b'{"n":1,"a \\"name\\"\\n":"x\\n\\"y\\""}',
        '{"n":null,"a \\"name\\"\\n":"ü"}'.encode(),
    ]


FORMS: list[tuple[Any, list[str]]] = [
    (pa.array([True, False]), ["true", "false"]),
    (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
    (pa.array([0.1, 1.0, -0.0], pa.float32()), ["0.1", "1.0", "-0.0"]),
    (pa.array([0.1, 1e16], pa.float64()), ["0.1", "1e+16"]),
    (pa.array([Decimal("112.05"), Decimal("-0.50")]), ["112.05", "-0.50"]),
    (pa.array([Decimal("0.0000000001")]), ["0.0000000001"]),
    (pa.array([12300], pa.int64()).cast(pa.decimal128(20, 0)), ["12300"]),
    (pa.array([date(2020, 1, 2), date(1, 1, 1)]), ['"2020-01-02"', '"0001-01-01"']),
    (pa.array([datetime(2020, 1, 2, 3)], pa.timestamp("s")), ['"2020-01-02T03:00:00.000000"']),
    (pa.array([1_500_000_002_702_035], pa.timestamp("us", "Europe/Paris")), ['"2017-07-14T02:40:02.702035Z"']),
    (pa.array([1_500_000_002_702_035_000], pa.timestamp("ns", "UTC")), ['"2017-07-14T02:40:02.702035Z"']),
    (pa.array([1_500_000_002_702_035_001], pa.timestamp("ns", "UTC")), ['"2017-07-14T02:40:02.702035001Z"']),
    (pa.array([1], pa.time32("s")), ['"00:00:01.000000"']),
    (pa.array([1], pa.time64("ns")), ['"00:00:00.000000001"']),
    (pa.array([timedelta(seconds=-1.5)]), ["-1.500000"]),
    (pa.array([1], pa.duration("ns")), ["0.000000001"]),
    (pa.array([b"\x00\xff"]), ['"AP8="']),
    (pa.array([b"\x00" * 16], pa.uuid()), ['"00000000-0000-0000-0000-000000000000"']),
    (pa.array(["x", None, "x"]).dictionary_encode(), ['"x"', "null", '"x"']),
    (pa.array([[1, None], [], None]), ["[1,null]", "[]", "null"]),
    (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), ["[1,2]", "null"]),
    (pa.array([{"a": b"x", "b": None}, None]), ['{"a":"eA==","b":null}', "null"]),
    (pa.array([[("a", 1), ("b", None)], [], None], pa.map_(pa.utf8(), pa.int8())), ['{"a":1,"b":null}', "{}", "null"]),
    (pa.array([[(1, 1.5)], None], pa.map_(pa.int8(), pa.float32())), ["[[1,1.5]]", "null"]),
    (pa.nulls(1), ["null"]),
]  # fmt: skip


@pytest.mark.parametrize(("column", "wanted"), FORMS, ids=[str(column.type) for column, _ in FORMS])
def test_each_type_has_one_form(column: Any, wanted: list[str]) -> None:
    assert texts(column) == wanted
    assert texts(pa.chunked_array([column, column])) == wanted * 2
    assert texts(column.slice(1)) == wanted[1:]


def test_columns_that_are_text_or_bytes_inside_see_through_the_layouts_of_polars() -> None:
    views = pa.array([["x", None]], pa.list_(pa.string_view()))
    assert texts(views) == ['["x",null]']
    assert texts(pa.DictionaryArray.from_arrays(pa.array([0, None]), pa.array(["x"], pa.string_view()))) == [
        '"x"',
        "null",
    ]


NAN, INFINITE = [1.0, math.nan], [1.0, math.inf, -math.inf]
BAD: list[tuple[Any, int, str]] = [
    (pa.array(NAN), 1, "JSON has no number NaN"),
    (pa.array(INFINITE, pa.float32()), 1, "JSON has no number Infinity"),
    (pa.array([None, *INFINITE]), 2, "JSON has no number Infinity"),
    (pa.array([[], [1.0], [2.0, math.nan]]), 2, r"column 'c\[\]', row 2: JSON has no number NaN"),
    (pa.array([None, {"a": [math.nan]}]), 1, r"column 'c\.a\[\]', row 1"),
    (pa.array([[("k", math.inf)]], pa.map_(pa.string(), pa.float64())), 0, r"column 'c\{\}', row 0"),
    (pa.array([[], [("k", 1), ("l", 2), ("k", 3)]], pa.map_(pa.string(), pa.int8())), 1, 'the key "k" twice'),
    (pa.array([0, 2**62], pa.timestamp("s")), 1, "outside the years 1 to 9999"),
    (pa.array([0, 2**62], pa.timestamp("ms", "UTC")), 1, "outside the years 1 to 9999"),
    (pa.array([2**30], pa.date32()), 0, "outside the years 1 to 9999"),
    (pa.array([0, 1], pa.int64()).view(pa.date64()), 1, "a date with a time of the day"),
    (pa.array([-1], pa.int64()).view(pa.time64("us")), 0, "no time of the day"),
    (pa.array([b"ok", b"\xff"]).view(pa.string()), 1, "can't decode byte 0xff"),
    (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), 0, "has no form in JSON"),
    (pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), 0, "several fields are named 'a'"),
]


@pytest.mark.parametrize(("column", "row", "why"), BAD)
def test_a_value_that_would_not_keep_its_meaning_is_refused_by_column_and_row(column: Any, row: int, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why) as refused:
        rows_to_json(pa.table({"c": column}))
    assert f", row {row}: " in str(refused.value)
    with pytest.raises(InvalidArgument, match=f", row {row + 100}: "):
        rows_to_json(pa.table({"c": column}), first_row=100)


def test_values_under_a_null_do_not_count() -> None:
    structs = pa.StructArray.from_arrays([pa.array([math.nan])], names=["a"], mask=pa.array([True]))
    keys, items = pa.array(["a", "b", "c"]), pa.array([1.0, math.nan, 3.0])
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), keys, items, mask=pa.array([False, True, False]))
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array([math.nan]), mask=pa.array([True]))
    assert texts(structs) == ["null"]
    assert texts(maps) == ['{"a":1.0}', "null", '{"c":3.0}']
    assert texts(lists) == ["null"]


@pytest.mark.parametrize(
    ("wish", "wanted"),
    [("null", ["1.0", "null", "null"]), ("text", ["1.0", '"Infinity"', '"-Infinity"'])],
)
def test_numbers_that_json_lacks_are_written_as_asked_for(wish: NonFinite, wanted: list[str]) -> None:
    assert texts(pa.array(INFINITE), non_finite=wish) == wanted
    assert texts(pa.array([NAN]), non_finite="text") == ['[1.0,"NaN"]']


def test_a_table_needs_columns_and_each_name_once() -> None:
    with pytest.raises(InvalidArgument, match="without columns"):
        rows_to_json(pa.table({}))
    with pytest.raises(InvalidArgument, match="several columns are named 'a'"):
        rows_to_json(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]))
    with pytest.raises(InvalidArgument, match=r"the name 'a\\x00' among the columns has the character U\+0000"):
        rows_to_json(pa.table([pa.array([1])], names=["a\0"]))
