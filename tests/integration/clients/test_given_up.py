"""What somebody has given up of a topic is passed by, by every kind of reader, also where a broker runs meanwhile."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from braidmq import Client, DataDamaged, DataMissing
from braidmq.spark.connection import fetch_snapshot
from braidmq.spark.options import Source
from braidmq.spark.partitions.span_reader import SpanReader, span_files
from braidmq.spark.spans import Span
from filer import keys
from filer.clock import Clock
from filer.keys import FileName
from filer.stores.store import Store
from filer.stores.store_address import StoreAddress
from mq.cli.main import run
from pipeline.compact.compact import Run, roll_up_run
from pipeline.export.export import Export, export_topic
from pipeline.export.parquet_table import finish_run
from pipeline.stores import run_on_store
from pipeline.topic_files import list_topic, read_topic
from tests.support.broker.broker_process import BrokerProcess
from tests.support.process.processes import until
from tests.support.spark.workers import HERE
from tests.support.topic.stored_topic import TOPIC, store_topic

SEALED = (15_000, 2, 3, 15_000, 4)
LOST = {(0, 15_000): (15_000, 15_002), (0, 30_005): (30_005, 30_009), (1, 2): (2, 4)}
"""Files in the middle and at the end of a sealed segment, and in the middle of an open one, with their offsets."""
KEPT = [(0, o) for o in range(30_009) if not (15_000 <= o < 15_002 or o >= 30_005)] + [(1, 0), (1, 1), (1, 4), (1, 5)]
READER_SECONDS = 60
NO_ROLL_UP = ("--maintenance-interval", "0.2", "--rollup-age", "3600")

Rows = list[tuple[int, int]]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    asyncio.run(store_topic(root, sealed={0: SEALED}, still_open=(2, 2, 2)))
    return root


def lose(root: Path) -> dict[Path, bytes]:
    paths = [root / keys.segment_file(TOPIC, segment, FileName(base)) for segment, base in LOST]
    kept = {path: path.read_bytes() for path in paths}
    for path in paths:
        path.unlink()
    return kept


def repair(root: Path, *options: str) -> int:
    return run(["topic", "repair", TOPIC, "--store", str(root), *options])


# -- readers -----------------------------------------------------------------------------------------------


def by_table(client: Client) -> Rows:
    table = client.read_table(TOPIC)
    return [*zip(table["segment"].to_pylist(), table["_offset"].to_pylist(), strict=True)]


def by_message(client: Client) -> Rows:
    return [(message.segment, message.offset) for message in client.browse(TOPIC)]


def by_brokers_pages(client: Client) -> Rows:
    with Client(client.url, read_files=False) as plain:
        return by_table(plain)


def by_json(client: Client) -> Rows:
    found: Rows = []
    marker: dict[str, str] = {"from": "earliest"}
    with httpx.Client(base_url=client.url) as http:
        while True:
            page = http.get(f"/v1/topics/{TOPIC}/messages", params={**marker, "limit": 9000}).raise_for_status().json()
            if not page["messages"] and marker.get("marker") == page["marker"]:
                return found
            found += [(each["segment"], each["offset"]) for each in page["messages"]]
            marker = {"marker": page["marker"]}


def by_segment(client: Client) -> Rows:
    found: Rows = []
    for segment in client.topic(TOPIC).segments:
        offset, end = segment.start_offset, segment.end_offset or 0
        while offset < end:
            page = client.segment_page(TOPIC, segment.segment, offset=offset)
            assert page.next_offset > offset
            found += [(segment.segment, each) for each in page.table["_offset"].to_pylist()]
            offset = page.next_offset
    return found


def by_subscription(client: Client) -> Rows:
    found: Rows = []
    address = f"{client.url}/v1/topics/{TOPIC}/subscribe"
    with httpx.stream("GET", address, params={"from": "earliest"}, headers={"accept": "application/x-ndjson"}) as lines:
        for line in lines.iter_lines():
            each = json.loads(line).get("message") if line else None
            if each is not None:
                found.append((each["segment"], each["offset"]))
            if len(found) == len(KEPT):
                return found
    raise AssertionError("the stream ended")


def by_files(client: Client) -> Rows:
    return [
        (each.segment, offset) for each in client.files(TOPIC) for offset in range(each.base_offset, each.end_offset)
    ]


def by_spark_tasks(client: Client) -> Rows:
    """As a task of Spark reads a span: by the files that are listed, and what is in none by brokers."""
    found: Rows = []
    for segment in client.topic(TOPIC).segments:
        span = Span(segment.segment, segment.start_offset, segment.end_offset or 0)
        with httpx.Client() as http:
            files = span_files(client, TOPIC, span)
            reader = SpanReader(client, http, TOPIC, span, files, ["_offset"], fail_on_data_loss=True)
            found += [(segment.segment, o) for batch in reader.batches() for o in batch["_offset"].to_pylist()]
    return found


READERS: list[Callable[[Client], Rows]] = [
    by_table,
    by_message,
    by_brokers_pages,
    by_json,
    by_segment,
    by_subscription,
    by_files,
    by_spark_tasks,
]


def check_readers(client: Client) -> None:
    for reader in READERS:
        assert sorted(reader(client)) == KEPT, reader.__name__


def check_it_is_whole(root: Path) -> None:
    assert repair(root) == 0
    assert run(["verify", TOPIC, "--store", str(root)]) == 0


def test_given_up_before_a_broker_starts(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kept = lose(root)
    before = (root / keys.topic(TOPIC)).read_bytes()
    with BrokerProcess(data=root):
        pass  # its first start notes the grace period, and seals what its owner left
    assert repair(root) == 1
    assert repair(root, "--accept-loss") == 0
    assert before != (root / keys.topic(TOPIC)).read_bytes()
    with BrokerProcess(data=root, args=NO_ROLL_UP) as broker, Client(broker.url) as client:
        check_readers(client)
        [first, second, *_] = client.topic(TOPIC).segments
        assert [(each.offset, each.next_offset) for each in first.given_up] == [(15_000, 15_002), (30_005, 30_009)]
        assert [(each.offset, each.next_offset) for each in second.given_up] == [(2, 4)]
        assert [len(life.given_up) for life in client.history(TOPIC)][:2] == [2, 1]
        check_it_is_whole(root)
        for path, data in kept.items():
            path.write_bytes(data)
        check_readers(client)
        check_it_is_whole(root)
    with BrokerProcess(data=root, args=NO_ROLL_UP) as again, Client(again.url) as client:
        check_readers(client)
        check_it_is_whole(root)
        assert all(path.exists() for path in kept)


def test_given_up_while_a_broker_runs(root: Path) -> None:
    lose(root)
    with BrokerProcess(data=root, args=NO_ROLL_UP) as broker, Client(broker.url) as client:
        with pytest.raises(DataMissing):
            by_brokers_pages(client)
        assert [each.what for each in client.topic(TOPIC).damaged] == ["missing"] * 3
        assert repair(root, "--accept-loss") == 0
        until(lambda: not client.topic(TOPIC).damaged, timeout_seconds=READER_SECONDS)
        check_readers(client)
        client.publish(TOPIC, value="behind it")
        assert sorted(by_brokers_pages(client))[:-1] == KEPT


def test_roll_ups_do_not_reach_over_it(root: Path) -> None:
    lose(root)
    with BrokerProcess(data=root):
        pass
    assert repair(root, "--accept-loss") == 0
    often = ("--maintenance-interval", "0.1", "--rollup-age", "0")
    with BrokerProcess(data=root, args=often) as broker, Client(broker.url) as client:
        until(
            lambda: any(len(file.uri.rsplit("/", 1)[1]) > 30 for file in client.files(TOPIC)),
            timeout_seconds=READER_SECONDS,
        )
        check_readers(client)
    check_it_is_whole(root)


def test_jobs_pass_it_by(root: Path, tmp_path: Path) -> None:
    lose(root)
    with BrokerProcess(data=root):
        pass
    assert repair(root, "--accept-loss") == 0
    here = StoreAddress(str(root))

    async def compact(store: Store, clock: Clock) -> None:
        for listed in (await list_topic(store, await read_topic(store, clock, TOPIC)))[:1]:
            between = [file for file in listed.files if 15_002 <= file.start < 30_005]
            assert (await roll_up_run(store, clock, Run(between, True))).why_not is None

    run_on_store(here, compact)

    target = StoreAddress(str(tmp_path / "table"))
    done = export_topic(HERE, Export(here, target, TOPIC, "parquet", "none"), finish_run)
    assert done.messages == len(KEPT)
    check_it_is_whole(root)


@pytest.fixture
def damaged_end(root: Path) -> Iterator[Path]:
    """The newest file of the open segment, whose footer is damaged."""
    path = root / keys.segment_file(TOPIC, 1, FileName(4))
    data = bytearray(path.read_bytes())
    data[-20] ^= 4
    path.write_bytes(data)
    # Its owner is gone for long, and takes it for no proof any more.
    os.utime(path, (time.time() - 7200,) * 2)
    yield path


def test_a_segment_with_a_damaged_end_gets_its_successor(root: Path, damaged_end: Path) -> None:
    with BrokerProcess(data=root, args=NO_ROLL_UP) as broker, Client(broker.url) as client:
        assert [(each.segment, each.next_offset) for each in client.topic(TOPIC).damaged] == [(1, None)]
        snapshot = fetch_snapshot(client, Source(broker.url, TOPIC))
        with pytest.raises(DataDamaged, match=r"00004\.parquet is damaged, .* end segment 1 at offset 4") as raised:
            snapshot.latest()
        assert (raised.value.segment, raised.value.key) == (1, keys.segment_file(TOPIC, 1, FileName(4)))
        with pytest.raises(DataDamaged, match=r"00004\.parquet is damaged"):
            list(client.browse(TOPIC))
        with pytest.raises(DataDamaged, match=r"00004\.parquet is damaged"):
            list(client.files(TOPIC))
        assert repair(root, "--accept-loss") == 0
        # The successor comes with the first publish.
        client.publish(TOPIC, value="behind it")
        found = by_brokers_pages(client)
        assert [each for each in found if each[0] > 0] == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0)]
        assert sorted(by_spark_tasks(client)) == sorted(found)
        assert not client.topic(TOPIC).damaged
        check_it_is_whole(root)


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("native", [True, False], ids=["its own Parquet reader", "the data source"])
def test_spark_passes_it_by(spark: "SparkSession", root: Path, native: bool) -> None:
    from braidmq.spark import read

    lose(root)
    with BrokerProcess(data=root):
        pass
    assert repair(root, "--accept-loss") == 0
    with BrokerProcess(data=root, args=NO_ROLL_UP) as broker:
        frame = read(spark, TOPIC, url=broker.url, native=native)
        assert sorted((row["segment"], row["_offset"]) for row in frame.select("segment", "_offset").collect()) == KEPT
