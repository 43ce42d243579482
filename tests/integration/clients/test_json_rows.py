"""A row is the same JSON by whatever path it comes, and the same table again."""

import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from ulid import ULID

from braidmq import Client, InvalidArgument, rows_from_json, rows_to_json
from braidmq.testing import InMemoryBroker
from mq.cli.main import run
from tests.support.rows.arrow_tables import tables

Path_ = Callable[[InMemoryBroker, str, pa.Table], None]


def by_table(broker: InMemoryBroker, topic: str, table: pa.Table) -> None:
    with Client(broker.url) as client:
        client.publish_table(topic, table)


def by_bulk_load(broker: InMemoryBroker, topic: str, table: pa.Table) -> None:
    with Client(broker.url) as client:
        client.load(topic, table, segments=1)


def by_http(broker: InMemoryBroker, topic: str, table: pa.Table) -> None:
    messages = b",".join(b'{"value": %s}' % text for text in rows_to_json(table).to_pylist())
    _post(broker, topic, b'{"messages": [%s]}' % messages, "application/json")


def by_http_lines(broker: InMemoryBroker, topic: str, table: pa.Table) -> None:
    lines = b"\n".join(b'{"value": %s}' % text for text in rows_to_json(table).to_pylist())
    _post(broker, topic, lines, "application/x-ndjson")


def by_lines_of_a_file(broker: InMemoryBroker, topic: str, table: pa.Table) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.ndjson"
        path.write_bytes(b"\n".join(rows_to_json(table).to_pylist()))
        assert run(["publish", topic, "--file", str(path), "--url", broker.url, "--json"]) == 0


def by_parquet_file(broker: InMemoryBroker, topic: str, table: pa.Table) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        try:
            pq.write_table(table, path)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            # Parquet has no structs without fields, for example: nobody has such a file.
            by_table(broker, topic, table)
            return
        assert run(["publish", topic, "--file", str(path), "--url", broker.url, "--json"]) == 0


def _post(broker: InMemoryBroker, topic: str, body: bytes, content_type: str) -> None:
    answer = httpx.post(
        f"{broker.url}/v1/topics/{topic}/messages", content=body, headers={"content-type": content_type}
    )
    assert answer.status_code == 200, answer.text


PATHS = [by_table, by_bulk_load, by_http, by_http_lines, by_lines_of_a_file, by_parquet_file]


@pytest.mark.parametrize("path", PATHS)
def test_any_row_has_the_same_bytes_and_comes_back_the_same(broker: InMemoryBroker, path: Path_) -> None:
    @settings(max_examples=10)
    @given(tables(min_rows=1))
    def check(table: pa.Table) -> None:
        topic = f"t-{ULID()}"
        with Client(broker.url) as client:
            client.create_topic(topic, value_type="json")
            path(broker, topic, table)
            stored = client.read_table(topic)["value"]
            client.delete_topic(topic)
        assert stored.cast(pa.binary()).to_pylist() == rows_to_json(table).to_pylist()
        assert rows_from_json(stored, table.schema).equals(table)

    check()


def test_what_readers_of_http_get_has_all_digits(broker: InMemoryBroker, topic: str) -> None:
    table = pa.table({"fare": pa.array([Decimal("112.50")]), "at": pa.array([2_702_035], pa.timestamp("us", "UTC"))})
    with Client(broker.url) as client:
        client.create_topic(topic, value_type="json")
        client.publish_table(topic, table)
        client.publish(topic, {"fare": Decimal("112.50")})
    answer = httpx.get(f"{broker.url}/v1/topics/{topic}/messages").text
    assert '{"fare":112.50,"at":"1970-01-01T00:00:02.702035Z"}' in answer
    assert '{"fare":112.50}' in answer


def test_a_refused_value_is_told_by_its_column_and_row_of_the_whole_file(
    broker: InMemoryBroker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[Any] = [1.0] * 20_000
    rows[17_000] = float("nan")
    pq.write_table(pa.table({"fare": rows}), tmp_path / "rows.parquet")
    with Client(broker.url) as client:
        client.create_topic(topic, value_type="json")
        arguments = ["publish", topic, "--file", str(tmp_path / "rows.parquet"), "--url", broker.url]
        assert run(arguments) == 1
        assert "column 'fare', row 17000: JSON has no number NaN" in capsys.readouterr().err
        assert run([*arguments, "--non-finite", "null"]) == 0
        assert client.read_table(topic)["value"].to_pylist()[-3000:][:1] == ['{"fare":null}']
        with pytest.raises(InvalidArgument, match="column 'fare', row 17000"):
            client.load(topic, tmp_path / "rows.parquet")
