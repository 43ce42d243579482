"""Batch reads: Spark's own reader over the live files, and the data source."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import braidmq.spark.native_read
from braidmq import Client, SegmentFile, TopicNotFound
from braidmq.spark import DataLoss, InvalidOption, read
from braidmq.spark.spans import Span
from braidmq.testing import InMemoryBroker
from filer.slots import slot_of
from tests.support.spark.session import compiling
from tests.support.topic.numbered_topic import KEYS, NumberedTopic

# Half a minute would do on a machine that has nothing else to do.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(400)]

COLUMNS = ["segment", "_offset", "_timestamp", "key", "value", "event_time", "headers", "_ref"]
ORDER = ["segment", "_offset"]


def in_order(frame: DataFrame) -> pa.Table:
    return frame.orderBy(*ORDER).toArrow()


def expected(client: Client, topic: str) -> pa.Table:
    return client.read_table(topic).sort_by([(name, "ascending") for name in ORDER]).combine_chunks()


def same(found: pa.Table, wanted: pa.Table) -> bool:
    assert found.column_names == COLUMNS
    return bool(found.cast(wanted.schema).combine_chunks().equals(wanted))


def by_source(spark: SparkSession, url: str, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("braidmq").option("url", url).option("topic", topic)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


@pytest.fixture
def shaped(client: Client, topic: str) -> NumberedTopic:
    """A topic that has split and merged, with a part of its messages in each segment."""
    shaped = NumberedTopic(client, topic, segments=2)
    shaped.publish()
    shaped.split()
    shaped.publish()
    shaped.merge()
    shaped.publish()
    return shaped


def test_whole_topic(braid_spark: SparkSession, shaped: NumberedTopic) -> None:
    """All columns of all messages, as a client reads them, in both ways."""
    client, topic = shaped.client, shaped.topic
    client.publish(topic, "one with everything", key="k", headers={"a": "b"}, event_time=datetime.now(UTC))
    client.publish(topic, None)
    client.publish(topic, b"by reference" * 200_000)
    wanted = expected(client, topic)
    frame = read(braid_spark, topic, url=client.url)
    assert frame.inputFiles()
    assert same(in_order(frame), wanted)
    assert frame.count() == wanted.num_rows
    with compiling(braid_spark):
        assert same(in_order(read(braid_spark, topic, url=client.url)), wanted)
    assert same(in_order(by_source(braid_spark, client.url, topic)), wanted)
    assert same(in_order(by_source(braid_spark, client.url, topic, minPartitions="7")), wanted)


def test_text_keys_and_json_values(braid_spark: SparkSession, client: Client, topic: str) -> None:
    client.create_topic(topic, key_type="string", value_type="json")
    client.publish(topic, {"a": 1}, key="ä")
    for frame in (read(braid_spark, topic, url=client.url), by_source(braid_spark, client.url, topic)):
        assert [(row.key, row.value) for row in frame.collect()] == [("ä", '{"a":1}')]


def test_topic_groups(braid_spark: SparkSession, client: Client, topic: str) -> None:
    """Each message of the whole tells its topic, in both ways. One topic is read as its rows."""
    members = [f"{topic}.{name}" for name in "ab"]
    client.create_topic_group(topic, members, key_type="string", value_type="string")
    for number in range(6):
        client.publish(members[number % 2], str(number), key="k")
    wanted = [(str(number), members[number % 2]) for number in range(6)]
    for frame in (read(braid_spark, topic, url=client.url), by_source(braid_spark, client.url, topic)):
        assert frame.columns == [*COLUMNS, "_topic"]
        assert [(row.value, row._topic) for row in frame.orderBy(*ORDER).collect()] == wanted
        of_one = frame.where(f"_topic = '{members[1]}'").orderBy(*ORDER)
        assert [row.value for row in of_one.collect()] == ["1", "3", "5"]
    with pytest.raises(InvalidOption, match=f"read that, and take the rows where _topic = '{members[0]}'"):
        read(braid_spark, members[0], url=client.url)
    with pytest.raises(PySparkException, match="read that, and take the rows where _topic"):
        by_source(braid_spark, client.url, members[0]).count()


def test_an_empty_topic(braid_spark: SparkSession, client: Client, topic: str) -> None:
    client.create_topic(topic)
    for frame in (read(braid_spark, topic, url=client.url), by_source(braid_spark, client.url, topic)):
        assert frame.columns == COLUMNS
        assert frame.count() == 0


def test_the_end_is_fixed_when_it_is_planned(braid_spark: SparkSession, shaped: NumberedTopic) -> None:
    frame = read(braid_spark, shaped.topic, url=shaped.client.url)
    before = shaped.messages
    shaped.publish()
    assert frame.count() == before


def test_segments_and_files_that_are_not_touched_are_not_listed(
    braid_spark: SparkSession, shaped: NumberedTopic
) -> None:
    """Segment 0 was split into 2 and 3, which merged into 4; 1 has been open all the time, and has a file a round."""
    url, topic = shaped.client.url, shaped.topic
    files: dict[int, list[SegmentFile]] = defaultdict(list)
    for file in shaped.client.files(topic):
        files[file.segment].append(file)
    assert [len(files[segment]) for segment in (0, 1, 2, 3, 4)] == [1, 3, 1, 1, 1]
    frame = read(braid_spark, topic, url=url, segments=[1])
    assert len(frame.inputFiles()) == 3
    assert {row.segment for row in frame.select("segment").distinct().collect()} == {1}
    assert by_source(braid_spark, url, topic, segments="1").count() == frame.count()
    newest = files[1][-1].base_offset
    frame = read(braid_spark, topic, url=url, start={1: newest + 1, 4: 0})
    assert sorted(path.split("segment=")[1][0] for path in frame.inputFiles()) == ["1", "4"]
    assert frame.where("segment = 1").count() == files[1][-1].count - 1


def test_from_one_position_to_another(braid_spark: SparkSession, shaped: NumberedTopic) -> None:
    """Two reads that meet at a position are the whole topic, in both ways."""
    client, topic = shaped.client, shaped.topic
    page = client.browse(topic, limit=shaped.messages // 2 + 3)
    assert len(list(page)) == shaped.messages // 2 + 3
    marker = page.marker
    assert marker is not None
    before = read(braid_spark, topic, url=client.url, end=marker)
    after = read(braid_spark, topic, url=client.url, start=marker)
    assert before.count() == shaped.messages // 2 + 3
    assert same(in_order(before.unionAll(after)), expected(client, topic))
    before = by_source(braid_spark, client.url, topic, endingOffsets=marker)
    after = by_source(braid_spark, client.url, topic, startingOffsets=marker)
    assert same(in_order(before.unionAll(after)), expected(client, topic))


def test_by_time(braid_spark: SparkSession, shaped: NumberedTopic) -> None:
    """Exactly the messages of that time, from no file that has none of them."""
    client, topic = shaped.client, shaped.topic
    wanted = expected(client, topic)
    times = sorted(set(wanted["_timestamp"].to_pylist()))
    since, until = times[1], times[-1]
    rows = [row for row in wanted.to_pylist() if since <= row["_timestamp"] < until]
    frame = read(braid_spark, topic, url=client.url, start=since, end=until)
    everything = read(braid_spark, topic, url=client.url)
    assert 0 < len(frame.inputFiles()) < len(everything.inputFiles())
    source = by_source(
        braid_spark, client.url, topic, startingTimestamp=since.isoformat(), endingTimestamp=until.isoformat()
    )
    for found in (frame, source):
        positions = [(row["segment"], row["_offset"]) for row in in_order(found).to_pylist()]
        assert positions == [(row["segment"], row["_offset"]) for row in rows]
    late = datetime.now(UTC) + timedelta(hours=1)
    assert read(braid_spark, topic, url=client.url, start=late).count() == 0


def test_by_key_range(braid_spark: SparkSession, shaped: NumberedTopic) -> None:
    shaped.client.publish(shaped.topic, "without a key")
    slots = (1000, 20_000)
    wanted = sorted(key.encode() for key in KEYS if slots[0] <= slot_of(key.encode()) < slots[1])
    assert 0 < len(wanted) < len(KEYS)
    url, topic = shaped.client.url, shaped.topic
    for frame in (
        read(braid_spark, topic, url=url, slots=slots),
        read(braid_spark, topic, url=url, slots=slots, native=False),
    ):
        found = [bytes(row.key) for row in frame.collect()]
        assert sorted(set(found)) == wanted
        assert len(found) == len(wanted) * shaped.rounds


def test_what_is_not_on_the_store_yet(
    braid_spark: SparkSession, shaped: NumberedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest messages come from brokers, beside the files."""
    listed = braidmq.spark.native_read.list_files

    def without_newest(client: Client, topic: str, spans: list[Span]) -> list[list[SegmentFile]]:
        return [files[:-1] for files in listed(client, topic, spans)]

    monkeypatch.setattr(braidmq.spark.native_read, "list_files", without_newest)
    shaped.publish()
    frame = read(braid_spark, shaped.topic, url=shaped.client.url)
    assert frame.inputFiles()
    assert same(in_order(frame), expected(shaped.client, shaped.topic))


def test_by_brokers_alone(braid_spark: SparkSession, topic: str) -> None:
    """Of a store that nobody else can see."""
    with InMemoryBroker() as broker, broker.client() as client:
        NumberedTopic(client, topic, segments=3).publish()
        assert same(in_order(read(braid_spark, topic, url=broker.url)), expected(client, topic))


def test_some_columns(braid_spark: SparkSession, shaped: NumberedTopic) -> None:
    reader = braid_spark.read.format("braidmq").schema("value binary, segment bigint")
    frame = reader.option("url", shaped.client.url).option("topic", shaped.topic).load()
    assert frame.columns == ["value", "segment"]
    assert frame.count() == shaped.messages


def test_a_filter_stays_with_its_own_query(braid_spark: SparkSession, shaped: NumberedTopic) -> None:
    frame = by_source(braid_spark, shaped.client.url, shaped.topic)
    assert frame.where("segment = 0 and value = '3'").count() < shaped.messages
    assert frame.count() == shaped.messages


def test_what_is_refused(braid_spark: SparkSession, client: Client, topic: str) -> None:
    """In the driver, with this package's error texts."""
    client.create_topic(topic, segments=2)
    for options, message in (
        ({"startingOfsets": "earliest"}, "did you mean 'startingOffsets'"),
        (
            {"startingOffsets": '{"0": 1}'},
            "leaves out a part .* offsets of segments that take all keys",
        ),
    ):
        with pytest.raises(PySparkException, match=message):
            by_source(braid_spark, client.url, topic, **options).count()
    reader = braid_spark.read.format("braidmq").schema("vlaue binary").option("url", client.url)
    with pytest.raises(PySparkException, match="unknown column 'vlaue': did you mean 'value'"):
        reader.option("topic", topic).load().count()


def test_bad_arguments(braid_spark: SparkSession, client: Client, topic: str) -> None:
    with pytest.raises(TopicNotFound, match="there is no topic"):
        read(braid_spark, topic, url=client.url)
    client.create_topic(topic)
    with pytest.raises(InvalidOption, match="not a range within"):
        read(braid_spark, topic, url=client.url, slots=(5, 5))
    client.delete_topic(topic)
    client.create_topic(topic)
    with pytest.raises(DataLoss, match="deleted and created again"):
        read(braid_spark, topic, url=client.url, start={0: 0})
    client.publish(topic, "x")
    assert read(braid_spark, topic, url=client.url, start={0: 0}, fail_on_data_loss=False).count() == 1
