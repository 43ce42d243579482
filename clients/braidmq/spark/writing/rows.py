"""Rows of a data frame as messages: which column is which part of a message."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DayTimeIntervalType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from braidmq.errors import InvalidArgument
from braidmq.publish.encoding.tables import Columns, TablePlan, message_tables
from braidmq.publish.encoding.wire import cut
from braidmq.publish.publisher import REQUEST_BYTES
from braidmq.spark.errors import InvalidOption
from filer.clock import SystemClock

_PLAIN = (StringType(), BinaryType())
_HEADERS = tuple(MapType(StringType(), kind) for kind in _PLAIN)
_TYPES: dict[str, tuple[DataType, ...]] = {
    "key": _PLAIN,
    "value": _PLAIN,
    "headers": _HEADERS,
    "event_time": (TimestampType(),),
}
_DELIVERY: dict[str, tuple[DataType, ...]] = {
    "deliver_at": (TimestampType(),),
    "delay": (DayTimeIntervalType(),),
    "expires_at": (TimestampType(),),
}
"""For queue groups. A bulk load stores its messages as they are, with headers for these times."""


def check_rows(schema: StructType, *, delivery: bool = False) -> None:
    """Raise `InvalidOption` if rows of this schema cannot be messages, with times of `delivery` or without."""
    types = {**_TYPES, **(_DELIVERY if delivery else {})}
    names = schema.fieldNames()
    if "value" not in names:
        raise InvalidOption(f"messages need a column 'value'; there are {', '.join(names) or 'none'}")
    for field in schema:
        if field.name not in types:
            raise InvalidOption(
                f"column {field.name!r} is not part of a message: select only {', '.join(types)}, "
                f"or have braidmq.spark.to_messages(frame) put the row into the value, as JSON"
            )
        kinds = [_sql_type(kind) for kind in types[field.name]]
        if _sql_type(field.dataType) not in kinds:
            raise InvalidOption(
                f"column {field.name!r} is of type {_sql_type(field.dataType)}: it must be {' or '.join(kinds)}"
            )


def requests(batch: pa.RecordBatch) -> Iterator[pa.Table]:
    """Cut a record batch into the rows of requests. Only its own rows decide the cuts, so they are always the same.

    A delay counts from now on. A task that runs again gives other times, in headers of the same size.
    """
    table = pa.Table.from_batches([batch])
    names: Columns = {"value": "value"}
    for name in ("key", "headers", "event_time", "deliver_at", "delay", "expires_at"):
        if name in table.column_names:
            names[name] = name
    plan = TablePlan(**names, now_us=SystemClock().now_us())
    for messages in message_tables(table, plan, slice_bytes=REQUEST_BYTES):
        yield from cut(messages, REQUEST_BYTES)


def check_count(sent: int, stored: int, producer_id: str, sequence: int) -> None:
    """Raise `InvalidArgument` if a repeated request had another number of rows than the first one of its id."""
    if sent != stored:
        raise InvalidArgument(
            f"request {sequence} of {producer_id} has {sent} rows, but had {stored} the first time: a write's "
            f"rows must be the same, in the same order, each time they are computed"
        )


def _sql_type(kind: DataType) -> str:
    """The type in SQL, without nullability."""
    return kind.simpleString()
