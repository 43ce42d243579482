from typing import Any

import pyarrow as pa
import pytest

from braidmq import InvalidArgument
from braidmq.json_rows.decoding import rows_from_json


def column(kind: pa.DataType, text: str, *, nullable: bool = True) -> list[Any]:
    """What a column of that type holds for the JSON of one value."""
    schema = pa.schema([pa.field("c", kind, nullable=nullable)])
    return rows_from_json(pa.array([f'{{"c":{text}}}']), schema)["c"].to_pylist()


def test_members_that_are_missing_are_null_and_others_are_left_out() -> None:
    schema = pa.schema([("a", pa.int8()), ("b", pa.string())])
    values = pa.chunked_array([[b'{"a":1,"z":[]}'], [None, b"{}"]])
    nothing = {"a": None, "b": None}
    assert rows_from_json(values, schema).to_pylist() == [{"a": 1, "b": None}, nothing, nothing]


def test_texts_that_other_programs_write_are_read_too() -> None:
    assert (
        column(pa.timestamp("us", "UTC"), '"2024-01-31T10:00:00+02:00"')[0].isoformat() == "2024-01-31T08:00:00+00:00"
    )
    assert column(pa.time64("us"), '"10:00:00"')[0].isoformat() == "10:00:00"
    assert column(pa.float64(), '"-Infinity"') == [float("-inf")]
    assert column(pa.decimal128(5, 2), "1.1") == column(pa.decimal128(5, 2), "11e-1")


REFUSED: list[tuple[pa.DataType, str, str]] = [
    (pa.timestamp("us", "UTC"), '"2024-01-31T10:00:00"', "with an offset"),
    (pa.timestamp("us"), '"2024-01-31T10:00:00Z"', "without an offset"),
    (pa.timestamp("us", "UTC"), '"2024-13-31T10:00:00Z"', "not a time of RFC 3339"),
    (pa.timestamp("us", "UTC"), '"2024-01-31T10:00:00.1234567Z"', "whole number of us"),
    (pa.timestamp("us", "UTC"), '"0001-01-01T00:00:00+01:00"', "years 1 to 9999"),
    (pa.timestamp("us", "UTC"), "1500000000", "not text"),
    (pa.timestamp("us", "UTC"), '"2024-01-31T10:00:00,5Z"', "not a time such as"),
    (pa.timestamp("us", "UTC"), '"2024-01-31T10:00Z"', "not a time such as"),
    (pa.timestamp("us", "UTC"), '"2024-01-31T10:00:00+01:00:30.5"', "not a time such as"),
    (pa.timestamp("us", "UTC"), '"2024-01-31T10:00:00+24:00"', "not a time of RFC 3339"),
    (pa.time64("us"), '"10:00:00,5"', "not a time such as"),
    (pa.time64("us"), '"T10:00:00"', "not a time such as"),
    (pa.date32(), '"2024-W01-1"', "not a date such as"),
    (pa.date32(), '"20240131"', "not a date such as"),
    (pa.list_(pa.int8(), 0), "[1]", "JSON array of 0 items"),
    (pa.dictionary(pa.int8(), pa.string()), "1", "not text"),
    (pa.time64("us"), '"25:00:00"', "not a time of the day"),
    (pa.time64("us"), '"10:00:00Z"', "without an offset"),
    (pa.date32(), '"31.01.2024"', "not a date such as"),
    (pa.float32(), "3.4028236e38", "not a number that type float has"),
    (pa.float32(), "1e39", "not a number that type float has"),
    (pa.float64(), "true", "not a number"),
    (pa.decimal128(5, 2), "1.111", "does not fit type decimal128"),
    (pa.decimal128(5, 2), "1e999999999", "does not fit type decimal128"),
    (pa.decimal128(5, 2), '"1.1"', "not a number"),
    (pa.duration("us"), "1e99999999", "a number of seconds that"),
    (pa.duration("us"), "1e-99999999", "a number of seconds that"),
    (pa.duration("ns"), "0.0000000001", "at most nine digits"),
    (pa.int8(), "128", "does not fit type int8"),
    (pa.int8(), "1.0", "not a whole number"),
    (pa.bool_(), "1", "not true or false"),
    (pa.string(), "1", "not text"),
    (pa.binary(), '"AP8"', "not base64"),
    (pa.uuid(), '"x"', "not a UUID"),
    (pa.list_(pa.int8(), 2), "[1]", "an array of 2 items|JSON array of 2 items"),
    (pa.list_(pa.int8()), '{"a":1}', "not a JSON array"),
    (pa.map_(pa.string(), pa.int8()), '[["a",1]]', "not a JSON object"),
    (pa.map_(pa.int8(), pa.int8()), "[[1]]", "JSON array of pairs"),
    (pa.struct([("a", pa.int8())]), '{"a":"x"}', r"column 'c\.a', row 0"),
    (pa.list_(pa.list_(pa.int8())), "[[1],[2,true]]", r"column 'c\[\]\[\]', row 0"),
    (pa.list_(pa.struct([pa.field("x", pa.int8(), nullable=False)])), '[{"x":1},{}]', r"column 'c\[\]\.x'.*no nulls"),
    (pa.month_day_nano_interval(), "1", "has no form in JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "why"), REFUSED)
def test_a_value_that_is_not_of_the_type_is_refused_by_column_and_row(kind: pa.DataType, text: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        column(kind, text)


@pytest.mark.parametrize(("text", "why"), [("[1]", "not a JSON object"), ("{", "not JSON"), ('{"c":NaN}', "not JSON")])
def test_what_is_no_object_is_refused_by_row(text: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"^row 8: .*{why}"):
        rows_from_json(pa.array(["{}", text]), pa.schema([("c", pa.int8())]), first_row=7)


def test_a_null_where_the_schema_allows_none_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="column 'c', row 0: null or missing"):
        column(pa.int8(), "null", nullable=False)
    items = pa.list_(pa.field("item", pa.struct([pa.field("x", pa.int8(), nullable=False)])))
    assert column(items, "[null]") == [[None]]


def test_what_does_not_fit_an_encoding_is_refused() -> None:
    schema = pa.schema([("c", pa.dictionary(pa.int8(), pa.string()))])
    with pytest.raises(InvalidArgument, match="column 'c': the values do not fit its type"):
        rows_from_json(pa.array([f'{{"c":"{number}"}}' for number in range(200)]), schema)
