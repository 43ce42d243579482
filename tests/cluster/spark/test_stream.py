"""Streaming reads over splits and merges, restarts from checkpoints, rate limits and lost messages."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from braidmq import Client
from tests.support.topic.numbered_topic import KEYS, NumberedTopic

# Half a minute would do on a machine that has nothing else to do.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(400)]


class Recorder:
    """A sink that keeps each micro-batch. It fails after the one of `fail_at`, before Spark knows it is done."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, int, bytes, bytes]]] = {}
        self.tries: list[int] = []
        self.fail_at: int | None = None

    def take(self, frame: DataFrame, batch: int) -> None:
        """For `foreachBatch`. A batch that runs again must be exactly the same."""
        rows = [(row.segment, row._offset, bytes(row.key), bytes(row.value)) for row in frame.collect()]
        assert sorted(self.batches.get(batch, rows)) == sorted(rows)
        self.batches[batch] = rows
        self.tries.append(batch)
        if self.fail_at is not None and batch >= self.fail_at:
            raise RuntimeError("stopped by the test")

    @property
    def rows(self) -> list[tuple[bytes, bytes]]:
        """Keys and values, one micro-batch after the other."""
        return [(key, value) for batch in sorted(self.batches) for _, _, key, value in self.batches[batch]]

    @property
    def sizes(self) -> list[int]:
        """Of the micro-batches that had any message."""
        return [len(rows) for _, rows in sorted(self.batches.items()) if rows]


@contextmanager
def query(
    spark: SparkSession,
    client: Client,
    topic: str,
    checkpoint: str,
    sink: Recorder,
    *,
    available: bool = False,
    **options: str,
) -> Iterator[StreamingQuery]:
    """A running query, which is stopped at the end."""
    settings = {"url": client.url, "topic": topic, "startingOffsets": "earliest"} | options
    frame = spark.readStream.format("braidmq").options(**settings).load()
    writer = frame.writeStream.foreachBatch(sink.take).option("checkpointLocation", checkpoint)
    running = (writer.trigger(availableNow=True) if available else writer).start()
    try:
        yield running
    finally:
        running.stop()


def lags_of(ended: StreamingQuery) -> list[int]:
    """What the progress of each micro-batch said of the messages that were still to be read."""
    told = [json.loads(progress["sources"][0]["latestOffset"]) for progress in ended.recentProgress]
    return [each["lag_messages"] for each in told]


def read_over_a_split(running: StreamingQuery, numbered: NumberedTopic) -> None:
    """What is there, a split, and what comes after it."""
    running.processAllAvailable()
    numbered.split()
    numbered.publish()
    running.processAllAvailable()


def test_through_splits_and_merges(braid_spark: SparkSession, client: Client, topic: str, checkpoint: str) -> None:
    """The same query all along, and again from its checkpoint in the middle of it."""
    numbered, sink = NumberedTopic(client, topic), Recorder()
    numbered.publish()
    with query(braid_spark, client, topic, checkpoint, sink) as running:
        read_over_a_split(running, numbered)
        numbered.check(sink.rows)
        numbered.split()
        numbered.publish()
    numbered.merge()
    numbered.publish()
    with query(braid_spark, client, topic, checkpoint, sink) as running:
        running.processAllAvailable()
        numbered.check(sink.rows)
        numbered.publish()
        numbered.merge()
        numbered.publish()
        running.processAllAvailable()
    numbered.check(sink.rows)
    assert len(client.topic(topic).segments) == 7


def test_all_that_is_available_now(braid_spark: SparkSession, client: Client, topic: str, checkpoint: str) -> None:
    numbered, sink = NumberedTopic(client, topic, segments=2), Recorder()
    for change in (numbered.split, numbered.merge, numbered.split):
        numbered.publish()
        change()
    numbered.publish()
    for _ in range(2):
        limits = {"maxOffsetsPerTrigger": "100", "group": "warehouse"}
        with query(braid_spark, client, topic, checkpoint, sink, available=True, **limits) as running:
            assert running.awaitTermination(60)
            lags = lags_of(running)
        numbered.check(sink.rows)
        assert max(sink.sizes) <= 100
        assert len(lags) > 1 and lags == sorted(lags, reverse=True) and lags[-1] == 0
        shown = client.group(topic, "warehouse").describe()
        assert (shown.settings["mode"], shown.lag.messages) == ("stream", 0)
        numbered.publish()
        numbered.merge()
        numbered.publish()
        sizes = len(sink.sizes)
    assert sizes == len(sink.sizes)
    # What the query has not read since then is the lag of its group.
    assert client.group(topic, "warehouse").describe().lag.messages == 20 * len(KEYS)


def test_a_micro_batch_is_the_same_again(
    braid_spark: SparkSession, client: Client, topic: str, checkpoint: str
) -> None:
    """Even if messages were published, and segments split and merged, since it was planned."""
    numbered, sink = NumberedTopic(client, topic, segments=2), Recorder()
    numbered.publish()
    for fail_at in (0, 1, 3):
        sink.fail_at = fail_at
        with (
            query(braid_spark, client, topic, checkpoint, sink, maxOffsetsPerTrigger="60") as running,
            pytest.raises(StreamingQueryException, match="stopped by the test"),
        ):
            running.processAllAvailable()
        numbered.publish()
        numbered.split()
    sink.fail_at = None
    with query(braid_spark, client, topic, checkpoint, sink, maxOffsetsPerTrigger="60") as running:
        running.processAllAvailable()
    numbered.check(sink.rows)
    assert [sink.tries.count(batch) for batch in (0, 1, 2, 3, 4)] == [2, 2, 1, 2, 1]


def test_a_query_that_began_at_the_end_keeps_its_position(
    braid_spark: SparkSession, client: Client, topic: str, checkpoint: str
) -> None:
    """Also if it had no message before it was stopped."""
    numbered, sink = NumberedTopic(client, topic), Recorder()
    numbered.publish(3)
    with query(braid_spark, client, topic, checkpoint, sink, startingOffsets="latest") as running:
        running.processAllAvailable()
    numbered.publish(2)
    with query(braid_spark, client, topic, checkpoint, sink, startingOffsets="latest") as running:
        running.processAllAvailable()
    assert sorted(sink.rows) == sorted((key.encode(), str(n).encode()) for key in KEYS for n in (3, 4))


def test_from_a_time_and_from_a_marker(braid_spark: SparkSession, client: Client, topic: str, checkpoint: str) -> None:
    numbered, sink = NumberedTopic(client, topic), Recorder()
    numbered.publish(3)
    *_, last = client.browse(topic)
    numbered.publish(2)
    (first, *_) = client.browse(topic, marker=last.marker)
    assert last.marker is not None
    options = {"startingOffsets": last.marker}
    with query(braid_spark, client, topic, checkpoint, sink, available=True, **options) as running:
        assert running.awaitTermination(60)
    assert len(sink.rows) == 2 * len(KEYS)
    timed = Recorder()
    frame = braid_spark.readStream.format("braidmq").option("url", client.url).option("topic", topic)
    frame = frame.option("startingTimestamp", first.timestamp.isoformat())
    writer = frame.load().writeStream.foreachBatch(timed.take).option("checkpointLocation", f"{checkpoint}-timed")
    assert writer.trigger(availableNow=True).start().awaitTermination(60)
    assert timed.rows == sink.rows


@pytest.mark.parametrize("fail", ["true", "false"])
def test_messages_that_have_gone(
    braid_spark: SparkSession, client: Client, topic: str, checkpoint: str, fail: str
) -> None:
    """The topic was deleted and created again while the query was stopped."""
    numbered, sink = NumberedTopic(client, topic), Recorder()
    numbered.publish(3)
    with query(braid_spark, client, topic, checkpoint, sink, available=True) as running:
        assert running.awaitTermination(60)
    client.delete_topic(topic)
    numbered, again = NumberedTopic(client, topic, segments=2), Recorder()
    numbered.publish(2)
    with query(braid_spark, client, topic, checkpoint, again, available=True, failOnDataLoss=fail) as running:
        if fail == "true":
            with pytest.raises(
                StreamingQueryException, match=r"deleted and created again.* set failOnDataLoss to false"
            ):
                running.awaitTermination(60)
        else:
            assert running.awaitTermination(60)
            numbered.check(again.rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "not allowed for streaming"),
        ({"maxOffsetsPerTriger": "5"}, "did you mean 'maxOffsetsPerTrigger'"),
        ({"startingTimestamp": "5"}, "begins at one position"),
    ],
    ids=["an-end", "a-misspelt-name", "two-starts"],
)
def test_bad_options(
    braid_spark: SparkSession, client: Client, topic: str, checkpoint: str, options: dict[str, str], message: str
) -> None:
    client.create_topic(topic)
    with (
        pytest.raises(Exception, match=message),
        query(braid_spark, client, topic, checkpoint, Recorder(), **options) as running,
    ):
        running.processAllAvailable()
