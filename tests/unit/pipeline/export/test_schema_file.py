import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t

from pipeline.errors import JobFailed
from pipeline.export.schema_file import read_schema, schema_of

UTC = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("decimal(10,2)", pa.decimal128(10, 2)),
        ("Decimal(38, 0)", pa.decimal128(38, 0)),
        ("bigint", pa.int64()),
        ("long", pa.int64()),
        ("timestamp", UTC),
        ("timestamp_ntz", pa.timestamp("us")),
        ("time", pa.time64("us")),
        ({"type": "array", "elementType": "string"}, pa.list_(pa.field("element", pa.string()))),
        (
            {"type": "struct", "fields": [{"name": "x", "type": "double", "nullable": False}]},
            pa.struct([pa.field("x", pa.float64(), nullable=False)]),
        ),
    ],
)
def test_an_object_says_the_type_of_each_field(given: Any, kind: pa.DataType) -> None:
    assert schema_of({"a": given}) == pa.schema([("a", kind)])


def test_what_spark_writes_about_a_data_frame_is_read() -> None:
    frame = t.StructType(
        [
            t.StructField("a", t.LongType(), nullable=False),
            t.StructField("b", t.ArrayType(t.DecimalType(10, 2), containsNull=False)),
            t.StructField("c", t.MapType(t.StringType(), t.StructType([t.StructField("at", t.TimestampType())]))),
            t.StructField("opens", t.TimeType()),
        ]
    )
    assert schema_of(json.loads(frame.json())) == pa.schema(
        [
            pa.field("a", pa.int64(), nullable=False),
            ("b", pa.list_(pa.field("element", pa.decimal128(10, 2), nullable=False))),
            ("c", pa.map_(pa.string(), pa.field("value", pa.struct([("at", UTC)])))),
            ("opens", pa.time64("us")),
        ]
    )


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"a": "varchar"}, "field 'a' has the type \"varchar\", which there is not: give string, binary,"),
        ({"a": {"type": "array", "elementType": "text"}}, "field 'a'[] has the type"),
        ({"a": "decimal(39,2)"}, "decimal(39,2)"),
        ({"a": 5}, "field 'a' has the type 5"),
        ({"type": "struct", "fields": [{"type": "long"}]}, "the schema has a field without a name"),
        ({"type": "struct", "fields": 3}, "the schema has the type"),
        ({}, "not an object with the type of each field"),
        ([1], "not an object with the type of each field"),
    ],
)
def test_what_is_no_schema_is_told(document: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "fields.json"
    path.write_text(json.dumps(document))
    with pytest.raises(JobFailed) as failure:
        read_schema(str(path))
    assert said in str(failure.value) and str(path) in str(failure.value)


def test_a_parquet_file_has_the_schema_of_its_table(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([1], pa.int16()), "at": pa.array([2], UTC)})
    pq.write_table(table, tmp_path / "a.parquet")
    assert read_schema(str(tmp_path / "a.parquet")) == read_schema(str(tmp_path)) == table.schema


@pytest.mark.parametrize("name", ["missing.json", "missing.parquet", "broken.json", "broken.parquet"])
def test_a_file_that_cannot_be_read_is_told(name: str, tmp_path: Path) -> None:
    if name.startswith("broken"):
        (tmp_path / name).write_text("{")
    said = (
        "there is no file or folder" if name.startswith("missing") else "is neither Parquet nor JSON that can be read"
    )
    with pytest.raises(JobFailed, match=said):
        read_schema(str(tmp_path / name))
