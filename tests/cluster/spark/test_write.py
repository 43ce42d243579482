"""Writes: each row is stored once, whichever tasks are tried again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat, lit

from braidmq import Client
from tests.support.topic.numbered_topic import NumberedTopic

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(400),
    # Of mapInArrow.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

TRIES_A_TASK = 2


def messages_of(spark: SparkSession, rows: int) -> DataFrame:
    frame = spark.range(rows, numPartitions=3)
    return frame.select(
        concat(lit("k"), (col("id") % 7).cast("string")).alias("key"), col("id").cast("string").alias("value")
    )


def write(frame: DataFrame, client: Client, topic: str, **options: str) -> None:
    writer = frame.write.format("braidmq").mode("append").option("url", client.url).option("topic", topic)
    writer.options(**options).save()


def values(client: Client, topic: str) -> list[int]:
    return [int(value) for value in client.read_table(topic)["value"].to_pylist()]


def test_a_batch(braid_spark: SparkSession, client: Client, topic: str) -> None:
    client.create_topic(topic, segments=3)
    write(messages_of(braid_spark, 1000), client, topic)
    assert sorted(values(client, topic)) == list(range(1000))


def test_all_parts_of_a_message(braid_spark: SparkSession, client: Client, topic: str) -> None:
    client.create_topic(topic)
    frame = braid_spark.sql(
        "select map('a', 'b') headers, timestamp'2026-01-31 12:00:00Z' event_time, cast('v' as binary) value, 'k' key"
    )
    write(frame, client, topic)
    (message,) = client.browse(topic)
    assert (message.key, message.value, message.headers) == (b"k", b"v", {"a": b"b"})
    assert message.event_time is not None and message.event_time.isoformat() == "2026-01-31T12:00:00+00:00"


def test_a_batch_run_again_under_its_id(braid_spark: SparkSession, client: Client, topic: str) -> None:
    """Also after the segments have changed."""
    client.create_topic(topic)
    for _ in range(2):
        write(messages_of(braid_spark, 1000), client, topic, producerId="nightly-2026-11-22")
        client.split_segment(topic, max(each.segment for each in client.topic(topic).segments))
    assert sorted(values(client, topic)) == list(range(1000))
    with pytest.raises(PySparkException, match="must be the same"):
        write(messages_of(braid_spark, 1100), client, topic, producerId="nightly-2026-11-22")


def failing(folder: Path, times: int) -> Any:
    """For `mapInArrow`: passes its rows on and fails after the last, so many times for each partition."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        marks = [folder / f"{context.partitionId()}-{time}" for time in range(times)]
        left = [mark for mark in marks if not mark.exists()]
        if left:
            left[0].touch()
            raise RuntimeError("stopped by the test")

    return rows


def test_a_task_that_is_tried_again(braid_spark: SparkSession, client: Client, topic: str, tmp_path: Path) -> None:
    """Each of them has published all its rows when it fails."""
    client.create_topic(topic, segments=2)
    frame = messages_of(braid_spark, 300)
    write(frame.mapInArrow(failing(tmp_path, TRIES_A_TASK - 1), frame.schema), client, topic)
    assert len(list(tmp_path.iterdir())) == 3
    assert sorted(values(client, topic)) == list(range(300))


def test_a_stream_from_topic_to_topic_that_is_killed_and_restarted(
    braid_spark: SparkSession, client: Client, topic: str, checkpoint: str, tmp_path: Path
) -> None:
    """It dies when all rows of a micro-batch are published; before it is back, both topics split or merge."""
    source, target = NumberedTopic(client, topic, segments=2), NumberedTopic(client, f"{topic}-copy")

    def run(failures: Path, times: int) -> None:
        frame = braid_spark.readStream.format("braidmq").option("url", client.url).option("topic", topic)
        rows = frame.option("startingOffsets", "earliest").load().select("key", "value")
        writer = rows.mapInArrow(failing(failures, times), rows.schema).writeStream.format("braidmq").queryName("copy")
        writer = writer.option("url", client.url).option("topic", target.topic).option("checkpointLocation", checkpoint)
        running = writer.trigger(availableNow=True).start()
        try:
            assert running.awaitTermination(100)
        finally:
            running.stop()

    for change in (NumberedTopic.split, NumberedTopic.merge):
        source.publish(5)
        failures = tmp_path / str(source.rounds)
        failures.mkdir()
        with pytest.raises(StreamingQueryException, match="stopped by the test"):
            run(failures, TRIES_A_TASK)
        source.publish(5)
        change(source)
        change(target)
        run(failures, 0)
    copied = [(message.key, message.value) for message in client.browse(target.topic)]
    assert len(copied) == source.messages
    source.check((key, value) for key, value in copied if key is not None and value is not None)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select 1 value", "column 'value' is of type int: it must be string or binary"),
        ("select 'k' key", "need a column 'value'"),
        ("select 'v' value, 1 segment", "column 'segment' is not part of a message"),
        ("select 'v' value, map('a', 1) headers", "must be map<string,string> or map<string,binary>"),
    ],
    ids=["number-as-value", "no-value", "unknown-column", "numbers-as-headers"],
)
def test_rows_that_cannot_be_messages(
    braid_spark: SparkSession, client: Client, topic: str, query: str, message: str
) -> None:
    client.create_topic(topic)
    with pytest.raises(PySparkException, match=message):
        write(braid_spark.sql(query), client, topic)


def test_what_writing_refuses(braid_spark: SparkSession, client: Client, topic: str, checkpoint: str) -> None:
    client.create_topic(topic)
    frame = messages_of(braid_spark, 1)
    with pytest.raises(PySparkException, match="did you mean 'producerId'"):
        write(frame, client, topic, producer="x")
    with pytest.raises(PySparkException, match="only be appended to"):
        frame.write.format("braidmq").mode("overwrite").option("url", client.url).option("topic", topic).save()
    with pytest.raises(PySparkException, match="there is no topic"):
        write(frame, client, f"{topic}-not")
    assert values(client, topic) == []
