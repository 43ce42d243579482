"""The data source's writers. Rows are published under ids that are the same if a task or a query runs again.

The id of a request consists of the writer (a streaming query, whose id is in the checkpoint, or one batch write), the
partition, the micro-batch, and the request's index in the partition. By this id brokers know what they have stored.
So a task may stop at any line and be tried again, even while its first try still runs, and each row is stored once.
This requires that a partition's rows are the same, in the same order, each time. They are if they are read from a
topic or from files; after a shuffle, sort them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from braidmq.client import Client
from braidmq.spark.connection import open_client
from braidmq.spark.options import WriteOptions
from braidmq.spark.writing.rows import check_count, check_rows, requests
from filer.clock import SystemClock

# Owners remember the last 1,000 sequences of a producer, and a task that is tried again begins with its first ones.
_REQUESTS_PER_PRODUCER = 900


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The number of stored rows of a partition."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    """Publishes the rows of a batch, each partition in order.

    Partitions are stored independently. If a batch fails, the rows that its tasks have stored stay, and a run with the
    same `producerId` stores the rest.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_rows(schema, delivery=True)
        self._options = options
        self._writer = options.producer_id or f"spark.{SystemClock().ulid()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of a partition. This runs in a task."""
        return publish_partition(iterator, self._options, f"{self._writer}.{_partition()}", batch=0)


class StreamWriter(DataSourceStreamArrowWriter):
    """Publishes the rows of each micro-batch, each partition in order."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_rows(schema, delivery=True)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of a partition of a micro-batch. This runs in a task."""
        query, batch = _property("sql.streaming.queryId"), int(_property("streaming.sql.batchId"))
        return publish_partition(iterator, self._options, f"spark.{query}.{_partition()}", batch=batch)


def publish_partition(
    batches: Iterator[pa.RecordBatch], options: WriteOptions, producer: str, *, batch: int
) -> Written:
    """Publish all rows, one request after the other, so that each key keeps its order."""
    rows = index = 0
    with open_client(options.source) as client:
        for each in batches:
            for table in requests(each):
                _publish(client, options.source.topic, table, producer, batch=batch, index=index)
                rows += table.num_rows
                index += 1
    return Written(rows)


def _publish(client: Client, topic: str, table: pa.Table, producer: str, *, batch: int, index: int) -> None:
    """Publish the request of that index of a partition. Sequences only grow from one micro-batch to the next."""
    number, sequence_in_batch = divmod(index, _REQUESTS_PER_PRODUCER)
    producer_id = f"{producer}.{number}" if number else producer
    sequence = batch * _REQUESTS_PER_PRODUCER + sequence_in_batch
    published = client.publish_request(topic, table, producer_id=producer_id, sequence=sequence)
    check_count(table.num_rows, sum(each.count for each in published.positions), producer_id, sequence)


def _partition() -> int:
    context = TaskContext.get()
    assert context is not None, "writers write in tasks"
    return context.partitionId()


def _property(name: str) -> str:
    context = TaskContext.get()
    found = None if context is None else context.getLocalProperty(name)
    assert found is not None, f"Spark sets {name} for each task of a streaming query"
    return found
