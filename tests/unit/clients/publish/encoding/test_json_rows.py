import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidmq import InvalidArgument
from braidmq.publish.encoding.json_rows import json_objects, json_values

CELLS = st.one_of(st.none(), st.text(), st.integers(-(2**53), 2**53))


def objects(table: pa.Table) -> list[Any]:
    return [orjson.loads(each) for each in json_objects(table).to_pylist()]


def test_rows_become_objects_of_all_columns() -> None:
    table = pa.table({"n": [1, None, 1], 'a "name"\n': ['x\n"y"', "ü", None], "f": [0.5, 2.0, None]})
    assert objects(table) == table.to_pylist()


def test_types_beyond_json_have_a_documented_form() -> None:
    table = pa.table(
        {
            "time": pa.array([1_500_000_000_123_456_789], pa.timestamp("ns", "UTC")),
            "naive": pa.array([datetime(2020, 1, 2, 3)], pa.timestamp("us")),
            "day": [date(2020, 1, 2)],
            "money": [Decimal("1.10")],
            "pause": [timedelta(seconds=1.5)],
            "data": [b"\x00\xff"],
            "nan": [math.nan],
            "list": [[1, None]],
            "struct": [{"a": b"x"}],
        }
    )
    assert objects(table) == [
        {
            "time": "2017-07-14T02:40:00.123456Z",
            "naive": "2020-01-02T03:00:00",
            "day": "2020-01-02",
            "money": "1.10",
            "pause": 1.5,
            "data": "AP8=",
            "nan": None,
            "list": [1, None],
            "struct": {"a": "eA=="},
        }
    ]


def test_nulls_of_a_single_column_stay_null() -> None:
    assert json_values(pa.chunked_array([[1, None], [2]])).to_pylist() == [b"1", None, b"2"]


def test_dictionaries_are_seen_through() -> None:
    assert objects(pa.table({"c": pa.array(["x", "y", "x"]).dictionary_encode()})) == [
        {"c": "x"},
        {"c": "y"},
        {"c": "x"},
    ]


def test_a_table_without_columns_has_nothing_to_say() -> None:
    with pytest.raises(InvalidArgument):
        json_objects(pa.table({}))


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=20))
def test_any_text_and_number_survives(rows: list[tuple[Any, Any]]) -> None:
    table = pa.table(
        {
            "t": pa.array([t if isinstance(t, str) else None for t, _ in rows], pa.string()),
            "n": pa.array([n if isinstance(n, int) else None for _, n in rows], pa.int64()),
        }
    )
    assert objects(table) == table.to_pylist()


def test_moments_with_a_zone_keep_the_moment() -> None:
    moment = datetime(2020, 7, 1, tzinfo=UTC)
    table = pa.table({"t": pa.array([moment], pa.timestamp("us", "Europe/Paris"))})
    assert datetime.fromisoformat(objects(table)[0]["t"]) == moment


@pytest.mark.parametrize("column", [pa.array([2**62], pa.timestamp("s")), pa.array([2**40], pa.timestamp("s", "UTC"))])
def test_moments_that_no_calendar_has_are_refused(column: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"timestamp\[s.*cannot be written as JSON"):
        json_objects(pa.table({"t": column}))
