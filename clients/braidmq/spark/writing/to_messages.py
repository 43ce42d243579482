"""Rows of any data frame as messages, by the same definition as everywhere (docs/json-rows.md)."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Unpack

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CalendarIntervalType,
    DataType,
    MapType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from braidmq.publish.encoding.tables import Columns, TablePlan, event_time_type, message_tables
from braidmq.publish.publisher import REQUEST_BYTES
from braidmq.spark.errors import InvalidOption
from braidmq.spark.pandas_warning import ignore_pandas_warning
from filer.clock import SystemClock
from filer.format.schema import HEADERS, TIMESTAMP
from filer.nearest import unknown_name

_HEADERS_DDL = "map<string,binary>"
_NO_FORM = (YearMonthIntervalType, CalendarIntervalType, VariantType)


def to_messages(frame: DataFrame, **columns: Unpack[Columns]) -> DataFrame:
    """The rows as messages: a frame with the columns `key`, `value`, `headers` and `event_time`.

    The columns are chosen as in `Client.publish_table`: without `value`, the value is the row as a JSON object. Keys
    and values are text, unless their column has bytes. Raises `InvalidOption` for columns that are not there or have no
    form in JSON, and `InvalidArgument` for an event time that has no times. A value that would not keep its meaning
    fails its task, with the column and the row of the task.
    """
    plan = TablePlan(**columns, now_us=SystemClock().now_us())
    for name in plan.columns:
        if name not in frame.columns:
            raise InvalidOption(unknown_name("column", name, frame.columns))
    if len(set(frame.columns)) < len(frame.columns):
        raise InvalidOption(f"two columns have the same name, of {', '.join(frame.columns)}: rename one")
    used = frame.columns if plan.value is None else [plan.value]
    for name in used:
        _check(name, frame.schema[name].dataType)
    if plan.event_time is not None:
        kind = to_arrow_type(frame.schema[plan.event_time].dataType, timezone="UTC")
        event_time_type(plan.event_time, kind, plan.event_time_unit)
    key, value = (_text_or_bytes(frame, name) for name in (plan.key, plan.value))
    ddl = f"key {key}, value {value}, headers {_HEADERS_DDL}, event_time timestamp"
    schema = pa.schema(
        [("key", _arrow_type(key)), ("value", _arrow_type(value)), ("headers", HEADERS), ("event_time", TIMESTAMP)]
    )
    with warnings.catch_warnings():
        ignore_pandas_warning()
        # Spark takes a dot in a column's name for a field of a struct.
        numbered = frame.toDF(*(f"column_{index}" for index in range(len(frame.columns))))
        return numbered.mapInArrow(_Conversion(plan, tuple(frame.columns), schema).convert, ddl)


@dataclass(frozen=True, slots=True)
class _Conversion:
    """Converts the batches of a partition. Runs in a task."""

    plan: TablePlan
    names: tuple[str, ...]
    schema: pa.Schema

    def convert(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        row = 0
        for batch in batches:
            table = pa.Table.from_batches([batch]).rename_columns(self.names)
            for messages in message_tables(table, replace(self.plan, first_row=row), slice_bytes=REQUEST_BYTES):
                yield from self._of_schema(messages).to_batches()
            row += batch.num_rows

    def _of_schema(self, messages: pa.Table) -> pa.Table:
        columns = [
            messages[field.name].cast(field.type)
            if field.name in messages.column_names
            else pa.nulls(messages.num_rows, field.type)
            for field in self.schema
        ]
        return pa.table(columns, schema=self.schema)


def _text_or_bytes(frame: DataFrame, name: str | None) -> str:
    is_bytes = name is not None and isinstance(frame.schema[name].dataType, BinaryType)
    return "binary" if is_bytes else "string"


def _arrow_type(ddl: str) -> pa.DataType:
    return pa.binary() if ddl == "binary" else pa.string()


def _check(path: str, kind: DataType) -> None:
    if "\0" in path:
        raise InvalidOption(f"the name {path!r} has the character U+0000, at which Arrow would cut it: rename it")
    if isinstance(kind, _NO_FORM):
        raise InvalidOption(f"column {path!r} is of type {kind.simpleString()}, which has no form in JSON: cast it")
    if isinstance(kind, ArrayType):
        _check(f"{path}[]", kind.elementType)
    if isinstance(kind, MapType):
        _check(f"{path}{{key}}", kind.keyType)
        _check(f"{path}{{}}", kind.valueType)
    if isinstance(kind, StructType):
        for field in kind:
            _check(f"{path}.{field.name}", field.dataType)
