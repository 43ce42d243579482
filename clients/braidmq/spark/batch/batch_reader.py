"""The data source's batch reader."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from braidmq.spark.columns import RowFilter, arrow_schema, check_schema, schema_of
from braidmq.spark.connection import fetch_snapshot, open_client
from braidmq.spark.options import ReadOptions
from braidmq.spark.partitions.planning import (
    list_files,
    narrowed_by_time,
    partitions_for,
    read_partition,
    spans_to_read,
)


class BatchReader(DataSourceReader):
    """Reads the messages between two positions, which are fixed when the query is planned.

    It takes no filters from Spark (`pushFilters`): with them, a plain count after a filtered count was observed to
    return the filtered number. Use options to limit the read instead.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._wanted = options, schema
        self._schema = arrow_schema(schema)

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each segment with messages to read, or more if `minPartitions` asks for more.

        Raises `InvalidOption` for a column that the topic does not have, and for positions that are not valid for it.
        """
        options = self._options
        with open_client(options.source) as client:
            snapshot = fetch_snapshot(client, options.source)
            check_schema(self._wanted, schema_of(snapshot))
            spans = spans_to_read(client, snapshot, options)
            files = list_files(client, options.source.topic, spans)
        narrowed = [
            narrowed_by_time(span, listed, options.since_us, options.until_us)
            for span, listed in zip(spans, files, strict=True)
        ]
        return list(partitions_for(narrowed, files, options.min_partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition's rows. This runs in a task."""
        options = self._options
        rows = RowFilter(since_us=options.since_us, until_us=options.until_us, slots=options.slots)
        return read_partition(partition, options, self._schema, rows)
