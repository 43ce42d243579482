"""A data frame as one bulk load: adopted whole, in order and once, whichever tasks are tried again."""

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat, lit, timestamp_micros

from braidmq import Client, FileTaken
from braidmq.spark import InvalidOption, load, read
from tests.cluster.spark.test_write import TRIES_A_TASK, failing
from tests.support.spark.session import compiling
from tests.support.topic.numbered_topic import KEYS, NumberedTopic

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(400),
    # Of mapInArrow in the tests.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

ROWS = 500


def rows_of(spark: SparkSession, *, first: int = 0) -> DataFrame:
    """The numbers of a few keys, in reverse order; their event times give the right order."""
    number = lit(first + ROWS - 1) - col("id")
    key = concat(lit("key-"), (number % len(KEYS)).cast("string"))
    time = timestamp_micros(number)
    value = (number / len(KEYS)).cast("bigint").cast("string")
    return spark.range(ROWS, numPartitions=3).select(key.alias("key"), value.alias("value"), time.alias("event_time"))


def test_a_load_among_messages(braid_spark: SparkSession, client: Client, topic: str) -> None:
    """Keys have what was published before, then the load by event time, then what comes after; readers of all kinds."""
    numbered = NumberedTopic(client, topic, segments=2)
    numbered.publish(2)
    done = load(rows_of(braid_spark, first=2 * len(KEYS)), topic, url=client.url, segments=3)
    assert (done.messages, len(done.segments)) == (ROWS, 3)
    client.publish(topic, "after", key="key-0")
    found = [(message.key, message.value) for message in client.browse(topic)]
    assert len(found) == 2 * len(KEYS) + ROWS + 1
    for key in KEYS:
        mine = [value for found_key, value in found if found_key == key.encode()]
        wanted = [str(number).encode() for number in range(len(mine) - (key == "key-0"))]
        assert mine == wanted + ([b"after"] if key == "key-0" else [])
    frame = read(braid_spark, topic, url=client.url).orderBy("segment", "_offset")
    with compiling(braid_spark):
        assert [bytes(row.value) for row in frame.where("key = 'key-3'").collect()] == [
            value for key, value in found if key == b"key-3"
        ]


def test_a_load_that_is_stopped_and_run_again(
    braid_spark: SparkSession, client: Client, topic: str, tmp_path: Path
) -> None:
    """First each task fails once, and then all of it; the rows come in another order each time."""
    client.create_topic(topic)
    frame = rows_of(braid_spark)
    with pytest.raises(PySparkException, match="stopped by the test"):
        load(frame.mapInArrow(failing(tmp_path, TRIES_A_TASK), frame.schema), topic, url=client.url, load="again")
    assert client.read_table(topic).num_rows == 0
    done = load(frame.repartition(5), topic, url=client.url, load="again")
    assert done.messages == ROWS
    assert load(frame, topic, url=client.url, load="again") == done
    assert client.read_table(topic).num_rows == ROWS


def test_files_that_an_earlier_run_wrote(braid_spark: SparkSession, client: Client, topic: str) -> None:
    """The same rows find them; others are refused."""
    client.create_topic(topic)
    for stopped in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if stopped:
                patch.setattr(Client, "commit_load", _stop)
                with pytest.raises(KeyboardInterrupt):
                    load(rows_of(braid_spark), topic, url=client.url, load="x", segments=2)
                with pytest.raises(Exception, match=FileTaken.__name__):
                    load(rows_of(braid_spark, first=7), topic, url=client.url, load="x", segments=2)
            else:
                assert load(rows_of(braid_spark), topic, url=client.url, load="x", segments=2).messages == ROWS
    assert client.read_table(topic).num_rows == ROWS


def test_a_load_that_is_overtaken_while_its_tasks_write(
    braid_spark: SparkSession, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was reserved later is committed first: the tasks fail, and everything is written again."""
    client.create_topic(topic)
    module = sys.modules["braidmq.spark.writing.load"]  # `braidmq.spark.load` is the function
    write, runs = module._write_files, []

    def late(*args: Any, **settings: Any) -> Any:
        runs.append(args)
        if len(runs) == 1:
            client.load(topic, pa.table({"value": ["quick"]}), value="value", load="quick")
        return write(*args, **settings)

    monkeypatch.setattr(module, "_write_files", late)
    frame = rows_of(braid_spark).coalesce(1)
    assert load(frame, topic, url=client.url, load="slow", segments=1).messages == ROWS
    assert len(runs) == 2
    values = [message.value for message in client.browse(topic)]
    assert values[0] == b"quick" and len(values) == ROWS + 1


def test_a_load_that_somebody_else_commits_while_its_tasks_write(
    braid_spark: SparkSession, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows under the same name, in two concurrent runs: both return the same load."""
    client.create_topic(topic)
    module = sys.modules["braidmq.spark.writing.load"]  # `braidmq.spark.load` is the function
    write, answers = module._write_files, []
    frame = rows_of(braid_spark).coalesce(1)

    def late(*args: Any, **settings: Any) -> Any:
        if not answers:
            answers.append(None)
            answers[0] = load(frame, topic, url=client.url, load="twice", segments=1)
        return write(*args, **settings)

    monkeypatch.setattr(module, "_write_files", late)
    assert load(frame, topic, url=client.url, load="twice", segments=1) == answers[0]
    assert client.read_table(topic).num_rows == ROWS


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def test_without_keys_and_with_headers(braid_spark: SparkSession, client: Client, topic: str) -> None:
    client.create_topic(topic, value_type="string")
    frame = braid_spark.sql("select cast(id as string) value, map('h', cast(id as string)) headers from range(50)")
    assert load(frame, topic, url=client.url).messages == 50
    messages = list(client.browse(topic))
    assert sorted(int(message.value or b"") for message in messages) == list(range(50))
    assert all(message.headers == {"h": message.value} for message in messages)


def test_rows_that_are_no_messages(braid_spark: SparkSession, client: Client, topic: str) -> None:
    client.create_topic(topic, value_type="json")
    with pytest.raises(InvalidOption, match="need a column 'value'"):
        load(braid_spark.sql("select 'k' key"), topic, url=client.url)
    with pytest.raises(PySparkException, match="not JSON"):
        load(braid_spark.sql("select '{' value"), topic, url=client.url)
    assert client.read_table(topic).num_rows == 0
