"""A topic on S3, which this Spark has no connector for: files by presigned addresses."""

from collections.abc import Iterator

import httpx
import pytest
from pyspark.sql import SparkSession

from braidmq import Client
from braidmq.spark import read
from tests.cluster.spark.test_stream import Recorder, query, read_over_a_split
from tests.support.broker.broker_process import BrokerProcess
from tests.support.store.s3_server import S3_ENVIRONMENT, s3_server
from tests.support.topic.numbered_topic import NumberedTopic

# Half a minute would do on a machine that has nothing else to do.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(400)]

BUCKET = "spark"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with s3_server() as endpoint:
        httpx.put(f"{endpoint}/{BUCKET}").raise_for_status()
        args = ("--s3-endpoint", endpoint, "--s3-addressing", "path", "--maintenance-interval", "3600")
        with (
            BrokerProcess(store=f"s3://{BUCKET}/prefix", args=args, env=S3_ENVIRONMENT) as broker,
            Client(broker.url) as client,
        ):
            yield client


def test_a_batch(braid_spark: SparkSession, client: Client, topic: str) -> None:
    numbered = NumberedTopic(client, topic, segments=2)
    numbered.publish()
    numbered.split()
    numbered.publish()
    frame = read(braid_spark, topic, url=client.url)
    rows = frame.orderBy("segment", "_offset").collect()
    numbered.check((bytes(row.key), bytes(row.value)) for row in rows)
    assert [file.url is not None for file in client.files(topic)]


def test_a_stream(braid_spark: SparkSession, client: Client, topic: str, checkpoint: str) -> None:
    numbered, sink = NumberedTopic(client, topic), Recorder()
    numbered.publish()
    with query(braid_spark, client, topic, checkpoint, sink) as running:
        read_over_a_split(running, numbered)
    numbered.check(sink.rows)
