"""The data source's batch reader."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from braidmq.spark.columns import RowFilter, arrow_schema, check_schema
from braidmq.spark.options import ReadOptions
from braidmq.spark.planning import (
    client_of,
    listed_files,
    narrowed,
    partitions_of,
    read_partition,
    shape_of,
    wanted_spans,
)


class BatchReader(DataSourceReader):
    """Reads what lies between two positions, fixed when the query is planned.

    It takes no filters from Spark (`pushFilters`): with them, a plain count after a filtered one was seen to come back
    filtered. Options say what not to read.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._wanted = options, schema
        self._schema = arrow_schema(schema)

    def partitions(self) -> list[InputPartition]:
        """One for each segment that has anything of it, or more where `minPartitions` asks for them.

        Raises `InvalidOption` for a column that the topic has not, and for positions that are none of it.
        """
        options = self._options
        with client_of(options.source) as client:
            shape = shape_of(client, options.source)
            check_schema(self._wanted, shape.state.config)
            spans = wanted_spans(client, shape, options)
            files = listed_files(client, options.source.topic, spans)
        timed = [
            narrowed(span, listed, options.since_us, options.until_us)
            for span, listed in zip(spans, files, strict=True)
        ]
        return list(partitions_of(timed, files, options.min_partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: a partition's rows."""
        options = self._options
        rows = RowFilter(since_us=options.since_us, until_us=options.until_us, slots=options.slots)
        return read_partition(partition, options, self._schema, rows)
