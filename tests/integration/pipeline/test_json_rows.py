"""A row is the same JSON by Spark's paths as by all others (docs/json-rows.md), and comes back from an export."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ulid import ULID

from braidmq import Client, InvalidArgument, rows_from_json, rows_to_json
from braidmq.spark import InvalidOption, to_messages
from filer.stores.store_address import StoreAddress
from pipeline.backfill.backfill import backfill, rows_of
from pipeline.backfill.choices import Columns, Source
from pipeline.errors import JobFailed
from pipeline.export import parquet_table
from pipeline.export.export import Export, export_topic
from tests.support.broker.broker_process import BrokerProcess
from tests.support.rows.arrow_tables import nested_types, tables
from tests.support.spark.workers import on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

SPARK_TYPES: list[pa.DataType] = [
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary()),
    *(pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.decimal128(10, 2), pa.decimal128(38, 18)),
    *(pa.time64("us"), pa.time64("ns")),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(data=tmp_path_factory.mktemp("json-rows") / "data") as broker:
        yield broker


def test_any_row_has_the_same_bytes_in_spark(spark: "SparkSession", tmp_path: Path) -> None:
    @settings(max_examples=15, suppress_health_check=list(HealthCheck))
    @given(tables(spark_types(), min_rows=1))
    def check(table: pa.Table) -> None:
        path = tmp_path / f"{ULID()}.parquet"
        pq.write_table(table, path)
        found = to_messages(spark.read.parquet(str(path))).toArrow()
        assert found["value"].to_pylist() == rows_to_json(table).cast(pa.string()).to_pylist()

    check()


LASTS = pa.duration("ms")
ROWS = pa.table(
    {
        "at": pa.array([1_500_000_002_702_035, None], pa.timestamp("us", "UTC")),
        "local": pa.array([1_500_000_002_702_000, 0], pa.timestamp("us")),
        "fare": pa.array([Decimal("112.05"), Decimal("0.50")], pa.decimal128(10, 2)),
        "share": pa.array([0.1, None], pa.float32()),
        "tags": pa.array([[("ü", 1), ("b", None)], []], pa.map_(pa.string(), pa.int32())),
        "stops": pa.array([[{"zone": "x", "fee": Decimal("1.10")}], None]),
        "seconds": pa.array([1_500_000_002, 0], pa.int64()),
    }
)


def test_a_backfill_stores_the_bytes_of_every_other_path_and_an_export_gives_the_table_back(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = f"t-{ULID()}"
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    with Client(broker.url) as client:
        client.create_topic(topic, value_type="json")
        source = Source(str(tmp_path / "rows.parquet"), "parquet")
        backfill(spark, broker.url, topic, source, Columns(None, None, "seconds", event_time_unit="s"), segments=1)
        stored = client.read_table(topic)
    assert sorted(stored["value"].to_pylist()) == sorted(rows_to_json(ROWS).cast(pa.string()).to_pylist())
    began = datetime(1970, 1, 1, tzinfo=UTC)
    assert set(stored["event_time"].to_pylist()) == {began, began + timedelta(seconds=1_500_000_002)}
    root = StoreAddress(broker.arguments[broker.arguments.index("--data") + 1])
    export = Export(root, StoreAddress(str(tmp_path / "table")), topic, partition_by="none")
    export_topic(on_spark(spark), export, parquet_table.finish_run)
    exported = pq.read_table(tmp_path / "table")
    assert rows_from_json(exported["value"], ROWS.schema).sort_by("seconds").equals(ROWS.sort_by("seconds"))


def test_a_topic_of_bytes_says_which_values_are_json(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = f"t-{ULID()}"
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    with Client(broker.url) as client:
        client.create_topic(topic)
        backfill(spark, broker.url, topic, Source(str(tmp_path / "rows.parquet"), "parquet"), Columns(None, None))
        assert [message.json()["fare"] for message in client.browse(topic)] in ([112.05, 0.5], [0.5, 112.05])


def test_a_value_that_would_not_keep_its_meaning_fails_the_job_by_column_and_row(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = f"t-{ULID()}"
    pq.write_table(pa.table({"a": [1.0, float("nan")], "trip": [1, 2]}), tmp_path / "rows.parquet")
    source = Source(str(tmp_path / "rows.parquet"), "parquet")
    with Client(broker.url) as client:
        client.create_topic(topic, value_type="json")
        with pytest.raises(JobFailed, match="column 'a', row 1: JSON has no number NaN"):
            backfill(spark, broker.url, topic, source, Columns(None, None))
        assert client.read_table(topic).num_rows == 0
        backfill(spark, broker.url, topic, source, Columns(None, None, non_finite="null"), segments=1)
        assert '{"a":null,"trip":2}' in client.read_table(topic)["value"].to_pylist()


@pytest.mark.parametrize("is_whole_row", [True, False])
def test_a_backfill_refuses_types_that_spark_takes_for_numbers(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path, *, is_whole_row: bool
) -> None:
    topic = f"t-{ULID()}"
    rows = pa.table({"n": ["1"], "legs": pa.array([[{"lasts": 1500}]], pa.list_(pa.struct([("lasts", LASTS)])))})
    pq.write_table(rows, tmp_path / "rows of legs.parquet")
    source = Source(str(tmp_path / "rows of legs.parquet"), "parquet")
    with Client(broker.url) as client:
        client.create_topic(topic)
        if is_whole_row:
            with pytest.raises(JobFailed, match=r"column 'legs\[\]\.lasts' is of Arrow's type duration\[ms\]"):
                backfill(spark, broker.url, topic, source, Columns(None, None))
        else:
            backfill(spark, broker.url, topic, source, Columns(None, "n"), segments=1)
        assert client.read_table(topic).num_rows == (not is_whole_row)


def test_a_backfill_says_what_to_do_with_types_that_spark_does_not_read(spark: "SparkSession", tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": pa.array([1], pa.timestamp("ns", "UTC"))}), tmp_path / "nanos.parquet")
    with pytest.raises(
        JobFailed, match=r"nanos\.parquet: .*TIMESTAMP\(NANOS,.*publish the file with mq publish --file"
    ):
        rows_of(spark, Source(str(tmp_path / "nanos.parquet"), "parquet"), Columns(None, None))


def test_types_and_columns_are_checked_before_a_task_begins(spark: "SparkSession") -> None:
    frame = spark.sql("SELECT 1 AS a, array(INTERVAL '1' MONTH) AS months")
    with pytest.raises(InvalidOption, match=r"column 'months\[\]' is of type interval month"):
        to_messages(frame)
    with pytest.raises(InvalidOption, match=r"'aa'.*'a'"):
        to_messages(frame, key="aa")
    with pytest.raises(InvalidArgument, match="column 'a' of type int32 has no times"):
        to_messages(frame.select("a"), event_time="a")
    with pytest.raises(InvalidOption, match=r"'a\.b\\x00' has the character U\+0000"):
        to_messages(spark.sql("SELECT 1 AS b").withColumnRenamed("b", "b\0").selectExpr("struct(*) AS a"))
    with pytest.raises(InvalidOption, match="same name"):
        to_messages(spark.sql("SELECT 1 AS a, 2 AS a"))
    assert to_messages(frame.select("a")).schema.simpleString().startswith("struct<key:string,value:string,")


def spark_types() -> st.SearchStrategy[pa.DataType]:
    """What Spark reads from Parquet, nested too."""
    return st.recursive(st.sampled_from(SPARK_TYPES), _nested, max_leaves=3)


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return nested_types(inner).filter(lambda kind: not pa.types.is_struct(kind) or kind.num_fields > 0)
