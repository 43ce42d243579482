"""Readers that are far behind read the topic's files from the store, with the same result as from a broker."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from braidmq import AsyncClient, Client
from braidmq.read import file_reader, reader, stored_pages
from braidmq.read.file_ref import FileRef
from braidmq.read.remote_file import FileUnreachable
from tests.support.broker.broker_process import BrokerProcess

ROWS, VALUE_BYTES = 60_000, 1000
SEEN = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(data=tmp_path_factory.mktemp("data")) as broker:
        with Client(broker.url) as client:
            client.create_topic("t", segments=3)
            client.publish_table("t", numbered(0, ROWS), key="key", value="value", event_time="event_time")
        yield broker


def numbered(start: int, stop: int) -> pa.Table:
    return pa.table(
        {
            "key": [b"%d" % (number % 97) for number in range(start, stop)],
            "value": [b"%d" % number + b"." * VALUE_BYTES for number in range(start, stop)],
            "event_time": pa.array([SEEN] * (stop - start), pa.timestamp("us", "UTC")),
        }
    )


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were read from the store."""
    seen: list[str] = []
    batches = file_reader._opened

    def spied(http: httpx.Client, file: FileRef) -> AbstractContextManager[pq.ParquetFile]:
        seen.append(file.uri)
        return batches(http, file)

    monkeypatch.setattr(file_reader, "_opened", spied)
    return seen


def test_a_table_is_the_same_by_way_of_files_and_of_a_broker(broker: BrokerProcess, opened: list[str]) -> None:
    with Client(broker.url) as client, Client(broker.url, read_files=False) as plain:
        by_broker = plain.read_table("t")
        assert opened == []
        by_files = client.read_table("t")
        assert opened
        assert by_files.schema == by_broker.schema
        order = [("segment", "ascending"), ("_offset", "ascending")]
        assert by_files.sort_by(order) == by_broker.sort_by(order)
        assert by_files.num_rows == ROWS


def test_each_message_has_a_marker_behind_which_nothing_is_missed_or_doubled(
    broker: BrokerProcess, opened: list[str]
) -> None:
    with Client(broker.url) as client, Client(broker.url, read_files=False) as plain:
        offsets = []
        markers = {}
        for row, message in enumerate(client.browse("t")):
            offsets.append((message.segment, message.offset))
            if row % 9_973 == 0:
                markers[row] = message.marker
        assert opened and len(set(offsets)) == ROWS
        for row, marker in markers.items():
            rest = [(each["segment"], each["_offset"]) for each in positions(plain.read_table("t", marker=marker))]
            assert sorted(rest) == sorted(offsets[row + 1 :])


def positions(table: pa.Table) -> list[dict[str, int]]:
    return table.select(["segment", "_offset"]).to_pylist()


async def test_a_subscription_goes_on_from_files_to_what_comes(broker: BrokerProcess, opened: list[str]) -> None:
    async with AsyncClient(broker.url) as client:
        await client.create_topic("live", segments=2)
        await client.publish_table("live", numbered(0, ROWS // 2), key="key", value="value")
        [segment, _] = [each.segment for each in (await client.topic("live")).segments]
        await client.split_segment("live", segment)
        await client.publish_table("live", numbered(ROWS // 2, ROWS), key="key", value="value")
        last: dict[bytes, int] = {}
        async with asyncio.timeout(60):
            read = 0
            async for message in client.subscribe("live", from_="earliest"):
                number = int(message.value.partition(b".")[0])
                assert message.key is not None and last.get(message.key, number % 97 - 97) == number - 97
                last[message.key] = number
                read += 1
                if read == ROWS:
                    assert opened
                    await client.publish_table("live", numbered(ROWS, ROWS + 100), key="key", value="value")
                if read == ROWS + 100:
                    break


@pytest.mark.parametrize("found", [0, 2], ids=["none is here", "some go meanwhile"])
def test_files_that_are_gone_or_not_here_are_read_by_a_broker(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, found: int
) -> None:
    asked = itertools.count()
    path = FileRef.path.fget
    assert path is not None

    def mostly_gone(self: FileRef) -> Path | None:
        return path(self) if next(asked) < found else Path("/nonexistent/file.parquet")

    monkeypatch.setattr(FileRef, "path", property(mostly_gone))
    with Client(broker.url) as client:
        offsets = [(each["segment"], each["_offset"]) for each in positions(client.read_table("t"))]
    assert len(offsets) == len(set(offsets)) == ROWS
    assert next(asked) > found


def test_a_file_of_another_size_under_the_same_name_is_not_read(broker: BrokerProcess) -> None:
    with Client(broker.url) as client:
        file = FileRef.of(next(client.files("t")))
    other = replace(file, size_bytes=file.size_bytes + 1)
    with httpx.Client() as http, pytest.raises(FileUnreachable, match="another size"):
        next(file_reader.file_batches(http, other, 0, 0, 1, ["_offset"]))


def test_short_reads_ask_for_no_files(broker: BrokerProcess, opened: list[str]) -> None:
    with Client(broker.url) as client:
        assert client.read_table("t", limit=reader.PAGE_ROWS + 1).num_rows == reader.PAGE_ROWS + 1
        client.create_topic("short")
        client.publish_table("short", numbered(0, 100), key="key", value="value")
        assert client.read_table("short").num_rows == 100
    assert opened == []


def test_a_topic_group_is_read_from_files_and_its_members_through_a_broker(
    broker: BrokerProcess, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files have the messages of all members: whoever reads one of them must not take the others' for its own."""
    monkeypatch.setattr(stored_pages, "LEAST_ROWS", 1)
    monkeypatch.setattr(stored_pages, "_LEAST_ROWS_A_FILE", 0)
    monkeypatch.setattr(reader, "PAGE_ROWS", 50)
    with Client(broker.url) as client:
        client.create_topic_group("shop", ["orders", "payments"])
        for number in range(4):
            client.publish_table(
                ("orders", "payments")[number % 2], numbered(100 * number, 100 * (number + 1)), value="value"
            )
        orders = pa.concat_tables(client.browse_tables("orders", from_="earliest"))
        assert not opened
        whole = pa.concat_tables(client.browse_tables("shop", from_="earliest"))
        assert opened
    numbers = [int(value.split(b".")[0]) for value in whole["value"].to_pylist()]
    assert numbers == list(range(400))
    assert whole["_topic"].to_pylist() == (["orders"] * 100 + ["payments"] * 100) * 2
    assert "_topic" not in orders.schema.names
    assert orders["value"].to_pylist() == whole.filter(pc.equal(whole["_topic"], "orders"))["value"].to_pylist()
