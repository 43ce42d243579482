"""Real input from end to end: flights published by the command line, keyed by tail number, read back in every way."""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import httpx
import numpy as np
import numpy.typing as npt
import orjson
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from botocore.config import Config
from pyarrow import fs, json
from pyspark.sql import SparkSession

from braidmq import Client
from filer.keys import FileName, segments_folder
from filer.segment.live_files import live_names
from tests.support.broker.broker_process import BrokerProcess
from tests.support.process.mq import mq
from tests.support.store.s3_server import s3_server
from tests.support.thoroughness import few_or_many
from tests.support.topic.flights import ALL_FLIGHTS, KEY, ROW, Flights, write_flights
from tests.support.topic.offline_readers import COLUMNS, by_duckdb, by_pandas, by_polars, by_spark, in_order

# Two minutes would do on a machine that has nothing else to do.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(400)]

TOPIC = "flights"
# The first of them, or all of a year.
COUNT, WITHOUT_KEY = few_or_many(100_000, ALL_FLIGHTS), few_or_many(547, 2512)
SEGMENTS = 4
SEGMENT_FILES = "segment=*/*.parquet"
# Readers that know nothing of roll-ups can read a folder before there are any, and once grace is over.
NO_UPKEEP = ("--maintenance-interval", "3600")
ROLLED_UP_AT_ONCE = ("--maintenance-interval", "0.2", "--rollup-age", "0", "--grace", "1")
ROLL_UP_SECONDS = 60
REQUEST_ROWS = 10_000
BUCKET = "flights"
S3_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic full of flights: its broker's address, and its files where they are in a directory."""

    url: str
    data: Path
    flights: Flights

    @property
    def folder(self) -> Path:
        """What offline readers are pointed at."""
        return self.data / segments_folder(TOPIC)


@pytest.fixture(scope="module")
def all_flights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topic]:
    """On a local directory."""
    folder = tmp_path_factory.mktemp("flights")
    flights = write_flights(folder / "flights.csv", count=COUNT)
    with BrokerProcess(data=folder / "data", args=NO_UPKEEP) as broker:
        publish(broker.url, flights)
        yield Topic(broker.url, folder / "data", flights)


@pytest.fixture(scope="module")
def by_broker(all_flights: Topic) -> pa.Table:
    """All flights as the Python client reads them, in the order of segments and offsets."""
    return in_order(by_client(all_flights.url))


def publish(url: str, flights: Flights) -> None:
    mq("topic", "create", TOPIC, "--segments", str(SEGMENTS), "--value-type", "json", "--url", url)
    report = mq("publish", TOPIC, "--file", str(flights.path), "--key-field", KEY, "--url", url, "--json")
    assert orjson.loads(report)["count"] == flights.count


def publish_without_id(url: str, flights: Flights) -> None:
    """One request after the other, without a producer's id: then where messages without a key go is not random."""
    values = pa.array([orjson.dumps(row).decode() for row in flights.table.to_pylist()])
    table = pa.table({"key": flights.table[KEY], "value": values})
    with Client(url, idempotent=False, direct=False) as client:
        client.create_topic(TOPIC, segments=SEGMENTS, value_type="json")
        for start in range(0, flights.count, REQUEST_ROWS):
            client.publish_table(TOPIC, table.slice(start, REQUEST_ROWS), key="key", value="value")


def by_client(url: str) -> pa.Table:
    with Client(url) as client:
        return client.read_table(TOPIC).select(COLUMNS)


def by_subscribe(url: str, flights: Flights) -> tuple[pa.Table, pa.Table]:
    """Segment, offset and key of what `mq subscribe` prints, in that order; and the flights it prints as values."""
    printed = mq("subscribe", TOPIC, "--from", "earliest", "--until-end", "--format", "ndjson", "--url", url)
    value = pa.struct(list(flights.table.schema))
    schema = pa.schema([("segment", pa.int64()), ("offset", pa.int64()), ("key", pa.string()), ("value", value)])
    options = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    messages = json.read_json(pa.BufferReader(printed), parse_options=options)
    positions = messages.select(["segment", "offset", "key"]).rename_columns(["segment", "_offset", "key"])
    return positions, pa.Table.from_struct_array(messages["value"])


def flights_in(read: pa.Table, flights: Flights) -> pa.Table:
    """The values as columns."""
    values = read["value"].cast(pa.string()).combine_chunks()
    lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values), "\n")
    options = json.ParseOptions(explicit_schema=flights.table.schema, unexpected_field_behavior="error")
    return json.read_json(pa.BufferReader(lines[0].as_buffer()), parse_options=options)


def check_read(read: pa.Table, flights: Flights) -> None:
    check_complete(read, flights_in(read, flights), flights)


def check_complete(positions: pa.Table, found: pa.Table, flights: Flights) -> None:
    """Every flight once as it was, each key's in order and in one segment, no gap in any segment."""
    found = found.select(flights.table.column_names)
    assert found.sort_by(ROW).combine_chunks().equals(flights.table.combine_chunks())
    assert positions["key"].cast(pa.string()).combine_chunks().equals(found[KEY].combine_chunks())
    segments = positions["segment"].to_numpy()
    assert set(segments.tolist()) == set(range(SEGMENTS))
    for segment in range(SEGMENTS):
        offsets = positions["_offset"].to_numpy()[segments == segment]
        assert np.array_equal(offsets, np.arange(len(offsets)))
    check_order(found, segments)


def check_order(found: pa.Table, segments: npt.NDArray[np.int64]) -> None:
    """Rows of one key come as they went; so do those without a key within each segment."""
    codes = found[KEY].combine_chunks().dictionary_encode().indices
    keyed = codes.is_valid().to_numpy(zero_copy_only=False)
    groups = np.where(keyed, codes.fill_null(0).to_numpy(), -1 - segments)
    order = np.argsort(groups, kind="stable")
    same = np.diff(groups[order]) == 0
    assert (np.diff(found[ROW].to_numpy()[order])[same] > 0).all()
    assert (np.diff(segments[order])[same] == 0).all(), "a key is in two segments"


def same_positions(positions: pa.Table, expected: pa.Table) -> bool:
    """Whether each key is where it is expected, in the order of segments and offsets."""
    ordered = positions.sort_by([("segment", "ascending"), ("_offset", "ascending")]).combine_chunks()
    return bool(ordered.set_column(2, "key", ordered["key"].cast(pa.binary())).equals(expected.select(COLUMNS[:3])))


def test_client(all_flights: Topic) -> None:
    assert all_flights.flights.count == COUNT
    assert all_flights.flights.table[KEY].null_count == WITHOUT_KEY
    check_read(by_client(all_flights.url), all_flights.flights)


def test_subscribe(all_flights: Topic, by_broker: pa.Table) -> None:
    positions, values = by_subscribe(all_flights.url, all_flights.flights)
    check_complete(positions, values, all_flights.flights)
    assert same_positions(positions, by_broker)


@pytest.mark.parametrize("read", [by_duckdb, by_pandas, by_polars])
def test_offline_reader(all_flights: Topic, by_broker: pa.Table, read: Callable[[Path], pa.Table]) -> None:
    table = read(all_flights.folder)
    check_read(table, all_flights.flights)
    assert table.equals(by_broker)


def test_spark(all_flights: Topic, by_broker: pa.Table, spark: SparkSession) -> None:
    table = by_spark(all_flights.folder, spark)
    check_read(table, all_flights.flights)
    assert table.equals(by_broker)


def test_plain_readers_after_roll_up_and_grace(
    all_flights: Topic, by_broker: pa.Table, spark: SparkSession, tmp_path: Path
) -> None:
    """A later life of the broker rolls up and clears away what was sealed: fewer files, the same messages."""
    rolled = Topic("", tmp_path / "data", all_flights.flights)
    # Without its settings, as the cluster has another grace period from now on.
    shutil.copytree(all_flights.data, rolled.data, ignore=shutil.ignore_patterns("settings*.json"))
    written = len(list(rolled.folder.glob(SEGMENT_FILES)))
    with BrokerProcess(data=rolled.data, args=ROLLED_UP_AT_ONCE) as broker:
        for segment in range(SEGMENTS):
            httpx.post(f"{broker.url}/v1/topics/{TOPIC}/segments/{segment}/split", timeout=30).raise_for_status()
        await_rolled_up(rolled.folder)
        assert in_order(by_client(broker.url)).equals(by_broker)
    assert len(list(rolled.folder.glob(SEGMENT_FILES))) < written / 2
    for read in (by_duckdb, by_pandas, by_polars):
        assert read(rolled.folder).equals(by_broker)
    assert by_spark(rolled.folder, spark).equals(by_broker)


def await_rolled_up(folder: Path) -> None:
    """Wait until each of the first segments is its roll-ups and its seal, and what they replace is gone.

    It is two roll-ups where a round of maintenance came before the split: the last files of an open segment stay as
    they are, and are too few later to write all the others again.
    """
    deadline = time.monotonic() + ROLL_UP_SECONDS
    while any(not is_rolled_up(folder / f"segment={segment}") for segment in range(SEGMENTS)):
        assert time.monotonic() < deadline, sorted(str(path) for path in folder.glob(SEGMENT_FILES))
        time.sleep(0.1)


def is_rolled_up(folder: Path) -> bool:
    names = [name for path in folder.iterdir() if (name := FileName.parse(path.name))]
    live = [each.name for each in live_names(names)]
    *before, _seal = live
    return len(live) == len(names) <= 3 and bool(before) and all(name.rolled for name in before)


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    with s3_server() as url:
        yield url


def test_same_on_s3(s3_endpoint: str, tmp_path: Path) -> None:
    """A quarter of the flights on S3 and on a directory: the same files, the same answers."""
    flights = write_flights(tmp_path / "flights.csv", count=COUNT // 4)
    s3 = boto3.client(
        "s3",
        endpoint_url=s3_endpoint,
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
        config=Config(s3={"addressing_style": "path"}),
    )
    s3.create_bucket(Bucket=BUCKET)
    local = Topic("", tmp_path / "local", flights)
    copy = Topic("", tmp_path / "copy", flights)
    with BrokerProcess(data=local.data, args=NO_UPKEEP) as broker:
        publish_without_id(broker.url, flights)
        expected = in_order(by_client(broker.url))
    on_s3 = (*NO_UPKEEP, "--s3-endpoint", s3_endpoint)
    with BrokerProcess(store=f"s3://{BUCKET}/some/prefix", args=on_s3, env=S3_ENVIRONMENT) as broker:
        publish_without_id(broker.url, flights)
        read = by_client(broker.url)
        check_read(read, flights)
        assert in_order(read).equals(expected)
        positions, values = by_subscribe(broker.url, flights)
        check_complete(positions, values, flights)
        assert same_positions(positions, expected)
    download(s3, f"some/prefix/{segments_folder(TOPIC)}", copy.folder)
    check_same_files(local.folder, copy.folder)
    for read in (by_duckdb, by_pandas, by_polars):
        assert read(copy.folder).equals(expected)
    for table in straight_from_s3(s3_endpoint, f"{BUCKET}/some/prefix/{segments_folder(TOPIC)}"):
        assert in_order(table).equals(expected)


def download(s3: Any, prefix: str, folder: Path) -> None:
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix):
        for found in page["Contents"]:
            path = folder / found["Key"].removeprefix(prefix)
            path.parent.mkdir(parents=True, exist_ok=True)
            s3.download_file(BUCKET, found["Key"], str(path))


def check_same_files(one: Path, other: Path) -> None:
    """The same names, and in each the same rows; when they were accepted differs."""
    names = sorted(path.relative_to(one) for path in one.rglob("*.parquet"))
    assert names == sorted(path.relative_to(other) for path in other.rglob("*.parquet"))
    assert len(names) > SEGMENTS
    for name in names:
        first, second = (pq.ParquetFile(folder / name).read() for folder in (one, other))
        assert first.drop_columns(["_timestamp"]).equals(second.drop_columns(["_timestamp"])), name


def straight_from_s3(endpoint: str, prefix: str) -> Iterator[pa.Table]:
    """The folder read where it is, by those readers that need nothing installed for it."""
    options = {"access_key": "testing", "secret_key": "testing", "region": "us-east-1"}
    filesystem = fs.S3FileSystem(endpoint_override=endpoint.removeprefix("http://"), scheme="http", **options)
    yield ds.dataset(prefix, filesystem=filesystem, format="parquet", partitioning="hive").to_table(COLUMNS)
    frame = pd.read_parquet(prefix, filesystem=filesystem)
    yield pa.Table.from_pandas(frame[COLUMNS], preserve_index=False)
    storage = {"aws_endpoint_url": endpoint, "aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    location = {"aws_region": "us-east-1", "aws_allow_http": "true"}
    yield pl.read_parquet(f"s3://{prefix}", storage_options={**storage, **location}).select(COLUMNS).to_arrow()
