import math
import re
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given

from braidmq import InvalidArgument
from braidmq.json_rows.encoding import rows_to_json
from braidmq.json_rows.plain_values import value_json
from tests.support.rows.arrow_tables import tables

ROW: dict[str, Any] = {
    "money": Decimal("1.10"),
    "at": datetime(2020, 7, 1, 12, tzinfo=ZoneInfo("Europe/Paris")),
    "naive": datetime(2020, 7, 1),
    "day": date(2020, 7, 1),
    "time": time(1, 2, 3),
    "pause": timedelta(seconds=-1.5),
    "id": uuid.UUID(int=7),
    "data": b"\x00\xff",
    "list": [None, {"x": True}],
}


class Grade(Enum):
    NONE = math.nan


@dataclass
class Point:
    x: float


def test_a_dictionary_has_the_bytes_that_the_row_of_a_table_has() -> None:
    columns = {name: pa.array([value], pa.uuid() if name == "id" else None) for name, value in ROW.items()}
    assert value_json(ROW) == rows_to_json(pa.table(columns))[0].as_py()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": [1, {"b": math.nan}]}, r"no number NaN \(at a\[1\]\.b\)"),
        (math.inf, "no number Infinity$"),
        (Point(math.nan), r"no number NaN \(at x\)"),
        ({"a": Decimal("NaN")}, "no such number"),
        ({"a": Decimal("1E+999999999")}, "more than 1,000 digits"),
        ({"a": Decimal("1E-999999999")}, "more than 1,000 digits"),
        ({"a": Grade.NONE}, r"no number NaN \(at a\)"),
        ({"a": {"b\0": 1}}, r"name 'b\\x00' has the character U\+0000 \(at a\)"),
        ({"a": pd.NaT}, "NaT is no time: give None"),
        ({"a": time(1, tzinfo=UTC)}, "time of the day with a zone"),
        ({"a": {1, 2}}, "set has no form in JSON"),
        ({1: 2}, "key must be str"),
        ({"a": "\ud800"}, "not valid UTF-8"),
    ],
)
def test_what_would_not_keep_its_meaning_is_refused(value: Any, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        value_json(value)


def test_nulls_stay_nulls() -> None:
    assert value_json({"a": None, "b": [None, 1.0], "c": "null"}) == b'{"a":null,"b":[null,1.0],"c":"null"}'


@given(tables())
def test_any_row_that_python_holds_without_loss_has_the_same_bytes(table: pa.Table) -> None:
    wanted = rows_to_json(table).to_pylist()
    for text, row in zip(wanted, _python_rows(table), strict=True):
        if row is not None and b"\\u0000" not in re.sub(rb"\\\\", b"", text):
            # A key of a map may have U+0000; that of a dict counts as a name, which may not.
            assert value_json(row) == text


def _python_rows(table: pa.Table) -> list[Any]:
    """The rows as Python values; None for one that Python does not hold, or holds as another type."""
    if any(map(_differs, table.schema.types)):
        return [None] * table.num_rows
    try:
        return table.to_pylist(maps_as_pydicts="strict")
    except (ValueError, OverflowError):
        return [None] * table.num_rows


def _differs(kind: pa.DataType) -> bool:
    """Whether Python's values of a type are of another one: floats are wide, nanoseconds are pandas' and so on."""
    if pa.types.is_float32(kind) or getattr(kind, "unit", None) == "ns":
        return True
    if pa.types.is_map(kind) and not pa.types.is_string(kind.key_type):
        return True
    if isinstance(kind, pa.JsonType):
        return True
    return any(_differs(kind.field(index).type) for index in range(kind.num_fields))


def test_times_of_pandas_keep_their_nanoseconds() -> None:
    row = {
        "at": pd.Timestamp("2024-01-01T00:00:00.123456789", tz="Europe/Paris"),
        "naive": pd.Timestamp("2024-01-01T00:00:00.123456789"),
        "micros": pd.Timestamp("2024-01-01T00:00:00.123456"),
        "pause": pd.Timedelta(nanoseconds=-1_234_567),
    }
    table = pa.Table.from_pandas(pd.DataFrame([row]))
    assert value_json(row) == rows_to_json(table)[0].as_py()


def test_texts_with_u_0000_are_no_names() -> None:
    assert value_json({"a": "null\0"}) == b'{"a":"null\\u0000"}'
