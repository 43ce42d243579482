import io
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
import pyarrow as pa
import pytest

from braidmq import (
    AsyncClient,
    BodyTooLarge,
    InvalidArgument,
    OutcomeUnknown,
    OutgoingMessage,
    Position,
    PositionRange,
    Published,
)
from braidmq.publish import publisher as publisher_module
from tests.support.broker.fake_broker import FakeBroker, Fault, broken, problem


@pytest.mark.parametrize(
    ("value", "stored", "content_type"),
    [
        (b"\x00\xff", b"\x00\xff", None),
        (bytearray(b"a"), b"a", None),
        (memoryview(b"a"), b"a", None),
        ("ü", "ü".encode(), None),
        ("", b"", None),
        (None, None, None),
        ({"a": [1, None]}, b'{"a":[1,null]}', b"application/json"),
        ([1, 2], b"[1,2]", b"application/json"),
        (1.5, b"1.5", b"application/json"),
        (True, b"true", b"application/json"),
        (0, b"0", b"application/json"),
    ],
)
async def test_a_value_of_any_kind_is_stored(
    client: AsyncClient, broker: FakeBroker, value: Any, stored: bytes | None, content_type: bytes | None
) -> None:
    topic = broker.add_topic("t")
    assert await client.publish("t", value) == Position(0, 0)
    assert topic.rows[0][0]["value"] == stored
    assert dict(topic.rows[0][0]["headers"] or []).get("content-type") == content_type


async def test_key_headers_and_event_time_go_along(client: AsyncClient, broker: FakeBroker) -> None:
    topic = broker.add_topic("t")
    moment = datetime(2024, 5, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    await client.publish("t", {"a": 1}, key="k", headers={"x": b"\xff", "content-type": "x/y"}, event_time=moment)
    row = topic.rows[0][0]
    assert row["key"] == b"k"
    assert row["headers"] == [("x", b"\xff"), ("content-type", b"x/y")]
    assert row["event_time"] == datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"value": object()}, "a value cannot be an object"),
        ({"value": {"a": object()}}, "cannot be written as JSON"),
        ({"value": "v", "key": 7.5}, "a key cannot be a float"),
        ({"value": "v", "headers": {"n": 7}}, "header 'n' is an int"),
        ({"value": "v", "event_time": datetime(2024, 5, 1)}, "has no time zone"),
        ({"value": io.StringIO("text")}, "open as text"),
    ],
)
async def test_what_cannot_be_sent_is_refused_before_it_is(
    client: AsyncClient, broker: FakeBroker, arguments: dict[str, Any], message: str
) -> None:
    broker.add_topic("t")
    with pytest.raises(InvalidArgument, match=message):
        await client.publish("t", **arguments)
    assert broker.requests == []


async def test_many_messages_share_requests(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    published = await client.publish_many("t", [OutgoingMessage("a", "k"), "b", None, {"c": 1}])
    assert published == Published(4, (PositionRange(0, 0, 4),))
    assert broker.values("t") == [b"a", b"b", None, b'{"c":1}']
    assert len(broker.requests) == 1


async def test_nothing_to_publish_is_no_request(client: AsyncClient, broker: FakeBroker) -> None:
    assert await client.publish_many("t", []) == Published()
    assert broker.requests == []


@pytest.fixture
def small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "REQUEST_BYTES", 2000)


@pytest.mark.usefixtures("small_requests")
async def test_many_bytes_are_cut_into_several_requests_in_order(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    values = [b"%03d" % n * 100 for n in range(20)]
    published = await client.publish_many("t", iter(values))
    assert broker.values("t") == values
    assert len(broker.requests) == 4
    assert published.count == 20
    assert [each.offset for each in published.positions] == [0, 6, 12, 18]


@pytest.mark.usefixtures("small_requests")
async def test_a_failure_says_what_was_acknowledged_before(
    client: AsyncClient, cautious: AsyncClient, broker: FakeBroker
) -> None:
    broker.add_topic("t")
    broker.faults.extend([None, Fault(broken)])
    with pytest.raises(OutcomeUnknown) as caught:
        await cautious.publish_many("t", [bytes(300)] * 20)
    assert caught.value.published == Published(6, (PositionRange(0, 0, 6),))
    broker.faults.extend([None, None, Fault(response=problem(413, "body-too-large", limit_bytes=10))])
    with pytest.raises(BodyTooLarge) as refused:
        await client.publish_table("t", pa.table({"v": [bytes(300)] * 20}), value="v")
    assert refused.value.published is not None
    assert refused.value.published.count == 12


@pytest.mark.usefixtures("small_requests")
async def test_a_table_goes_in_order_with_progress(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    table = pa.table({"n": list(range(500))})
    progress_calls: list[tuple[int, int]] = []
    published = await client.publish_table(
        "t", table, progress=lambda done, total: progress_calls.append((done, total))
    )
    assert [orjson.loads(value or b"")["n"] for value in broker.values("t")] == list(range(500))
    assert published.count == 500
    assert progress_calls[-1] == (500, 500)
    assert len(progress_calls) == len(broker.requests) > 5


async def test_a_table_without_rows_is_no_request(client: AsyncClient, broker: FakeBroker) -> None:
    assert await client.publish_table("t", pa.table({"n": pa.array([], pa.int64())})) == Published()
    assert broker.requests == []


async def test_a_row_of_a_table_past_the_threshold_is_uploaded(broker: FakeBroker) -> None:
    topic = broker.add_topic("t")
    async with AsyncClient("http://b", http_transport=broker.transport, upload_threshold_bytes=10) as client:
        await client.publish_table("t", pa.table({"v": ["small", "x" * 11, None]}), value="v")
    assert broker.values("t") == [b"small", None, None]
    assert [row["_ref"] is not None for row in topic.rows[0]] == [False, True, False]
    assert list(broker.uploads.values()) == [b"x" * 11]
