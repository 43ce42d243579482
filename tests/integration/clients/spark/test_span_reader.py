"""What a task reads of a segment, without Spark: from files, from brokers, and while files change."""

import random
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from braidmq import Client, SegmentFile
from braidmq.read.file_reader import file_batches
from braidmq.read.file_ref import FileRef
from braidmq.read.remote_file import WHOLE_FILE_BYTES, RemoteFile
from braidmq.spark.errors import DataLoss
from braidmq.spark.partitions.span_reader import SpanReader, span_files
from braidmq.spark.spans import Span
from braidmq.testing import InMemoryBroker
from filer.errors import CorruptFile
from filer.format.schema import MessageSchema
from filer.format.segment_file import Footer, SegmentFileEncoder
from tests.support.broker.broker_process import BrokerProcess

MESSAGES = 40
COLUMNS = ["_offset", "value"]
NO_UPKEEP = ("--maintenance-interval", "3600")


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with httpx.Client() as http:
        yield http


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Client]:
    """A broker on a directory."""
    with BrokerProcess(data=tmp_path, args=NO_UPKEEP) as broker, Client(broker.url) as client:
        yield client


def publish(client: Client, topic: str, files: int = 4) -> None:
    """Store so many files of ten messages."""
    client.create_topic(topic)
    for number in range(files):
        client.publish_table(topic, pa.table({"value": [str(number * 10 + each) for each in range(10)]}), value="value")


def rows(reader: SpanReader) -> list[tuple[int, bytes]]:
    tables = [pa.Table.from_batches([batch]).select(COLUMNS) for batch in reader.batches()]
    return [(row["_offset"], row["value"]) for table in tables for row in table.to_pylist()]


def numbers(start: int, stop: int) -> list[tuple[int, bytes]]:
    return [(number, str(number).encode()) for number in range(start, stop)]


def reader_of(client: Client, http: httpx.Client, topic: str, span: Span, files: tuple[FileRef, ...]) -> SpanReader:
    return SpanReader(client, http, topic, span, files, COLUMNS, fail_on_data_loss=True)


@pytest.mark.parametrize("span", [Span(0, 0, 40), Span(0, 3, 37), Span(0, 10, 20), Span(0, 12, 13)])
def test_by_path(local: Client, http: httpx.Client, span: Span) -> None:
    publish(local, "t")
    files = span_files(local, "t", span)
    assert (files[0].start, files[-1].stop) == (span.start // 10 * 10, -(-span.stop // 10) * 10)
    assert rows(reader_of(local, http, "t", span, files)) == numbers(span.start, span.stop)


def test_by_broker_what_is_in_no_file_that_can_be_reached(
    broker: InMemoryBroker, topic: str, http: httpx.Client
) -> None:
    with broker.client() as client:
        publish(client, topic)
        span = Span(0, 3, 37)
        files = span_files(client, topic, span)
        assert len(files) == 4
        assert rows(reader_of(client, http, topic, span, files)) == numbers(3, 37)
        assert rows(reader_of(client, http, topic, span, files[:2])) == numbers(3, 37)
        assert rows(reader_of(client, http, topic, span, ())) == numbers(3, 37)


def test_the_files_are_listed_again_when_one_is_gone(local: Client, http: httpx.Client) -> None:
    publish(local, "t")
    span = Span(0, 0, MESSAGES)
    files = span_files(local, "t", span)
    moved = tuple(FileRef(each.uri + ".gone", None, each.start, each.stop, each.size_bytes) for each in files)
    reader = reader_of(local, http, "t", span, (files[0], *moved[1:]))
    assert rows(reader) == numbers(0, MESSAGES)
    assert [each.uri for each in reader.files] == [each.uri for each in files[1:]]


def test_a_reader_that_is_interrupted_between_batches_gives_no_row_twice(local: Client, http: httpx.Client) -> None:
    """Each batch of a file may be the last before the file is gone."""
    publish(local, "t")
    span = Span(0, 0, MESSAGES)
    files = span_files(local, "t", span)
    reader = reader_of(local, http, "t", span, files)
    seen = []
    for batch in reader.batches():
        seen += batch["_offset"].to_pylist()
        reader.files = tuple(FileRef(each.uri + ".gone", None, each.start, each.stop, 1) for each in files)
    assert seen == list(range(MESSAGES))


def test_a_file_of_another_segment_is_refused(local: Client, http: httpx.Client) -> None:
    publish(local, "t")
    files = span_files(local, "t", Span(0, 0, MESSAGES))
    with pytest.raises(CorruptFile, match="not a file of segment 7"):
        rows(SpanReader(local, http, "t", Span(7, 0, 10), files, COLUMNS, fail_on_data_loss=True))


@pytest.mark.parametrize(("start", "stop"), [(0, 12), (8, 20)])
def test_a_file_that_lacks_what_it_was_said_to_hold_is_refused(
    local: Client, http: httpx.Client, start: int, stop: int
) -> None:
    """It is neither read for ever nor taken for other rows."""
    publish(local, "t", files=2)
    (listed,) = span_files(local, "t", Span(0, 0, 10)) if stop == 12 else span_files(local, "t", Span(0, 10, 20))
    lying = FileRef(listed.uri, None, start, stop, listed.size_bytes)
    with pytest.raises(CorruptFile, match="holds offsets"):
        rows(reader_of(local, http, "t", Span(0, start, stop), (lying,)))


def test_what_is_no_parquet_is_refused(local: Client, http: httpx.Client, tmp_path: Path) -> None:
    publish(local, "t")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing more PAR1")
    broken = FileRef((tmp_path / "broken.parquet").as_uri(), None, 0, 10, 26)
    with pytest.raises(CorruptFile, match=r"broken\.parquet: not a whole Parquet file"):
        rows(reader_of(local, http, "t", Span(0, 0, 10), (broken,)))


def test_messages_that_never_were_are_lost(broker: InMemoryBroker, topic: str, http: httpx.Client) -> None:
    """The read was planned at a broker whose replicas have all died since."""
    with broker.client() as client:
        publish(client, topic)
        client.split_segment(topic, 0)
        lost = Span(0, 35, 45)
        with pytest.raises(DataLoss, match=r"\[40, 45\) of segment 0 .* are lost"):
            rows(reader_of(client, http, topic, lost, ()))
        forgiving = SpanReader(client, http, topic, lost, (), COLUMNS, fail_on_data_loss=False)
        assert rows(forgiving) == numbers(35, 40)


def test_a_segment_that_is_gone_is_lost(broker: InMemoryBroker, topic: str, http: httpx.Client) -> None:
    with broker.client() as client:
        publish(client, topic)
        client.delete_topic(topic)
        publish(client, topic)
        with pytest.raises(DataLoss, match=r"\[0, 5\) of segment 0 .* has been removed"):
            rows(reader_of(client, http, topic, Span(0, 0, 5), ()))
        assert rows(SpanReader(client, http, topic, Span(0, 0, 5), (), COLUMNS, fail_on_data_loss=False)) == []


class Store:
    """Answers ranges of one object, and counts the requests."""

    def __init__(self, data: bytes, *, knows_ranges: bool = True) -> None:
        self.data, self.requests, self.knows_ranges, self.status = data, 0, knows_ranges, 206

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        if self.status != 206:
            return httpx.Response(self.status)
        if not self.knows_ranges:
            return httpx.Response(200, content=self.data)
        start, stop = (int(each) for each in request.headers["range"].removeprefix("bytes=").split("-"))
        return httpx.Response(206, content=self.data[start : stop + 1])


def large_file() -> bytes:
    """A file of 12 row groups or so."""
    values = [bytes([n % 251]) * 1000 for n in range(3 * WHOLE_FILE_BYTES // 1000)]
    encoder = SegmentFileEncoder(MessageSchema.of().log, compression="lz4")
    for base in range(0, len(values), 1000):
        encoder.add_row_group(messages_of(values[base : base + 1000], base))
    return encoder.finish(Footer(0, 0, len(values), "w", 1, 1)).to_pybytes()


def messages_of(values: list[bytes], base: int) -> pa.Table:
    """Incompressible, so that the file is large."""
    noise = random.Random(base)
    rows = [
        {"value": value + noise.randbytes(1000), "_offset": base + n, "_timestamp": 1} for n, value in enumerate(values)
    ]
    return pa.Table.from_pylist(rows, schema=MessageSchema.of().log)


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_a_large_remote_file_is_read_by_row_groups(knows_ranges: bool) -> None:
    store = Store(large_file(), knows_ranges=knows_ranges)
    file = FileRef("s3://bucket/x.parquet", "https://store/x", 0, 10**9, len(store.data))
    with httpx.Client(transport=httpx.MockTransport(store)) as http:
        batches = list(file_batches(http, file, 0, 3000, 3010, ["value"]))
    assert [row.as_py()[:1000] for batch in batches for row in batch["value"]] == [
        bytes([n % 251]) * 1000 for n in range(3000, 3010)
    ]
    assert store.requests == 2  # the footer and the row group


def test_a_small_remote_file_is_one_request() -> None:
    store = Store(bytes(range(256)))
    with httpx.Client(transport=httpx.MockTransport(store)) as http:
        remote = RemoteFile(http, "https://store/x", 256)
        assert remote.read_range(250, 252) == bytes([250, 251])
        assert remote.read_range(252, 256) == bytes([252, 253, 254, 255])
    assert store.requests == 1


def test_an_expired_address_is_fetched_again(local: Client) -> None:
    publish(local, "t")
    (listed,) = span_files(local, "t", Span(0, 0, 10))
    expired = FileRef("s3://bucket/x.parquet", "https://store/x", listed.start, listed.stop, listed.size_bytes)
    store = Store(b"")
    store.status = 403
    with httpx.Client(transport=httpx.MockTransport(store)) as http:
        assert rows(reader_of(local, http, "t", Span(0, 0, 10), (expired,))) == numbers(0, 10)
    assert store.requests == 1


def test_files_of_a_segment_by_offset(local: Client) -> None:
    publish(local, "t")

    def bases(**bounds: int) -> list[int]:
        files: Iterator[SegmentFile] = local.segment_files("t", 0, **bounds)
        return [file.base_offset for file in files]

    assert bases() == [0, 10, 20, 30]
    assert bases(offset=15) == [10, 20, 30]
    assert bases(offset=15, end_offset=20) == [10]
    assert bases(offset=15, end_offset=21) == [10, 20]
    assert bases(offset=40) == []
