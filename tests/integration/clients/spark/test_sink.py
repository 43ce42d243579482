"""What a task publishes, without Spark: each row once, even if the same partition runs elsewhere, then or later."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import braidmq.spark.writing.sink
from braidmq import Client, InvalidArgument
from braidmq.spark.options import Source, WriteOptions
from braidmq.spark.writing.sink import publish_partition
from tests.support.broker.broker_process import BrokerProcess

BATCHES = 10
ROWS = 7
REQUESTS_A_PRODUCER = 4


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with BrokerProcess(data=tmp_path_factory.mktemp("sink")) as broker, Client(broker.url) as client:
        yield client


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    """A topic of this test's own."""
    name: str = request.node.name
    client.create_topic(name, segments=2)
    return name


@pytest.fixture(autouse=True)
def few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition uses the ids of several producers."""
    monkeypatch.setattr(braidmq.spark.writing.sink, "_REQUESTS_PER_PRODUCER", REQUESTS_A_PRODUCER)


def publish(client: Client, topic: str, batch: int, *, batches: int = BATCHES, rows: int = ROWS) -> int:
    """A micro-batch's partition: record batches of a request each."""
    first = batch * BATCHES * ROWS
    numbers = (range(first + index * ROWS, first + index * ROWS + rows) for index in range(batches))
    given = (pa.record_batch({"key": [f"k{n % 5}" for n in some], "value": [str(n) for n in some]}) for some in numbers)
    options = WriteOptions(Source(client.url, topic))
    return publish_partition(given, options, "spark.query.0", batch=batch).rows


def values(client: Client, topic: str) -> list[int]:
    return sorted(int(value) for value in client.read_table(topic)["value"].to_pylist())


def test_two_at_a_time_and_another_later_store_each_row_once(client: Client, topic: str) -> None:
    """As in speculative execution, and after a restart of a query."""
    for batch in range(2):
        tasks = [threading.Thread(target=publish, args=(client, topic, batch)) for _ in range(2)]
        for task in tasks:
            task.start()
        for task in tasks:
            task.join()
        assert publish(client, topic, batch) == BATCHES * ROWS
    assert values(client, topic) == list(range(2 * BATCHES * ROWS))


def test_a_load_that_was_stopped_in_the_middle_goes_on(client: Client, topic: str) -> None:
    publish(client, topic, 0, batches=6)
    publish(client, topic, 0)
    assert values(client, topic) == list(range(BATCHES * ROWS))


def test_other_rows_under_the_same_name_are_refused(client: Client, topic: str) -> None:
    publish(client, topic, 0)
    with pytest.raises(InvalidArgument, match=r"has 6 rows, but had 7 the first time"):
        publish(client, topic, 0, rows=ROWS - 1)
    assert values(client, topic) == list(range(BATCHES * ROWS))


def test_columns_say_when_messages_are_delivered(client: Client, topic: str) -> None:
    later, hour = datetime(2999, 1, 31, 12, tzinfo=UTC), timedelta(hours=1)
    times = {"deliver_at": [later, None], "expires_at": [None, later]}
    zone = pa.timestamp("us", "UTC")
    batch = pa.record_batch({"value": ["a", "b"], **{name: pa.array(each, zone) for name, each in times.items()}})
    delayed = pa.record_batch({"value": ["c"], "delay": pa.array([hour], pa.duration("us"))})
    publish_partition(iter([batch, delayed]), WriteOptions(Source(client.url, topic)), "spark.query.0", batch=0)
    at = b"2999-01-31T12:00:00.000000Z"
    found = {message.value: dict(message.headers) for message in client.browse(topic)}
    assert found[b"a"] == {"braid-deliver-at": at}
    assert found[b"b"] == {"braid-expires-at": at}
    assert found[b"c"].keys() == {"braid-deliver-at"}
