"""The data source's writers: rows are published under ids that are the same when a task or a query runs again.

A request's id is who writes (the streaming query, which keeps its id in the checkpoint, or this very batch write), the
partition, the micro-batch, and the request's place in the partition. Brokers tell by it what they have stored already:
a task that stops at any line and is tried again, beside a first one that still runs even, stores each row once. It
takes that the partition's rows are the same and in the same order each time, which is so for what is read from a topic
or from files; behind a shuffle it takes a sort.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from braidmq.client import Client
from braidmq.spark.options import WriteOptions
from braidmq.spark.planning import client_of
from braidmq.spark.rows import check_count, check_rows, requests
from filer.clock import SystemClock

# Owners remember the last 1,000 sequences of a producer. A task that is tried again begins with its first ones.
_REQUESTS_A_PRODUCER = 900


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """How many rows of a partition are stored."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    """Publishes the rows of a batch, each partition's in order.

    Partitions are stored one by one: where a batch fails, what its tasks have stored by then stays, and a run under the
    same `producerId` stores the rest.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_rows(schema)
        self._options = options
        self._writer = options.producer_id or f"spark.{SystemClock().ulid()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: publish the rows of a partition."""
        return publish_partition(iterator, self._options, f"{self._writer}.{_partition()}", batch=0)


class StreamWriter(DataSourceStreamArrowWriter):
    """Publishes the rows of each micro-batch, each partition's in order."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_rows(schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: publish the rows of a partition of a micro-batch."""
        query, batch = _property("sql.streaming.queryId"), int(_property("streaming.sql.batchId"))
        return publish_partition(iterator, self._options, f"spark.{query}.{_partition()}", batch=batch)


def publish_partition(
    batches: Iterator[pa.RecordBatch], options: WriteOptions, producer: str, *, batch: int
) -> Written:
    """Publish all rows, one request after the other, so that each key's keep their order."""
    rows = count = 0
    with client_of(options.source) as client:
        for each in batches:
            for table in requests(each):
                _publish(client, options.source.topic, table, producer, batch=batch, count=count)
                rows += table.num_rows
                count += 1
    return Written(rows)


def _publish(client: Client, topic: str, table: pa.Table, producer: str, *, batch: int, count: int) -> None:
    """The request `count` of a partition. Sequences only grow from one micro-batch to the next."""
    turn, place = divmod(count, _REQUESTS_A_PRODUCER)
    producer_id = f"{producer}.{turn}" if turn else producer
    sequence = batch * _REQUESTS_A_PRODUCER + place
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
