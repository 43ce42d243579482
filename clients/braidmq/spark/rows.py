"""Rows of a data frame as messages: which columns make which part."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType, TimestampType

from braidmq.errors import InvalidArgument
from braidmq.publisher import REQUEST_BYTES
from braidmq.spark.errors import InvalidOption
from braidmq.tables import TablePlan, message_tables
from braidmq.wire import cut

_PLAIN = (StringType(), BinaryType())
_HEADERS = tuple(MapType(StringType(), kind) for kind in _PLAIN)
_TYPES: dict[str, tuple[DataType, ...]] = {
    "key": _PLAIN,
    "value": _PLAIN,
    "headers": _HEADERS,
    "event_time": (TimestampType(),),
}


def check_rows(schema: StructType) -> None:
    """Raises `InvalidOption` where rows of this schema are no messages."""
    names = schema.fieldNames()
    if "value" not in names:
        raise InvalidOption(f"messages need a column 'value'; there are {', '.join(names) or 'none'}")
    for field in schema:
        if field.name not in _TYPES:
            raise InvalidOption(
                f"column {field.name!r} is no part of a message: select {', '.join(_TYPES)}, as far as there are such, "
                f"and put the rest into the value, with to_json(struct(*)) say"
            )
        kinds = [_written(kind) for kind in _TYPES[field.name]]
        if _written(field.dataType) not in kinds:
            raise InvalidOption(
                f"column {field.name!r} is of type {_written(field.dataType)}: it must be {' or '.join(kinds)}"
            )


def requests(batch: pa.RecordBatch) -> Iterator[pa.Table]:
    """A record batch as the rows of one request or more, cut where its own rows say: always at the same places."""
    table = pa.Table.from_batches([batch])
    columns = {name: name if name in table.column_names else None for name in ("key", "headers", "event_time")}
    plan = TablePlan(value="value", **columns)
    for part in message_tables(table, plan, slice_bytes=REQUEST_BYTES):
        yield from cut(part, REQUEST_BYTES)


def check_count(sent: int, stored: int, producer_id: str, sequence: int) -> None:
    """Raises `InvalidArgument` where a repeated request had other rows than the first one of its id."""
    if sent != stored:
        raise InvalidArgument(
            f"request {sequence} of {producer_id} has {sent} rows, and {stored} the first time: the rows of this write "
            f"are not the same, in the same order, each time they are computed"
        )


def _written(kind: DataType) -> str:
    """A type as SQL writes it, whatever may be null in it."""
    return kind.simpleString()
