import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filer.keys import FileName
from mq.cli.main import run
from tests.support.broker.broker_process import BrokerProcess

Mq = Callable[..., str]


def publish_some(mq: Mq, topic: str, tmp_path: Path) -> None:
    mq("topic", "create", topic, "--segments", "2", "--value-type", "json")
    rows = "".join(f'{{"id":"k{number % 17}","n":{number}}}\n' for number in range(500))
    (tmp_path / "a.ndjson").write_text(rows)
    for _ in range(3):
        mq("publish", topic, "--file", str(tmp_path / "a.ndjson"), "--key-field", "id")


def test_ls_lists_files_that_hold_each_message_once(
    mq: Mq, mq_json: Callable[..., Any], topic: str, tmp_path: Path
) -> None:
    publish_some(mq, topic, tmp_path)
    files = mq_json("files", "ls", topic)
    assert sum(file["count"] for file in files) == 1500
    for file in files:
        path = Path(file["uri"].removeprefix("file://"))
        assert pq.read_metadata(path).num_rows == file["count"] and path.stat().st_size == file["bytes"]
    table = mq("files", "ls", topic)
    assert all(file["uri"] in table for file in files)


def test_cat_gives_what_subscribe_gives(mq: Mq, topic: str, tmp_path: Path) -> None:
    publish_some(mq, topic, tmp_path)
    by_file = mq("files", "cat", topic).splitlines()
    assert sorted(by_file) == sorted(mq("subscribe", topic, "--until-end", "--json").splitlines())
    one = [json.loads(line) for line in mq("files", "cat", topic, "1").splitlines()]
    assert {message["segment"] for message in one} == {1}
    assert [message["offset"] for message in one] == list(range(len(one)))


def test_sql_makes_the_topic_a_view_that_has_each_message_once_also_between_roll_ups(
    mq: Mq, topic: str, tmp_path: Path
) -> None:
    publish_some(mq, topic, tmp_path)
    text = mq("files", "sql", topic)
    with duckdb.connect() as connection:
        connection.execute(text)
        query = f"SELECT count(*), sum((value->>'n')::INT), count(DISTINCT (segment, _offset)) FROM \"{topic}\""
        assert connection.sql(query).fetchall() == [(1500, 3 * sum(range(500)), 1500)]
        uri = text.partition("glob('")[2].partition("segment=")[0]
        folder = Path(uri) / "segment=0"
        files = sorted(folder.glob("*.parquet"))
        merged = pa.concat_tables([pq.read_table(each, partitioning=None) for each in files])
        # A roll-up of all files of the segment appears. The files that it replaces are there for an hour.
        rolled = FileName(0, merged.num_rows)
        pq.write_table(merged, folder / str(rolled))
        assert connection.sql(query).fetchall() == [(1500, 3 * sum(range(500)), 1500)]
        connection.execute(text)
        assert connection.sql(query).fetchall() == [(1500, 3 * sum(range(500)), 1500)]
        (folder / str(rolled)).unlink()


def test_a_persistent_view_is_there_for_other_connections_and_has_the_messages_since(
    mq: Mq, topic: str, tmp_path: Path
) -> None:
    publish_some(mq, topic, tmp_path)
    text = mq("files", "sql", topic, "--persistent")
    query = f"SELECT count(*), sum((value->>'n')::INT), count(DISTINCT (segment, _offset)) FROM \"{topic}\""
    with duckdb.connect(tmp_path / "own.db") as connection:
        connection.execute(text)
    with duckdb.connect(tmp_path / "own.db", read_only=True) as connection:
        assert connection.sql(query).fetchall() == [(1500, 3 * sum(range(500)), 1500)]
        mq("publish", topic, '{"n": 1000}')
        assert connection.sql(query).fetchall() == [(1501, 3 * sum(range(500)) + 1000, 1501)]
        with connection.cursor() as another:
            folder = Path(text.partition("glob('")[2].partition("segment=")[0]) / "segment=0"
            merged = pa.concat_tables(
                [pq.read_table(each, partitioning=None) for each in sorted(folder.glob("*.parquet"))]
            )
            rolled = folder / str(FileName(0, merged.num_rows))
            pq.write_table(merged, rolled)
            assert another.sql(query).fetchall() == [(1501, 3 * sum(range(500)) + 1000, 1501)]
            rolled.unlink()


def test_an_engine_without_views_that_stay_says_so(mq: Mq, mq_fails: Mq, topic: str) -> None:
    mq("topic", "create", topic)
    told = mq_fails("files", "sql", topic, "--persistent", "--engine", "polars")
    assert "--persistent is for duckdb and athena: polars has no view that stays" in told


def test_polars_gets_a_program(mq: Mq, topic: str, tmp_path: Path) -> None:
    publish_some(mq, topic, tmp_path)
    names: dict[str, Any] = {}
    exec(mq("files", "sql", topic, "--engine", "polars"), names)
    messages = names["messages"].collect()
    assert messages.height == 1500
    assert sum(json.loads(value)["n"] for value in messages["value"]) == 3 * sum(range(500))


@pytest.fixture
def retained(mq: Mq, mq_json: Callable[..., Any], topic: str, tmp_path: Path) -> tuple[str, Path, int]:
    """A topic, and a copy of its store in which retention has moved on and deleted nothing yet; how many are left."""
    publish_some(mq, topic, tmp_path)
    mq("publish", topic, '"the last one"')
    root = Path(mq("files", "sql", topic).partition("glob('")[2].partition("/topics/")[0])
    copy = tmp_path / "copy"
    shutil.copytree(root / "topics" / topic, copy / "topics" / topic)
    newest = {file["segment"]: file for file in mq_json("files", "ls", topic)}
    record = copy / "topics" / topic / "topic.json"
    state = json.loads(record.read_bytes())
    # Of one segment the newest file is kept, and one has left the record.
    kept, *others, _ = state["segments"]
    kept["start_offset"] = newest[kept["id"]]["base_offset"]
    for segment in others:
        segment["start_offset"] = newest[segment["id"]]["end_offset"]
    record.write_text(json.dumps({**state, "segments": [kept, *others]}, indent=1))
    return str(root), copy, newest[kept["id"]]["count"]


@pytest.mark.parametrize("engine", ["duckdb", "duckdb --persistent", "polars"])
def test_what_retention_has_given_up_does_not_count_while_its_files_are_there(
    engine: str, mq: Mq, topic: str, retained: tuple[str, Path, int]
) -> None:
    root, copy, left = retained
    text = mq("files", "sql", topic, "--engine", *engine.split()).replace(root, str(copy))
    if engine.startswith("duckdb"):
        with duckdb.connect() as connection:
            connection.execute(text)
            assert connection.sql(f'SELECT count(*) FROM "{topic}"').fetchall() == [(left,)]
    else:
        names: dict[str, Any] = {}
        exec(text, names)
        assert names["messages"].collect().height == left


def test_athena_needs_a_store_at_amazon(mq: Mq, mq_fails: Mq, topic: str, tmp_path: Path) -> None:
    publish_some(mq, topic, tmp_path)
    assert "Athena reads only Amazon S3" in mq_fails("files", "sql", topic, "--engine", "athena")


def test_sql_needs_a_topic_with_files(mq: Mq, mq_fails: Mq, topic: str) -> None:
    mq("topic", "create", topic)
    assert "has no files yet" in mq_fails("files", "sql", topic)


def test_an_empty_topic_has_no_files(mq: Mq, mq_json: Callable[..., Any], topic: str) -> None:
    mq("topic", "create", topic)
    assert mq_json("files", "ls", topic) == []
    assert mq("files", "cat", topic) == ""


def test_files_on_s3_are_read_by_signed_addresses(
    s3_endpoint: str, s3_bucket: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with BrokerProcess(store=f"s3://{s3_bucket}/p", args=["--s3-endpoint", s3_endpoint]) as broker:
        url = ["--url", broker.url]
        assert run(["topic", "create", "t", *url]) == run(["publish", "t", "a", "b", *url]) == 0
        capfdbinary.readouterr()
        assert run(["files", "ls", "t", "--json", *url]) == 0
        (file,) = json.loads(capfdbinary.readouterr().out)
        assert file["uri"].startswith(f"s3://{s3_bucket}/p/") and "X-Amz-Signature" in file["url"]
        assert run(["files", "cat", "t", *url]) == 0
        read = [json.loads(line)["value"] for line in capfdbinary.readouterr().out.splitlines()]
        assert read == ["a", "b"]
        assert run(["files", "sql", "t", "--engine", "polars", *url]) == 0
        names: dict[str, Any] = {}
        exec(capfdbinary.readouterr().out.decode(), names)
        assert names["messages"].sort("_offset").collect()["value"].to_list() == [b"a", b"b"]
        assert run(["doctor", "--store", f"s3://{s3_bucket}/p", "--s3-endpoint", s3_endpoint, "--json"]) == 0
        findings = json.loads(capfdbinary.readouterr().out)
        assert {finding["result"] for finding in findings} == {"ok"}
        assert broker.terminate() == 0
