"""The types of an exported table's columns: all values are kept, or a message is put apart, and nothing stays stuck."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from braidmq import Client
from filer.errors import InvalidInput
from pipeline.commands import parse
from pipeline.errors import JobFailed
from pipeline.export import iceberg_table, parquet_table
from tests.support.broker.broker_process import BrokerProcess
from tests.support.spark.workers import HERE
from tests.support.store.dying_store import Killed

BEFORE = "pipeline.export.export_command.with_types_of_iceberg"


class Exports:
    """Exports of the topic `events` of JSON values to the folder `table`, by a schema file."""

    def __init__(self, client: Client, url: str, folder: Path) -> None:
        self._client, self._url, self._folder = client, url, folder
        self.table, self.unfit = folder / "table", folder / "unfit"

    def publish(self, *values: Any) -> None:
        for value in values:
            self._client.publish("events", value, key="k")

    def run(self, schema: Any, *options: str) -> None:
        path = self._folder / "schema.json"
        if isinstance(schema, pa.Schema):
            path = path.with_suffix(".parquet")
            pq.write_table(schema.empty_table(), path)
        else:
            path.write_text(json.dumps(schema))
        given = ["--url", self._url, "--schema", str(path), "--to", str(self.table), *options]
        command = parse(["export", "events", *given])
        command.command(HERE, command)

    def iceberg(self, schema: Any, *options: str) -> None:
        self.run(schema, "--format", "iceberg", *options)

    def rows(self) -> pa.Table:
        """The rows of the table of Iceberg."""
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("braidmq", uri=f"sqlite:///{self.table}/_braidmq/catalog.db")
        return catalog.load_table(("braidmq", "events")).scan().to_arrow().sort_by("_offset")


@pytest.fixture
def exports(tmp_path: Path) -> Iterator[Exports]:
    with BrokerProcess(data=tmp_path / "data") as broker, Client(broker.url) as client:
        client.create_topic("events", value_type="json")
        yield Exports(client, broker.url, tmp_path)


@pytest.mark.parametrize("every", ["day", "hour"])
def test_no_member_is_hidden_by_a_folder(exports: Exports, every: str) -> None:
    exports.publish({"date": "1999-12-31", "Hour": 77, "partition_date": "mine"})
    exports.run({"date": "date", "Hour": "int", "partition_date": "string"}, "--partition-every", every)
    (path,) = exports.table.glob("*=*/**/*.parquet")
    with duckdb.connect() as connection:
        read = f"read_parquet('{path}', hive_partitioning = true)"
        (found,) = connection.sql(f'SELECT "date", "Hour", partition_date FROM {read}').fetchall()
    assert found == (date(1999, 12, 31), 77, "mine")
    by_polars = pl.read_parquet(exports.table / "*=*/**/*.parquet", hive_partitioning=True).to_dicts()[0]
    by_arrow = ds.dataset(exports.table, format="parquet", partitioning="hive").to_table().to_pylist()[0]
    for row in (by_polars, by_arrow):
        assert (row["date"], row["Hour"], row["partition_date"]) == found


def test_folders_are_named_as_ever_where_they_hide_nothing(exports: Exports) -> None:
    exports.publish({"hour": 1})
    exports.run({"hour": "int"})
    assert [path.name.partition("=")[0] for path in exports.table.glob("*=*")] == ["date"]


def test_a_table_of_an_earlier_version_keeps_its_folders_and_says_what_they_hide(
    exports: Exports, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    exports.publish({"date": "1999-12-31"})
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.export.export.partition_columns", lambda *_: ("date", "hour"))
        exports.run({"date": "date"})
    capsys.readouterr()
    exports.publish({"date": "2000-01-01"})
    exports.run({"date": "date"})
    assert "the folders of this table hide its column 'date'" in capsys.readouterr().err
    assert {path.name.partition("=")[0] for path in exports.table.glob("*=*")} == {"date"}
    with duckdb.connect() as connection:
        files = f"read_parquet('{exports.table}/*/*.parquet', hive_partitioning = false)"
        assert connection.sql(f"SELECT year(date) FROM {files} ORDER BY 1").fetchall() == [(1999,), (2000,)]


UNSIGNED = pa.schema([("small", pa.uint32()), ("large", pa.uint64())])


def test_unsigned_integers_keep_all_their_values_in_iceberg(exports: Exports) -> None:
    exports.publish({"small": 2**32 - 1, "large": 2**64 - 1})
    exports.iceberg(UNSIGNED)
    assert exports.rows().select(["small", "large"]).to_pylist() == [{"small": 2**32 - 1, "large": Decimal(2**64 - 1)}]


def test_what_is_no_unsigned_integer_is_put_apart(exports: Exports) -> None:
    exports.publish({"small": 2**32}, {"small": -1}, {"small": 7})
    with pytest.raises(InvalidInput, match="does not fit the schema: column 'small': 4294967296"):
        exports.iceberg(UNSIGNED)
    exports.iceberg(UNSIGNED, "--unfit-to", str(exports.unfit))
    assert exports.rows()["small"].to_pylist() == [7]
    assert ds.dataset(exports.unfit).to_table()["_offset"].to_pylist() == [0, 1]


def test_a_table_and_a_run_that_an_earlier_version_left_stuck_go_on(
    exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had `int` for 32 bits without a sign, and stopped at the first value that is no `int`."""
    exports.publish({"n": 5})
    schema = pa.schema([("n", pa.uint32())])
    with monkeypatch.context() as patch:
        patch.setattr(BEFORE, lambda columns: columns)
        exports.iceberg(schema)
        exports.publish({"n": 2**31 + 1})
        with pytest.raises(JobFailed) as stuck:
            exports.iceberg(schema)
        # The earlier version did not say that all files were written.
        record = exports.table / "_braidmq/export.json"
        record.write_text(record.read_text().replace('"staged":true', '"staged":false'))
    assert "\n" not in str(stuck.value)
    exports.iceberg(schema)
    assert exports.rows()["n"].to_pylist() == [5, 2**31 + 1]
    exports.publish({"n": 2**32 - 1})
    exports.iceberg(schema)
    assert exports.rows()["n"].to_pylist() == [5, 2**31 + 1, 2**32 - 1]


def test_instants_of_any_zone_are_kept_in_iceberg(exports: Exports) -> None:
    exports.publish({"at": "2024-06-01T12:00:00.5+02:00", "shift": "2024-01-01T00:00:00Z"})
    exports.iceberg(pa.schema([("at", pa.timestamp("us", "Europe/Paris")), ("shift", pa.timestamp("s", "+05:30"))]))
    found = exports.rows().select(["at", "shift"])
    assert set(found.schema.types) == {pa.timestamp("us", "UTC")}
    assert found.to_pylist() == [
        {
            "at": datetime(2024, 6, 1, 12, 0, 0, 500_000, timezone(timedelta(hours=2))),
            "shift": datetime(2024, 1, 1, tzinfo=UTC),
        }
    ]


def test_nanoseconds_that_iceberg_has_not_are_put_apart(exports: Exports) -> None:
    exports.publish({"at": "2024-01-01T00:00:00.123456Z"}, {"at": "2024-01-01T00:00:00.123456789Z"})
    schema = pa.schema([("at", pa.timestamp("ns", "UTC"))])
    with pytest.raises(InvalidInput, match=r"message 0-1 does not fit the schema: column 'at': .* whole number of us"):
        exports.iceberg(schema)
    exports.iceberg(schema, "--unfit-to", str(exports.unfit))
    assert exports.rows()["at"].to_pylist() == [datetime(2024, 1, 1, 0, 0, 0, 123_456, UTC)]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (pa.duration("us"), r"column 'x': Iceberg has no type for duration\[us\]: decimal\(38,9\) has the seconds"),
        (pa.list_(pa.duration("s")), r"column 'x': Iceberg has no type for duration\[s\]"),
        (pa.decimal256(60, 2), "column 'x': Iceberg has no decimals of more than 38 digits"),
        (pa.null(), "column 'x': Iceberg has no type for null"),
    ],
    ids=str,
)
@pytest.mark.parametrize("options", [(), ("--dry-run",)], ids=["run", "dry run"])
def test_what_iceberg_has_not_is_refused_by_name_and_pins_nothing(
    exports: Exports, kind: pa.DataType, told: str, options: tuple[str, ...]
) -> None:
    exports.publish({"x": None})
    with pytest.raises(JobFailed, match=told):
        exports.iceberg(pa.schema([("x", kind)]), *options)
    assert not (exports.table / "_braidmq/export.json").exists()


def test_what_no_parquet_file_has_is_refused_by_name(exports: Exports) -> None:
    exports.publish({"x": {}})
    with pytest.raises(InvalidInput, match=r"--schema: column 'x': Parquet has no type for struct<>"):
        exports.run({"type": "struct", "fields": [{"name": "x", "type": {"type": "struct", "fields": []}}]})


@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
def test_a_first_run_that_wrote_nothing_pins_no_columns(
    exports: Exports, table_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exports.publish({"n": 1, "m": "x"}, {"n": "two", "m": "y"})
    options = ("--format", table_format)
    with pytest.raises(InvalidInput, match="message 0-1 does not fit the schema"):
        exports.run({"n": "int"}, *options)
    exports.run({"n": "long", "m": "string"}, *options, "--columns", "segment,m", "--dry-run")
    assert "would add 2 messages" in capsys.readouterr().out
    exports.run({"m": "string"}, *options, "--columns", "segment,m,_offset")
    if table_format == "iceberg":
        assert exports.rows()["m"].to_pylist() == ["x", "y"]
    else:
        assert sorted(ds.dataset(exports.table, format="parquet").to_table()["m"].to_pylist()) == ["x", "y"]
    with pytest.raises(JobFailed, match=r"other columns: value\.m is only there; key is only here"):
        exports.run({"m": "string"}, *options, "--columns", "segment,_offset,key")


@pytest.mark.parametrize(
    ("table_format", "module"), [("parquet", parquet_table), ("iceberg", iceberg_table)], ids=["parquet", "iceberg"]
)
def test_what_a_given_up_run_put_apart_hides_nothing_that_the_next_one_puts_apart(
    exports: Exports, table_format: str, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports.publish({"n": 1, "m": 1}, {"n": "two", "m": "x"})
    options = ("--format", table_format, "--unfit-to", str(exports.unfit))

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        # All of its files are written, and it has not said so.
        patch.setattr(module, "_changed", killed)
        exports.run({"n": "int"}, *options)
    exports.run({"m": "string"}, *options)
    put_apart = ds.dataset(exports.unfit).to_table().to_pylist()
    assert sorted((row["_offset"], row["reason"].partition(":")[0]) for row in put_apart) == [
        (0, "column 'm'"),
        (1, "column 'n'"),
    ]


def test_the_difference_between_columns_is_told_and_not_both_lists(exports: Exports) -> None:
    exports.publish({"n": 1, "m": 2})
    exports.run({"n": "int", "m": "int"})
    with pytest.raises(JobFailed) as refused:
        exports.run({"n": "long", "m": "int", "o": "string"})
    told = "value.n has type int32 there, not int64; value.o is only here. A table keeps"
    assert told in str(refused.value) and "_offset" not in str(refused.value)
    with pytest.raises(JobFailed, match="their order there is segment, _offset, "):
        exports.run({"m": "int", "n": "int"})


def test_a_value_beside_the_log_is_fetched(exports: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as fit into memory at once."""
    monkeypatch.setattr("pipeline.export.payloads.MOST_PAYLOAD_BYTES", 2_500_000)
    many = {"amounts": [1] * 600_000}
    exports.publish({"id": 1}, *({"id": number, **many} for number in (2, 3, 4)), {"id": 5})
    exports.run({"id": "int"})
    (path,) = exports.table.glob("*=*/**/*.parquet")
    assert pq.read_table(path, partitioning=None).sort_by("_offset")["id"].to_pylist() == [1, 2, 3, 4, 5]


def test_a_value_beside_the_log_that_is_too_large_is_put_apart(
    exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.export.payloads.MOST_PAYLOAD_BYTES", 1000)
    exports.publish({"id": 1, "amounts": [1] * 600_000}, {"id": 2})
    with pytest.raises(InvalidInput, match="stored beside the log, and is large"):
        exports.run({"id": "int"})
    exports.run({"id": "int"}, "--unfit-to", str(exports.unfit))
    (path,) = exports.table.glob("*=*/**/*.parquet")
    assert pq.read_table(path, partitioning=None)["id"].to_pylist() == [2]
