"""A Spark standalone cluster, a broker on S3: jobs and workers that are killed, and reads on executors."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braidmq import Client
from filer.keys import segments_folder
from tests.cluster.spark.conftest import NO_UPKEEP
from tests.support.broker.broker_process import BrokerProcess
from tests.support.cluster.cluster_reads import BY_READ, BY_SOURCE, BY_STREAM
from tests.support.process.process_group import ProcessGroup, python
from tests.support.spark.standalone_cluster import SparkCluster
from tests.support.store.s3_faults import S3Faults
from tests.support.store.s3_server import S3_ENVIRONMENT, s3_server
from tests.support.topic.numbered_topic import KEYS, NumberedTopic

# A minute would do on a machine that has nothing else to do.
pytestmark = [pytest.mark.xdist_group("spark-programs"), pytest.mark.timeout(600)]

BUCKET, PREFIX = "cluster", "prefix"
ROWS = 2300
LOAD_SEGMENTS = 8
# A worker is killed when some files are there and while others are being put.
PUT_SECONDS = 0.7
BEGAN = datetime(2013, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster and a broker, and the S3 server between them."""

    cluster: SparkCluster
    broker: BrokerProcess
    bucket: httpx.Client
    faults: S3Faults

    def load_files(self, topic: str) -> dict[str, str]:
        """The names of a topic's segment files, and when each was stored."""
        asked = {"list-type": "2", "prefix": f"{PREFIX}/{segments_folder(topic)}"}
        listed = self.bucket.get("", params=asked).raise_for_status().text
        return dict(re.findall(r"<Key>([^<]*\.parquet)</Key><LastModified>([^<]*)<", listed.replace("\n", "")))

    def backfill(self, source: Path, topic: str) -> ProcessGroup:
        """The job under the load's name `history`."""
        options = ["--key", "key", "--value", "number", "--event-time", "at", "--order-by-event-time"]
        options += ["--segments", str(LOAD_SEGMENTS), "--load", "history", "--url", self.broker.url]
        command = python("mq.cli.main", "pipeline", "backfill", str(source), topic, "--master", self.cluster.url)
        return ProcessGroup([*command, *options], env=self.cluster.environment, log=source.with_suffix(".log"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with (
        s3_server() as endpoint,
        httpx.Client(base_url=f"{endpoint}/{BUCKET}", trust_env=False) as bucket,
        SparkCluster(tmp_path_factory.mktemp("spark") / "cluster") as cluster,
    ):
        bucket.put("").raise_for_status()
        args = ("--s3-endpoint", endpoint, "--s3-addressing", "path", *NO_UPKEEP)
        with BrokerProcess(store=f"s3://{BUCKET}/{PREFIX}", args=args, env=S3_ENVIRONMENT) as broker:
            yield Site(cluster, broker, bucket, S3Faults(endpoint))


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    with Client(site.broker.url) as client:
        yield client


def write_source(path: Path) -> Path:
    """Numbers of a few keys, the last ones first."""
    numbers = list(range(ROWS))[::-1]
    columns = {
        "key": [KEYS[number % len(KEYS)] for number in numbers],
        "number": [str(number // len(KEYS)) for number in numbers],
        "at": pa.array([BEGAN + timedelta(minutes=number) for number in numbers], pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(columns), path, row_group_size=ROWS // 4)
    return path


def test_reads_on_executors(site: Site, client: Client, topic: str, tmp_path: Path) -> None:
    """By presigned addresses, in a batch and a stream, over a split."""
    numbered = NumberedTopic(client, topic)
    numbered.publish()
    numbered.split()
    numbered.publish()
    command = python("tests.support.cluster.cluster_reads", site.cluster.url, site.broker.url, topic, str(tmp_path))
    with ProcessGroup(command, env=site.cluster.environment, log=tmp_path / "log") as reads:
        reads.finish()
    for name in (BY_READ, BY_SOURCE, BY_STREAM):
        rows = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        numbered.check((key.encode(), value.encode()) for key, value in rows)


def test_a_backfill_that_is_killed_and_loses_a_worker_when_it_is_run_again(
    site: Site, client: Client, topic: str, tmp_path: Path
) -> None:
    """The first time the job is killed, driver and all, with some files written and others not."""
    numbered, source = NumberedTopic(client, topic), write_source(tmp_path / "rows.parquet")

    def some_are_there() -> bool:
        return len(site.load_files(topic)) > len(before)

    before = site.load_files(topic)
    site.faults.slow_puts(PUT_SECONDS)
    with site.backfill(source, topic) as job:
        job.until(some_are_there)
        job.kill()
    # Executors whose driver is gone may end what they were at.
    before = site.load_files(topic)
    assert client.read_table(topic).num_rows == 0
    with site.backfill(source, topic) as job:
        job.until(some_are_there)
        site.cluster.workers[0].kill()
        assert 0 < len(before) < len(site.load_files(topic)) < LOAD_SEGMENTS
        site.faults.heal()
        job.finish()
    numbered.rounds = ROWS // len(KEYS)
    numbered.check((message.key or b"", bytes(message.value or b"")) for message in client.browse(topic))
    assert before.items() <= site.load_files(topic).items()
