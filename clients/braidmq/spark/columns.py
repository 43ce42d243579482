"""The columns that Spark gets, and how rows of files and brokers become such columns."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from braidmq.spark.errors import InvalidOption
from braidmq.spark.topic_snapshot import TopicSnapshot
from filer.format.schema import TIMESTAMP, MessageSchema
from filer.format.slot_columns import slots_of
from filer.nearest import unknown_name

_SEGMENT = pa.field("segment", pa.int64(), nullable=False)


def topic_schema(schema: MessageSchema) -> StructType:
    """Return all columns of a topic: `segment`, then the columns of its files in their order."""
    return from_arrow_schema(pa.schema([_SEGMENT, *schema.log]))


def schema_of(snapshot: TopicSnapshot) -> StructType:
    """Return all columns of a topic as it was then."""
    return topic_schema(snapshot.schema)


def check_schema(wanted: StructType, topic: StructType) -> None:
    """Raise `InvalidOption` for a column that the `topic` does not have, or has with another type."""
    known = {field.name: field for field in topic}
    for field in wanted:
        if field.name not in known:
            raise InvalidOption(unknown_name("column", field.name, known))
        if field.dataType != known[field.name].dataType:
            raise InvalidOption(
                f"column {field.name!r} is of type {known[field.name].dataType.simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )


def arrow_schema(wanted: StructType) -> pa.Schema:
    """Return the exact schema that record batches of these columns must have."""
    return to_arrow_schema(wanted, timezone="UTC")


class RowFilter:
    """Filters rows by the time of acceptance, and by the slot of their key."""

    def __init__(self, *, since_us: int | None, until_us: int | None, slots: tuple[int, int] | None) -> None:
        self._since_us, self._until_us, self._slots = since_us, until_us, slots

    @property
    def columns(self) -> set[str]:
        """The columns that the filter needs."""
        filters_by_time = self._since_us is not None or self._until_us is not None
        return ({"_timestamp"} if filters_by_time else set()) | ({"key"} if self._slots is not None else set())

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that match, in order. Rows without a key have no slot, so no range of slots contains them."""
        wanted: Any = None
        if self._since_us is not None:
            wanted = pc.greater_equal(batch["_timestamp"], pa.scalar(self._since_us, TIMESTAMP))
        if self._until_us is not None:
            early = pc.less(batch["_timestamp"], pa.scalar(self._until_us, TIMESTAMP))
            wanted = early if wanted is None else pc.and_(wanted, early)
        if self._slots is not None:
            within = self._within_slots(batch["key"])
            wanted = within if wanted is None else pc.and_(wanted, within)
        return batch if wanted is None else batch.filter(wanted)

    def _within_slots(self, keys: "pa.Array[Any]") -> "pa.Array[Any]":
        assert self._slots is not None
        slots = slots_of(keys, null_slot=0)
        within = (slots >= self._slots[0]) & (slots < self._slots[1]) & ~np.asarray(keys.is_null())
        return pa.array(within)


def spark_batch(segment: int, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of `schema`, from those of a file or of a broker's answer."""
    return pa.RecordBatch.from_arrays([_column(segment, batch, name) for name in schema.names], schema=schema)


def _column(segment: int, batch: pa.RecordBatch, name: str) -> "pa.Array[Any]":
    if name == "segment":
        return pa.array(np.full(batch.num_rows, segment, dtype=np.int64))
    column = batch[name]
    return column.storage if isinstance(column, pa.ExtensionArray) else column
