"""Exported tables: the same rows for every reader, only what is new, no half rows whoever is killed."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from braidmq import Client
from filer import keys
from filer.clock import Clock, SystemClock
from filer.errors import CorruptFile, InvalidInput
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, recover_index
from filer.stores.local.local_store import LocalStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Store
from filer.stores.store_address import StoreAddress
from filer.topic.topic_config import Retention, TopicConfig
from filer.topic.topic_state import TopicState
from pipeline.commands import parse
from pipeline.compact.compact import compact
from pipeline.errors import JobFailed
from pipeline.export import iceberg_table, parquet_table
from pipeline.export.choices import IcebergTarget, InPlace
from pipeline.export.export import Export, Exported, FinishRun, export_topic, planned
from pipeline.export.export_state import STATE_KEY
from pipeline.export.iceberg_catalog import open_table
from pipeline.options import store_of
from pipeline.stores import run_on_store
from pipeline.workers import Workers
from tests.support.broker.broker_process import BrokerProcess
from tests.support.broker.http_broker import http_broker
from tests.support.process.mq import mq
from tests.support.spark.workers import HERE, on_spark
from tests.support.store.dying_store import DyingStore, Killed
from tests.support.topic.damage import with_bit_flipped
from tests.support.topic.segment_files import append, value_of
from tests.support.topic.stored_topic import TOPIC, put_topic, store_topic, write_sealed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple[int, int, bytes]]

COUNTS = (70, 7, 33)
ICEBERG = IcebergTarget("braidmq", TOPIC)
FINISH: dict[str, FinishRun] = {
    "parquet": parquet_table.finish_run,
    "iceberg": partial(iceberg_table.finish_run, ICEBERG),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    asyncio.run(store_topic(tmp_path, sealed={0: (50, 20), 1: (7,)}, still_open=(30, 3)))
    return tmp_path


def export_of(root: Path, to: Path, table_format: Any = "parquet", **options: Any) -> Export:
    partition_by = options.pop("partition_by", "timestamp" if table_format == "parquet" else "none")
    return Export(StoreAddress(str(root)), StoreAddress(str(to)), TOPIC, table_format, partition_by, **options)


def run(export: Export, workers: Workers = HERE) -> Exported:
    return export_topic(workers, export, FINISH[export.table_format])


def expected_rows(counts: Sequence[int] = COUNTS) -> Rows:
    return [(segment, offset, value_of(offset)) for segment, count in enumerate(counts) for offset in range(count)]


def rows_of(table: pa.Table) -> Rows:
    return sorted(zip(*(table[name].to_pylist() for name in ("segment", "_offset", "value")), strict=True))


def by_duckdb(to: Path) -> Rows:
    with duckdb.connect() as connection:
        files = f"read_parquet('{to}/date=*/*.parquet', hive_partitioning = true)"
        return rows_of(connection.sql(f"SELECT segment, _offset, value FROM {files}").to_arrow_table())


def by_pyiceberg(export: Export) -> pa.Table:
    return open_table(ICEBERG, export).scan().to_arrow()


async def add(root: Path, count: int) -> None:
    """A file more in the open segment."""
    store, ref = LocalStore(root, clock=SystemClock()), SegmentRef(TOPIC, 2)
    await append(store, ref, await recover_index(store, ref), count)
    await store.close()


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(300)
def test_by_real_spark_tables_of_both_kinds_read_the_same_for_all(
    spark: "SparkSession", root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    to = tmp_path_factory.mktemp("tables")
    parquet, iceberg = export_of(root, to / "p"), export_of(root, to / "i", "iceberg", in_place=InPlace.FINAL)
    assert run(parquet, on_spark(spark)) == Exported(runs=1, messages=sum(COUNTS))
    assert run(iceberg, on_spark(spark)) == Exported(runs=1, messages=sum(COUNTS), by_reference=COUNTS[1])
    assert by_duckdb(to / "p") == rows_of(spark.read.parquet(str(to / "p")).toArrow()) == expected_rows()
    table = by_pyiceberg(iceberg)
    assert rows_of(table) == expected_rows()
    paths = [task.file.file_path for task in open_table(ICEBERG, iceberg).scan().plan_files()]
    assert sum(str(root) in path for path in paths) == 1
    files = [path.removeprefix("file://") for path in paths]
    with duckdb.connect() as connection:
        found = connection.sql(f"SELECT segment, _offset, value FROM read_parquet({files}, hive_partitioning = true)")
        assert rows_of(found.to_arrow_table()) == expected_rows()
    frames = [spark.read.option("basePath", path.partition("/segment=")[0]).parquet(path) for path in files]
    seen = [row for frame in frames for row in rows_of(frame.select("segment", "_offset", "value").toArrow())]
    assert sorted(seen) == expected_rows()


@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
def test_a_second_export_adds_only_what_is_new(root: Path, tmp_path_factory: pytest.TempPathFactory, table_format: str):
    export = export_of(root, tmp_path_factory.mktemp("table"), table_format)
    assert run(export).messages == 110
    assert run(export) == Exported()
    asyncio.run(add(root, 11))
    assert run(export) == Exported(runs=1, messages=11)
    found = by_duckdb(Path(export.target.url)) if table_format == "parquet" else rows_of(by_pyiceberg(export))
    assert found == expected_rows((70, 7, 44))


@pytest.mark.parametrize(("table_format", "in_place"), [("parquet", InPlace.NO), ("iceberg", InPlace.FINAL)])
def test_a_damaged_file_is_not_exported_and_once_it_is_back_it_is(
    root: Path, tmp_path_factory: pytest.TempPathFactory, table_format: str, in_place: InPlace
) -> None:
    """In place too, where the table would refer to the file, and nobody would check it any more."""
    export = export_of(root, tmp_path_factory.mktemp("table"), table_format, in_place=in_place)
    path = root / f"topics/{TOPIC}/segments/segment=1/{0:020d}.parquet"
    good = path.read_bytes()
    path.write_bytes(with_bit_flipped(good, good.index(b"message") * 8))
    with pytest.raises(CorruptFile, match=path.name) as raised:
        run(export)
    assert raised.value.key == f"topics/{TOPIC}/segments/segment=1/{path.name}"
    path.write_bytes(good)
    referred = COUNTS[1] if in_place is InPlace.FINAL else 0
    assert run(export) == Exported(runs=1, messages=sum(COUNTS), by_reference=referred)


def test_every_column_is_as_it_was_in_every_type(tmp_path: Path):
    config = TopicConfig(key_type="string", value_type="json")
    asyncio.run(store_topic(tmp_path / "s", sealed={0: (5,)}, still_open=(4,), config=config))
    source = pq.read_table(tmp_path / "s/topics/t/segments/segment=0/00000000000000000000.parquet", partitioning=None)
    for table_format in ("parquet", "iceberg"):
        export = export_of(tmp_path / "s", tmp_path / table_format, table_format, partition_by="none")
        run(export)
        paths = (tmp_path / "parquet").glob("*.parquet")
        found = (
            by_pyiceberg(export)
            if table_format == "iceberg"
            else pa.concat_tables(pq.read_table(path, partitioning=None) for path in paths)
        )
        segment = found.filter(pa.compute.equal(found["segment"], 0)).sort_by("_offset")
        for name in ("_offset", "_timestamp", "key", "event_time", "headers", "_ref"):
            assert segment[name].to_pylist() == source[name].to_pylist(), name
        assert segment["value"].to_pylist() == [str(value) for value in source["value"].to_pylist()]


@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
def test_from_s3_to_s3(s3_endpoint: str, s3_bucket: str, tmp_path: Path, table_format: Any):
    source = StoreAddress(f"s3://{s3_bucket}/broker", endpoint_url=s3_endpoint, region="us-east-1")

    async def fill(store: Store, _: Clock) -> None:
        ends = {0: await write_sealed(store, SegmentRef(TOPIC, 0), (5, 5))}
        await append(store, SegmentRef(TOPIC, 1), SegmentIndex(), 3)
        await put_topic(store, ends=ends)

    run_on_store(source, fill)
    target = replace(source, url=f"s3://{s3_bucket}/tables/t")
    partition_by: Any = "timestamp" if table_format == "parquet" else "none"
    export = Export(source, target, TOPIC, table_format, partition_by)
    iceberg = replace(ICEBERG, catalog=f"sqlite:///{tmp_path}/catalog.db")
    finish = partial(iceberg_table.finish_run, iceberg) if table_format == "iceberg" else FINISH["parquet"]
    assert export_topic(HERE, export, finish).messages == 13
    assert export_topic(HERE, export, finish) == Exported()
    if table_format == "iceberg":
        assert rows_of(open_table(iceberg, export).scan().to_arrow()) == expected_rows((10, 3))
    else:
        found = run_on_store(target, lambda store, _: keys_below(store, "date="))
        tables = [run_on_store(target, lambda store, _, key=key: store.get(key)) for key in found]
        rows = [row for each in tables for row in rows_of(pq.read_table(pa.BufferReader(each.data)))]
        assert sorted(rows) == expected_rows((10, 3))


def test_on_s3_the_broker_tells_its_endpoint(
    s3_endpoint: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without it the job would contact AWS, which does not know this bucket, or which is another's."""
    with BrokerProcess(store=f"s3://{s3_bucket}/p", args=["--s3-endpoint", s3_endpoint]) as broker:
        with Client(broker.url) as client:
            client.create_topic(TOPIC)
            client.publish(TOPIC, b"value")
        monkeypatch.delenv("BRAIDMQ_S3_ENDPOINT", raising=False)
        options = parse(["export", TOPIC, "--url", broker.url, "--to", f"s3://{s3_bucket}/table"])
        assert store_of(options).endpoint_url == s3_endpoint
        options.command(HERE, options)
    assert capsys.readouterr().out == f"topic {TOPIC}: 1 message added\n"
    there = StoreAddress(f"s3://{s3_bucket}/table", endpoint_url=s3_endpoint)
    assert len(run_on_store(there, lambda store, _: keys_below(store, "date="))) == 1


def test_an_iceberg_table_on_s3_needs_a_catalogue_that_is_named(root: Path, s3_endpoint: str, s3_bucket: str):
    target = StoreAddress(f"s3://{s3_bucket}/t", endpoint_url=s3_endpoint, region="us-east-1")
    export = Export(StoreAddress(str(root)), target, TOPIC, "iceberg", "none")
    with pytest.raises(InvalidInput, match="needs --catalog"):
        run(export)


class Place:
    """A store address whose store is at hand, or is about to die."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.url, self.endpoint_url, self.region = "", None, None


async def topic_in_memory() -> MemoryStore:
    store = MemoryStore()
    ends = {each: await write_sealed(store, SegmentRef(TOPIC, each), [4] * 3) for each in (0, 1)}
    await put_topic(store, ends=ends)
    return store


def visible(store: Store) -> Rows:
    async def read() -> list[bytes]:
        found = [info.key async for info in store.list("date=")]
        return [(await store.get(key)).data for key in found]

    return sorted(row for data in asyncio.run(read()) for row in rows_of(pq.read_table(pa.BufferReader(data))))


def test_killed_at_every_request_nothing_is_half_there_and_the_next_run_completes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pipeline.export.export.open_retrying", lambda address, clock: address.store)
    source = asyncio.run(topic_in_memory())
    whole = expected_rows((12, 12))

    def export_to(store: Store) -> Exported:
        return export_topic(HERE, Export(Place(source), Place(store), TOPIC), parquet_table.finish_run)

    counting = DyingStore(MemoryStore())
    assert export_to(counting).messages == 24
    for request in range(counting.requests):
        for takes_effect in (False, True):
            target = MemoryStore()
            with pytest.raises(Killed):
                export_to(DyingStore(target).die_at(request, before=not takes_effect))
            seen = visible(target)
            assert len(seen) == len(set(seen)) and set(seen) <= set(whole)
            # Segments are pieces here: all of one, or nothing.
            assert len(seen) % 12 == 0
            export_to(target)
            assert visible(target) == whole
            assert asyncio.run(keys_below(target, "_braidmq/")) == [STATE_KEY]


async def keys_below(store: Store, prefix: str) -> list[str]:
    return [info.key async for info in store.list(prefix)]


@pytest.mark.parametrize("takes_effect", [False, True])
def test_killed_at_the_commit_of_an_iceberg_table_each_row_is_there_once(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes_effect: bool
):
    from pyiceberg.catalog.sql import SqlCatalog

    export, commit = export_of(root, tmp_path / "table", "iceberg"), SqlCatalog.commit_table

    def dying(catalog: SqlCatalog, *args: Any) -> Any:
        if takes_effect:
            commit(catalog, *args)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(SqlCatalog, "commit_table", dying)
        run(export)
    assert rows_of(by_pyiceberg(export)) == (expected_rows() if takes_effect else [])
    asyncio.run(add(root, 5))
    run(export)
    assert rows_of(by_pyiceberg(export)) == expected_rows((70, 7, 38))


def test_a_catalogue_that_fails_at_the_commit_is_told_and_the_next_run_completes(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy.exc import OperationalError

    def locked(*_: Any) -> Any:
        raise OperationalError("UPDATE x", {}, Exception("database is locked"))

    export = export_of(root, tmp_path / "table", "iceberg")
    with monkeypatch.context() as patch, pytest.raises(JobFailed, match=r"run the export again: .*database is locked$"):
        patch.setattr(SqlCatalog, "commit_table", locked)
        run(export)
    run(export)
    assert rows_of(by_pyiceberg(export)) == expected_rows()


@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
def test_two_at_a_time_export_each_row_once(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str
):
    """The other one does it all while this one is about to make its own visible."""
    export = export_of(root, tmp_path / "table", table_format)
    module, step = (parquet_table, "_staged_files") if table_format == "parquet" else (iceberg_table, "_commit")
    real = getattr(module, step)

    def late(*args: Any) -> Any:
        monkeypatch.setattr(module, step, real)
        run_aside(export)
        return real(*args)

    monkeypatch.setattr(module, step, late)
    run(export)
    found = by_duckdb(tmp_path / "table") if table_format == "parquet" else rows_of(by_pyiceberg(export))
    assert found == expected_rows()


def run_aside(export: Export) -> None:
    """In a thread, as this one may have an event loop running."""
    import threading

    thread = threading.Thread(target=run, args=(export,))
    thread.start()
    thread.join()


def test_what_is_there_already_is_not_mixed_up_with_something_else(root: Path, tmp_path: Path):
    run(export_of(root, tmp_path / "table"))
    with pytest.raises(JobFailed, match="has the partition by 'timestamp', not 'none'"):
        run(export_of(root, tmp_path / "table", partition_by="none"))
    with pytest.raises(JobFailed, match="has the table format 'parquet', not 'iceberg'"):
        run(export_of(root, tmp_path / "table", "iceberg"))
    topic = root / keys.topic(TOPIC)
    state = TopicState.from_json(topic.read_bytes())
    topic.write_bytes(state.model_copy(update={"created_us": 99}).to_json())
    with pytest.raises(JobFailed, match="was deleted and created again since it was exported here"):
        run(export_of(root, tmp_path / "table"))


def test_a_topic_with_retention_is_not_exported_in_place(root: Path, tmp_path: Path):
    topic = root / keys.topic(TOPIC)
    state = TopicState.from_json(topic.read_bytes())
    config = state.config.model_copy(update={"retention": Retention(seconds=3600)})
    topic.write_bytes(state.model_copy(update={"config": config}).to_json())
    with pytest.raises(InvalidInput, match="has retention"):
        run(export_of(root, tmp_path / "table", "iceberg", in_place=InPlace.FINAL))


def expire(root: Path, start_offset: int) -> None:
    """Retention takes the first messages of segment 0."""
    topic = root / keys.topic(TOPIC)
    state = TopicState.from_json(topic.read_bytes())
    first = state.segments[0].model_copy(update={"start_offset": start_offset})
    topic.write_bytes(state.model_copy(update={"segments": (first, *state.segments[1:])}).to_json())


def test_what_expired_while_a_run_was_unfinished_can_be_left_out(root: Path, tmp_path: Path):
    export = export_of(root, tmp_path / "table")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(parquet_table, "change_state", dying)
        run(export)
    assert list((tmp_path / "table/_braidmq").glob("run-*/*/*.parquet"))
    expire(root, 50)
    with pytest.raises(JobFailed, match="--skip-expired continues without them"):
        run(export)
    run(export_of(root, tmp_path / "table", skip_expired=True))
    assert by_duckdb(tmp_path / "table") == expected_rows()[50:]
    assert not list((tmp_path / "table/_braidmq").glob("run-*/*/*.parquet"))


@pytest.mark.parametrize("skip_expired", [True, False])
def test_what_expired_after_its_commit_is_not_added_again(root: Path, tmp_path: Path, skip_expired: bool):
    """The run was killed when it had been committed, and before the record said so."""
    export = export_of(root, tmp_path / "table", "iceberg")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(iceberg_table, "point_to", dying)
        run(export)
    expire(root, 50)
    run(replace(export, skip_expired=skip_expired))
    assert rows_of(by_pyiceberg(export)) == expected_rows()


def test_a_table_lies_by_itself(root: Path, tmp_path: Path):
    export = export_of(root, tmp_path / "table")
    (tmp_path / "table/date=2026-01-01").mkdir(parents=True)
    pq.write_table(pa.table({"x": [1]}), tmp_path / "table/date=2026-01-01/other.parquet")
    with pytest.raises(JobFailed, match=r"other.parquet exists and is not from an export"):
        run(export)


def test_a_catalogues_table_of_another_place_is_not_added_to(root: Path, tmp_path: Path):
    """Two topics under one name, say."""
    target = replace(ICEBERG, catalog=f"sqlite:///{tmp_path}/catalog.db")
    first, second = (export_of(root, tmp_path / name, "iceberg") for name in ("one", "two"))
    export_topic(HERE, first, partial(iceberg_table.finish_run, target))
    with pytest.raises(JobFailed, match=r"lies at file://.*/one, not at file://.*/two"):
        export_topic(HERE, second, partial(iceberg_table.finish_run, target))
    assert rows_of(open_table(target, first).scan().to_arrow()) == expected_rows()


@pytest.mark.parametrize(
    "other",
    [replace(ICEBERG, name="other"), replace(ICEBERG, catalog="sqlite:///{}/other.db")],
    ids=["name", "catalog"],
)
def test_what_is_new_is_not_added_to_a_table_that_lacks_the_rest(root: Path, tmp_path: Path, other: IcebergTarget):
    """Of another name, or of another catalogue: not there, and then there of a run that was not one of this export."""
    other = replace(other, catalog=other.catalog and other.catalog.format(tmp_path))
    export = export_of(root, tmp_path / "table", "iceberg")
    run(export)
    asyncio.run(add(root, 11))
    finish = partial(iceberg_table.finish_run, other)
    with pytest.raises(JobFailed, match="is not there, but would have what 1 run of this export added"):
        export_topic(HERE, export, finish)
    assert rows_of(open_table(other, export).scan().to_arrow()) == []
    with pytest.raises(JobFailed, match="lacks some of what 1 run of this export added"):
        export_topic(HERE, export, finish)
    run(export)
    assert rows_of(by_pyiceberg(export)) == expected_rows((70, 7, 44))


@pytest.mark.parametrize(
    ("catalog", "said"),
    [
        ("nonsense", "the catalogue of the Iceberg table: Could not parse"),
        ("postgresql+nodriver://x/y", "the catalogue of the Iceberg table"),
        ("mssql+pymssql://x/y", "needs the Python package 'pymssql'"),
    ],
)
def test_a_catalogue_that_cannot_be_is_told_in_one_line(root: Path, tmp_path: Path, catalog: str, said: str):
    with pytest.raises(JobFailed, match=said) as failure:
        open_table(replace(ICEBERG, catalog=catalog), export_of(root, tmp_path / "table", "iceberg"))
    assert "\n" not in str(failure.value)


async def dying(*_: Any) -> None:
    raise Killed


def test_the_command_says_what_it_added_and_needs_no_java_for_little(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    table = tmp_path / "table"
    options = ("--store", str(root), "--to", str(table))
    told = json.loads(mq("pipeline", "export", TOPIC, *options, "--json"))
    assert told == {"topic": TOPIC, "runs": 1, "messages": 110, "by_reference": 0, "unfit": 0}
    assert by_duckdb(table) == expected_rows()
    assert [path.name for path in sorted(table.iterdir()) if not path.name.startswith("date=")] == ["_braidmq"]
    assert [path.name for path in (table / "_braidmq").iterdir()] == ["export.json"]


def test_a_dry_run_says_what_an_export_would_add_and_writes_nothing(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export = export_of(root, tmp_path / "table")
    assert Exported().plus(planned(export).pieces).messages == 110
    assert not any(path.is_file() for path in (tmp_path / "table").rglob("*"))
    assert run(export).messages == 110
    assert planned(export).pieces == ()
    asyncio.run(add(root, 11))
    told = parse(["export", TOPIC, "--store", str(root), "--to", str(tmp_path / "table"), "--dry-run", "--json"])
    told.command(HERE, told)
    assert json.loads(capsys.readouterr().out) == {
        "dry_run": True, "topic": TOPIC, "messages": 11, "by_reference": 0, "unfinished": False,
        "copied_files": 1, "copied_bytes": ANY,
    }  # fmt: skip
    assert by_duckdb(tmp_path / "table") == expected_rows()


def export_command(root: Path, tmp_path: Path, *options: str) -> None:
    given = ["export", TOPIC, "--store", str(root), "--to", str(tmp_path / "table"), "--format", "iceberg"]
    command = parse([*given, *options])
    command.command(HERE, command)


def test_a_table_in_place_says_what_it_copies_before_it_does(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_begun(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("pipeline.export.export_command.export_topic", not_begun)
        export_command(root, tmp_path, "--in-place")
    said = capsys.readouterr().err
    assert "mq: copies 103 messages of 4 files (" in said
    assert "70 in sealed segments" in said and "mq pipeline compact t before" in said and "33 in open" in said
    export_command(root, tmp_path, "--in-place", "--dry-run")
    assert "would add 110 messages, 7 of them by reference\ncopies 103 messages of 4 files" in capsys.readouterr().out


def test_a_table_only_in_place_copies_nothing_and_gets_the_rest_once_it_is_final(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export = export_of(root, tmp_path / "table", "iceberg", in_place=InPlace.FINAL_ONLY)
    export_command(root, tmp_path, "--in-place-only")
    told = capsys.readouterr()
    assert told.out == "topic t: 7 messages added, 7 of them by reference\n" and "copies" not in told.err
    assert run(export) == Exported()
    assert not compact(HERE, StoreAddress(str(root)), TOPIC).left
    assert run(export) == Exported(runs=1, messages=70, by_reference=70)
    assert rows_of(by_pyiceberg(export)) == [row for row in expected_rows() if row[0] != 2]
    # What is left is in the open segment, and is copied if that is asked for.
    assert run(replace(export, in_place=InPlace.FINAL)) == Exported(runs=1, messages=33)
    assert rows_of(by_pyiceberg(export)) == expected_rows()


TRIPS = pa.table(
    {
        "at": pa.array([1_500_000_002_702_035, None, 1_500_003_600_000_000], pa.timestamp("us", "UTC")),
        "fare": pa.array([Decimal("112.05"), Decimal("0.50"), None], pa.decimal128(10, 2)),
        "stops": pa.array([[{"zone": "ü", "fee": Decimal("1.10")}], None, []]),
    }
)


@pytest.fixture
def trips(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """The options of an export of the trips, of two hours: by a schema that a Parquet file has."""
    pq.write_table(TRIPS, tmp_path / "trips.parquet")
    with BrokerProcess(data=tmp_path / "data") as broker, Client(broker.url) as client:
        client.create_topic("trips", value_type="json")
        client.publish_table("trips", TRIPS, event_time="at")
        yield "trips", "--url", broker.url, "--schema", str(tmp_path / "trips.parquet"), "--to", str(tmp_path / "table")


def command(*options: str) -> None:
    found = parse(["export", *options])
    found.command(HERE, found)


@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
def test_members_of_values_are_columns_of_their_types(
    trips: tuple[str, ...], tmp_path: Path, table_format: str
) -> None:
    command(*trips, "--format", table_format, "--columns", "segment,_offset,at,fare,stops")
    if table_format == "parquet":
        found = ds.dataset(tmp_path / "table", format="parquet").to_table()
    else:
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("braidmq", uri=f"sqlite:///{tmp_path}/table/_braidmq/catalog.db")
        paths = [task.file.file_path for task in catalog.load_table(("braidmq", "trips")).scan().plan_files()]
        # pyiceberg reads a list of structs that is null as an empty one.
        found = pa.concat_tables(pq.read_table(path, partitioning=None) for path in paths)
        schema = catalog.load_table(("braidmq", "trips")).scan().to_arrow().schema
        assert [(each.name, each.type) for each in schema][:4] == [(each.name, each.type) for each in found.schema][:4]
    found = found.sort_by("_offset")
    assert found.select(["at", "fare", "stops"]).to_pylist() == TRIPS.to_pylist()
    assert found.schema.field("fare").type == pa.decimal128(10, 2)
    assert found.column_names == ["segment", "_offset", "at", "fare", "stops"]


def test_columns_keep_types_that_parquet_itself_lacks(trips: tuple[str, ...], tmp_path: Path) -> None:
    schema = pa.schema([("at", pa.timestamp("us", "Europe/Paris")), ("lasts", pa.duration("ns"))])
    pq.write_table(schema.empty_table(), tmp_path / "types.parquet")
    command(*trips, "--schema", str(tmp_path / "types.parquet"), "--columns", "at,lasts", "--partition-by", "none")
    found = ds.dataset(tmp_path / "table", format="parquet").to_table()
    assert found.schema == schema
    assert sorted(found["at"].cast(pa.int64()).to_pylist(), key=str) == [1500000002702035, 1500003600000000, None]


def test_an_hour_is_a_folder_within_its_day(trips: tuple[str, ...], tmp_path: Path) -> None:
    command(*trips, "--partition-by", "event_time", "--partition-every", "hour")
    with duckdb.connect() as connection:
        files = f"read_parquet('{tmp_path}/table/*/*/*.parquet', hive_partitioning = true)"
        rows = connection.sql(f"SELECT date, hour, fare FROM {files} WHERE hour IS NOT NULL ORDER BY hour").fetchall()
    assert rows == [(date(2017, 7, 14), 2, Decimal("112.05")), (date(2017, 7, 14), 3, None)]


def test_a_value_that_does_not_fit_stops_the_export_or_goes_where_the_user_says(
    trips: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(trips[2]) as client:
        client.publish("trips", {"fare": "12"})
        client.publish("trips", {"fare": 12.5})
    # In whichever segment it is.
    with pytest.raises(InvalidInput, match=r"message 0-3 does not fit the schema: column 'fare': .*--unfit-to DIR"):
        command(*trips)
    assert not list((tmp_path / "table").glob("date=*"))
    with pytest.raises(InvalidInput, match="message 0-3 does not fit"):
        command(*trips)
    command(*trips, "--unfit-to", str(tmp_path / "unfit"))
    assert capsys.readouterr().out.startswith("topic trips: 4 messages added; 1 put into ")
    (path,) = (tmp_path / "unfit").iterdir()
    (row,) = pq.read_table(path).to_pylist()
    assert (row["segment"], row["_offset"], row["value"]) == (0, 3, '{"fare":"12"}') and "'fare'" in row["reason"]
    found = ds.dataset(tmp_path / "table", format="parquet").to_table().sort_by("_offset")
    assert found["_offset"].to_pylist() == [0, 1, 2, 4]
    assert found["fare"].to_pylist() == [*TRIPS["fare"].to_pylist(), Decimal("12.50")]


def test_a_table_keeps_its_columns_and_its_folders(trips: tuple[str, ...]) -> None:
    command(*trips)
    with pytest.raises(JobFailed, match=r"other columns: segment is only there; .*value.fare is only there; "):
        command(*trips, "--columns", "key")
    with pytest.raises(JobFailed, match="has the partition every 'day', not 'hour'"):
        command(*trips, "--partition-every", "hour")


def test_a_record_of_an_export_of_all_columns_is_as_it_was(root: Path, tmp_path: Path) -> None:
    """Version 0.1 refuses a record with members that it does not know."""
    run(export_of(root, tmp_path / "table"))
    record = json.loads((tmp_path / "table" / STATE_KEY).read_bytes())
    assert set(record["target"]) == {"topic", "created_us", "table_format", "partition_by"}


def test_a_topic_group_and_its_members_are_refused(tmp_path: Path):
    """The columns of a table do not tell of which topic a message is, and a member has no files."""

    async def make() -> None:
        store = LocalStore(tmp_path / "data", clock=SystemClock())
        async with http_broker(store) as broker:
            (await broker.client.put("/v1/topic-groups/shop", json={"topics": ["orders"]})).raise_for_status()
        await store.close()

    asyncio.run(make())
    source, target = StoreAddress(f"{tmp_path / 'data'}"), StoreAddress(f"{tmp_path / 'table'}")
    for topic, told in (
        ("shop", "'shop' is a topic group, which cannot be"),
        ("orders", "in topic group 'shop': name"),
    ):
        with pytest.raises(InvalidInput, match=told):
            export_topic(HERE, Export(source, target, topic, "parquet", "none"), FINISH["parquet"])
    assert not [path for path in (tmp_path / "table").rglob("*") if path.is_file()]
