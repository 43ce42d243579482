"""Backfill: any table into a topic as a load, in order, each row once however often it is begun."""

import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ulid import ULID

from braidmq import Client, CommittedLoad, FileTaken
from pipeline.backfill.backfill import backfill
from pipeline.backfill.choices import Columns, Source
from pipeline.commands import parse
from pipeline.errors import JobFailed
from tests.support.broker.broker_process import BrokerProcess
from tests.support.spark.workers import on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

ROWS = 2000
KEYS = 37
BEGAN = datetime(2013, 1, 1, tzinfo=UTC)
BY_TIME = Columns("tail", None, "at", order_by_event_time=True)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(data=tmp_path_factory.mktemp("backfill") / "data") as broker:
        yield broker


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with Client(broker.url) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"t-{ULID()}"


def write_source(path: Path, *, rows: int = ROWS) -> Source:
    """Numbered rows whose times run against their numbers, some without a key."""
    columns = {
        "n": list(range(rows)),
        "tail": [None if n % 50 == 0 else f"N{n % KEYS}" for n in range(rows)],
        "at": pa.array([BEGAN + timedelta(minutes=rows - n) for n in range(rows)], pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(columns), path, row_group_size=100)
    return Source(str(path), "parquet")


def numbers(table: pa.Table) -> list[int]:
    return [json.loads(value)["n"] for value in table["value"].to_pylist()]


def check_order(table: pa.Table) -> None:
    """By key, later rows of the source come first: their times are earlier."""
    by_key: defaultdict[Any, list[int]] = defaultdict(list)
    for key, number in zip(table["key"].to_pylist(), numbers(table), strict=True):
        if key is not None:
            by_key[key].append(number)
    assert len(by_key) == KEYS
    assert all(found == sorted(found, reverse=True) for found in by_key.values())


def test_rows_are_messages_in_the_order_of_their_times_and_are_there_for_every_reader(
    spark: "SparkSession", broker: BrokerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic)
    client.publish(topic, b'{"n": -1}', key=b"N1")
    done = backfill(spark, broker.url, topic, write_source(tmp_path / "a.parquet"), BY_TIME, segments=4)
    assert (done.messages, len(done.segments)) == (ROWS, 4)
    client.publish(topic, b'{"n": -2}', key=b"N1")
    table = client.read_table(topic)
    assert sorted(numbers(table)) == [-2, -1, *range(ROWS)]
    check_order(table.filter(pa.array([number >= 0 for number in numbers(table)])))
    for segment in done.segments:
        times = table.filter(pa.compute.equal(table["segment"], segment.segment))["event_time"].to_pylist()
        assert len(times) > 1 and times == sorted(times)
    of_one = [number for key, number in zip(table["key"].to_pylist(), numbers(table), strict=True) if key == b"N1"]
    assert (of_one[0], of_one[-1]) == (-1, -2)
    root = broker.arguments[broker.arguments.index("--data") + 1]
    files = f"{root}/topics/{topic}/segments/*/*.parquet"
    with duckdb.connect() as connection:
        found = connection.sql(f"SELECT count(*), epoch_us(min(event_time)) FROM '{files}'").fetchall()
    assert found == [(ROWS + 2, int((BEGAN + timedelta(minutes=1)).timestamp() * 1_000_000))]


def test_stopped_before_the_commit_and_run_again_each_row_is_there_once(
    spark: "SparkSession", broker: BrokerProcess, client: Client, topic: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    client.create_topic(topic)
    source = write_source(tmp_path / "a.parquet")

    def die(*_: Any) -> Any:
        raise KeyboardInterrupt

    def run() -> CommittedLoad:
        return backfill(spark, broker.url, topic, source, BY_TIME, segments=3, load="first")

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Client, "commit_load", die)
        run()
    assert client.read_table(topic).num_rows == 0
    # Another input under the same name would mix two loads.
    write_source(tmp_path / "a.parquet", rows=ROWS - 1)
    spark.catalog.clearCache()
    with pytest.raises(JobFailed, match="an earlier run of this load had other messages"):
        run()
    write_source(tmp_path / "a.parquet")
    done = run()
    assert (done.load, done.messages, len(done.segments)) == ("first", ROWS, 3)
    assert run() == done
    assert sorted(numbers(client.read_table(topic))) == list(range(ROWS))


def test_types_are_those_of_the_topic(
    spark: "SparkSession", broker: BrokerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, key_type="string", value_type="string")
    (tmp_path / "rows.csv").write_text("row.id,text\n1,one\n2,two\n,three\n")
    source = Source(str(tmp_path / "rows.csv"), "csv", {"header": "true", "inferSchema": "true"})
    backfill(spark, broker.url, topic, source, Columns("row.id", "text"), segments=2)
    table = client.read_table(topic)
    found = set(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert found == {("1", "one"), ("2", "two"), (None, "three")}


def test_the_command_says_what_it_loaded(
    spark: "SparkSession", broker: BrokerProcess, client: Client, topic: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    client.create_topic(topic)
    given = ["backfill", write_source(tmp_path / "a.parquet").path, topic, "--key", "tail", "--value-json"]
    given += ["--segments", "2", "--load", "history", "--url", broker.url]
    options = parse(given)
    options.command(on_spark(spark), options)
    said = capsys.readouterr()
    assert said.out == f"topic {topic}: load history of 2,000 messages in 2 segments\n"
    # How far it is, it says every few seconds: on a slow machine in between.
    assert [line for line in said.err.splitlines() if not line.endswith(" s so far")] == [
        "mq: load history (continue it with --load history)",
        "mq: files written: 2; the brokers check them",
    ]
    options = parse([*given, "--json"])
    options.command(on_spark(spark), options)
    said = capsys.readouterr()
    assert json.loads(said.out) == {"topic": topic, "load": "history", "messages": ROWS, "segments": 2}
    assert said.err == "mq: load history has been committed before\n"
    pq.write_table(pq.read_table(tmp_path / "a.parquet").slice(1), tmp_path / "b.parquet")
    options = parse(["backfill", str(tmp_path / "b.parquet"), *given[2:]])
    with pytest.raises(FileTaken, match="committed with 2,000 messages, and these are 1,999"):
        options.command(on_spark(spark), options)


def test_a_dry_run_converts_every_row_and_loads_nothing(
    spark: "SparkSession", broker: BrokerProcess, client: Client, topic: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    client.create_topic(topic)
    given = ["backfill", write_source(tmp_path / "a.parquet").path, topic, "--key", "tail", "--value-json"]
    given += ["--url", broker.url, "--dry-run", "--json"]
    options = parse([*given, "--event-time", "at"])
    options.command(on_spark(spark), options)
    found = json.loads(capsys.readouterr().out)
    assert (found["messages"], found["warning"], len(found["first"])) == (ROWS, None, 3)
    assert found["event_time"] == {"first": "2013-01-01T00:01:00.000000Z", "last": "2013-01-02T09:20:00.000000Z"}
    assert json.loads(found["first"][1]["value"]) == {"n": 1, "tail": "N1", "at": "2013-01-02T09:19:00.000000Z"}
    options = parse([*given, "--event-time", "n", "--event-time-unit", "s"])
    options.command(on_spark(spark), options)
    assert json.loads(capsys.readouterr().out)["warning"].endswith("before 1990")
    assert client.read_table(topic).num_rows == 0
    # A value that is refused is found wherever it is.
    pq.write_table(pa.table({"n": [*map(float, range(ROWS)), float("nan")]}), tmp_path / "nan.parquet")
    options = parse(
        ["backfill", str(tmp_path / "nan.parquet"), topic, "--value-json", "--dry-run", "--url", broker.url]
    )
    with pytest.raises(JobFailed, match="JSON has no number NaN"):
        options.command(on_spark(spark), options)


def test_unlikely_event_times_are_asked_about_before_anything_is_loaded(
    spark: "SparkSession", broker: BrokerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic)
    source = write_source(tmp_path / "a.parquet")
    asked = []

    def refuse(warning: str) -> bool:
        asked.append(warning)
        return False

    as_seconds = Columns("tail", None, "n", event_time_unit="s")
    with pytest.raises(JobFailed, match="nothing was loaded: the earliest event time is 1970"):
        backfill(spark, broker.url, topic, source, as_seconds, confirm=refuse)
    assert len(asked) == 1 and client.read_table(topic).num_rows == 0
    # Milliseconds taken for seconds come out in a year that nothing can show.
    pq.write_table(pa.table({"ms": [1_357_041_600_000]}), tmp_path / "ms.parquet")
    far = Columns(None, None, "ms", event_time_unit="s")
    with pytest.raises(JobFailed, match="column 'ms', row 0: the event time lies outside the years 1 to 9999"):
        backfill(spark, broker.url, topic, Source(str(tmp_path / "ms.parquet"), "parquet"), far, confirm=refuse)
    backfill(spark, broker.url, topic, source, BY_TIME, confirm=refuse)
    assert len(asked) == 1 and client.read_table(topic).num_rows == ROWS


def test_bytes_stay_bytes(
    spark: "SparkSession", broker: BrokerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic)
    pq.write_table(pa.table({"k": [b"\xff\x00"], "v": [b"\xfe"]}), tmp_path / "b.parquet")
    backfill(spark, broker.url, topic, Source(str(tmp_path / "b.parquet"), "parquet"), Columns("k", "v"))
    table = client.read_table(topic)
    assert (table["key"].to_pylist(), table["value"].to_pylist()) == ([b"\xff\x00"], [b"\xfe"])


@pytest.mark.parametrize(
    ("source", "columns", "said"),
    [
        ("missing.parquet", BY_TIME, "missing.parquet"),
        ("a.parquet", Columns("wheel", None), "has no column 'wheel'; it has n, tail, at"),
        ("none.parquet", BY_TIME, "has no rows: there is nothing to load"),
        ("cut.parquet", BY_TIME, r"cut.parquet: .*FAILED_READ_FILE.* Could not read footer"),
        ("damaged.parquet", BY_TIME, "FAILED_READ_FILE"),
    ],
)
def test_bad_input_is_said_in_one_line_and_nothing_is_loaded(
    spark: "SparkSession", broker: BrokerProcess, client: Client, topic: str, tmp_path: Path,
    source: str, columns: Columns, said: str,
) -> None:  # fmt: skip
    client.create_topic(topic)
    write_source(tmp_path / "a.parquet")
    write_source(tmp_path / "none.parquet", rows=0)
    data = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(data[: len(data) // 2])
    (tmp_path / "damaged.parquet").write_bytes(data[:4] + bytes(len(data) // 4) + data[4 + len(data) // 4 :])
    with pytest.raises(JobFailed, match=said) as failure:
        backfill(spark, broker.url, topic, Source(str(tmp_path / source), "parquet"), columns, load="l")
    assert "\n" not in str(failure.value)
    assert client.read_table(topic).num_rows == 0
