from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids

from braidmq import rows_to_json
from filer.errors import InvalidInput
from filer.format.schema import REF, MessageSchema
from pipeline.errors import JobFailed
from pipeline.export.iceberg_types import read_types, stored_types
from pipeline.export.table_columns import MESSAGE_COLUMNS, REASON, TableColumns, table_columns, with_types_of_iceberg
from tests.support.rows.arrow_tables import tables

SCHEMA = pa.schema([("n", pa.int64()), pa.field("fare", pa.decimal128(10, 2), nullable=False)])


def messages(*values: str | None, apart: int | None = None) -> pa.Table:
    """Messages of segment 3 from offset 10 on. That of index `apart` has its value beside the log."""
    count = len(values)
    rows = {name: pa.nulls(count, kind) for name, kind in zip(*_fields(), strict=True)}
    rows |= {"_offset": pa.array(range(10, 10 + count)), "_timestamp": pa.array([0] * count, pa.timestamp("us", "UTC"))}
    rows["value"] = pa.array(values, pa.string())
    rows["_ref"] = pa.array([{"uri": "u"} if index == apart else None for index in range(count)], REF)
    table = pa.table(rows, schema=MessageSchema.of("string", "json").log)
    return table.add_column(0, "segment", pa.array([3] * count, pa.int64()))


def _fields() -> tuple[list[str], list[pa.DataType]]:
    schema = MessageSchema.of("string", "json").log
    return schema.names, schema.types


def test_by_default_members_stand_in_place_of_the_value() -> None:
    columns = table_columns(None, SCHEMA)
    found = columns.shape(messages('{"n":1,"fare":2.50,"other":3}'))
    names = ["segment", "_offset", "_timestamp", "key", "n", "fare", "event_time", "headers", "_ref"]
    assert found.rows.column_names == names and found.unfit is None
    assert found.rows.schema.field("fare") == SCHEMA.field("fare")
    assert found.rows.select(["n", "fare"]).to_pylist() == [{"n": 1, "fare": Decimal("2.50")}]
    assert columns.arrow_schema(MessageSchema.of("string", "json")) == found.rows.schema


def test_columns_are_chosen_and_ordered() -> None:
    rows = table_columns("fare, _offset,value", SCHEMA).shape(messages('{"fare":1.00}')).rows
    assert rows.column_names == ["fare", "_offset", "value"]
    assert table_columns("key,_offset", None).shape(messages("{}")).rows.column_names == ["key", "_offset"]


def test_a_member_named_as_a_column_is_told_apart() -> None:
    schema = pa.schema([("key", pa.int64())])
    assert table_columns("value.key", schema).shape(messages('{"key":7}')).rows.to_pylist() == [{"key": 7}]
    assert table_columns("key", schema).shape(messages('{"key":7}')).rows.to_pylist() == [{"key": None}]
    with pytest.raises(InvalidInput, match=r"two columns 'key'.*key of the message or value\.key"):
        table_columns(None, schema)


def test_what_does_not_fit_has_no_row_and_a_reason() -> None:
    values = ('{"n":1,"fare":1.00}', '{"n":"x","fare":1.00}', "no json", "5", None, '{"n":2,"fare":1.001}', None)
    found = table_columns(None, SCHEMA).shape(messages(*values, apart=6))
    assert found.rows["_offset"].to_pylist() == [10] and found.rows["n"].to_pylist() == [1]
    assert found.unfit is not None
    assert found.unfit["_offset"].to_pylist() == [11, 12, 13, 14, 15, 16]
    assert found.unfit["value"].to_pylist() == list(values[1:])
    reasons = found.unfit[REASON].to_pylist()
    for reason, said in zip(
        reasons,
        (
            "column 'n': ",
            "not JSON",
            "5 is not a JSON object",
            "column 'fare': null or missing",
            "column 'fare'",
            "_ref",
        ),
        strict=True,
    ):
        assert said in reason


@given(tables(min_rows=1))
def test_any_table_comes_back_from_its_values(table: pa.Table) -> None:
    """Without a change: of whatever types, by the definition of a row as JSON."""
    names = [f"c{index}" for index in range(table.num_columns)]
    table = table.rename_columns(names)
    values = rows_to_json(table, non_finite="text").cast(pa.string()).to_pylist()
    columns = TableColumns(tuple(f"value.{name}" for name in names), table.schema)
    found = columns.shape(messages(*values))
    assert found.unfit is None
    assert rows_to_json(found.rows, non_finite="text").equals(rows_to_json(table, non_finite="text"))
    assert found.rows.schema == table.schema


@pytest.mark.parametrize(
    ("given", "schema", "said"),
    [
        ("fare", None, "no column 'fare'.*members of JSON values need --schema"),
        ("other", SCHEMA, "no column 'other': there are segment, .*, n, fare"),
        ("n,n", SCHEMA, "two columns 'n'"),
        (
            None,
            pa.schema([("m", pa.month_day_nano_interval())]),
            "column 'm': type month_day_nano_interval has no form",
        ),
    ],
)
def test_what_cannot_be_a_table_is_told(given: str | None, schema: pa.Schema | None, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        table_columns(given, schema)


def test_columns_are_described_with_their_types() -> None:
    assert TableColumns().descriptions == MESSAGE_COLUMNS
    assert table_columns("key,fare", SCHEMA).descriptions == ("key", "value.fare: decimal128(10, 2) not null")


@given(tables(min_rows=1))
def test_iceberg_has_any_table_by_types_of_its_own_or_refuses_a_column_by_its_name(table: pa.Table) -> None:
    columns = TableColumns(tuple(f"value.{name}" for name in table.column_names), table.schema)
    try:
        shaped = with_types_of_iceberg(columns)
    except JobFailed as refused:
        assert any(f"column {name!r}: " in str(refused) for name in table.column_names)
        return
    assert shaped.stored_as is not None
    # pyiceberg takes the types, and they stand for themselves.
    assert len(_pyarrow_to_schema_without_ids(shaped.stored_as).fields) == table.num_columns
    assert stored_types(read_types(shaped.stored_as)) == shaped.stored_as
    found = shaped.shape(messages(*rows_to_json(table).to_pylist()))
    rows = found.rows.num_rows
    assert rows + (0 if found.unfit is None else found.unfit.num_rows) == table.num_rows
    if found.unfit is None:
        # The same JSON, but for zones and for how many digits of a second there are.
        again = TableColumns(columns.names, shaped.stored_as).shape(messages(*rows_to_json(found.rows).to_pylist()))
        assert again.rows == found.rows or _has_nan(found.rows)


def _has_nan(table: pa.Table) -> bool:
    return "nan" in str(table.to_pylist())
