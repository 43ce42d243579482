import asyncio
from collections.abc import AsyncIterator
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime

import httpx
import pyarrow as pa
import pytest

from braidmq import (
    AsyncClient,
    InvalidArgument,
    Message,
    NotABroker,
    OutgoingMessage,
    PositionExpired,
    Reference,
    TopicNotFound,
)
from tests.support.broker.fake_broker import NOW_US, FakeBroker, Fault, broken, problem, refused
from tests.support.instant_clock import InstantClock


async def taken(messages: AsyncIterator[Message], count: int) -> list[Message]:
    return [await anext(messages) for _ in range(count)]


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value for message in messages]


async def test_a_message_is_all_that_was_given_and_where_it_is(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    moment = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
    await client.publish("t", {"a": 1}, key="k", headers={"h": b"\xff"}, event_time=moment)
    (message,) = [each async for each in client.browse("t")]
    assert message == Message(
        topic="t",
        segment=0,
        offset=0,
        timestamp=datetime.fromtimestamp(NOW_US / 1e6, UTC),
        key=b"k",
        value=b'{"a":1}',
        event_time=moment,
        headers={"h": b"\xff", "content-type": b"application/json"},
    )
    assert (message.id, message.key_text, message.value_text, message.json()) == ("0-0", "k", '{"a":1}', {"a": 1})
    with pytest.raises(FrozenInstanceError):
        message.offset = 1


async def test_some_messages_have_event_times(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    moments = [None, datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), None]
    await client.publish_many("t", [OutgoingMessage("v", event_time=each) for each in moments])
    assert [each.event_time async for each in client.browse("t")] == moments


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 2**64, -(2**63) - 1, 10**40])
async def test_whole_numbers_of_any_size_are_whole_numbers(
    client: AsyncClient, broker: FakeBroker, number: int
) -> None:
    broker.add_topic("t")
    await client.publish("t", b'{"id": %d}' % number)
    (message,) = [each async for each in client.browse("t")]
    assert message.json() == {"id": number} and isinstance(message.json()["id"], int)


async def test_what_is_null_stays_null(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    await client.publish("t", None)
    (message,) = [each async for each in client.browse("t")]
    assert (message.key, message.value, message.key_text, message.value_text, message.json()) == (None,) * 5
    assert (message.headers, message.event_time, message.ref) == ({}, None, None)


async def test_references_are_read(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    upload = await client.upload("t", b"x")
    await client.publish_many("t", [OutgoingMessage(upload), "inline"])
    first, second = [each async for each in client.browse("t")]
    assert first.ref == Reference(f"uploads/{upload.id}", 1, f'"{upload.id}"', upload.sha256)
    assert second.ref is None


async def test_browsing_takes_all_pages_and_ends(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t", segments=3)
    broker.page_rows = 7
    sent = [OutgoingMessage(b"%d" % n, b"%d" % n) for n in range(100)]
    await client.publish_many("t", sent)
    read = [each async for each in client.browse("t")]
    assert sorted(values(read)) == sorted(each.value for each in sent)
    assert len({each.id for each in read}) == 100


@pytest.mark.parametrize("limit", [0, 1, 2, 8, 30, 31])
async def test_a_limit_is_kept_and_the_marker_goes_on_after_it(
    client: AsyncClient, broker: FakeBroker, limit: int
) -> None:
    broker.add_topic("t", segments=2)
    broker.page_rows = 7
    await client.publish_many("t", [OutgoingMessage(str(n), str(n)) for n in range(30)])
    everything = [each.id async for each in client.browse("t")]
    browsing = client.browse("t", limit=limit)
    first = [each.id async for each in browsing]
    rest = [each.id async for each in client.browse("t", marker=browsing.marker)]
    assert first == everything[:limit]
    assert first + rest == everything


async def test_every_messages_marker_goes_on_right_after_it(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t", segments=3)
    broker.page_rows = 9
    await client.publish_many("t", [OutgoingMessage(str(n), str(n)) for n in range(25)])
    everything = [each async for each in client.browse("t")]
    browsing = client.browse("t")
    for number, message in enumerate(everything, start=1):
        assert (await anext(browsing)).marker == message.marker == browsing.marker
        rest = [each.id async for each in client.browse("t", marker=message.marker)]
        assert sorted(rest) == sorted(each.id for each in everything[number:])


@pytest.mark.parametrize("start", ["earliest", "latest", datetime(2024, 5, 1, tzinfo=UTC)])
async def test_the_start_is_passed_on(client: AsyncClient, broker: FakeBroker, start: str | datetime) -> None:
    broker.add_topic("t")
    await client.publish("t", "v")
    read = [each async for each in client.browse("t", from_=start)]
    asked = broker.requests[1].url.params["from"]
    assert asked == (start if isinstance(start, str) else "2024-05-01T00:00:00.000000Z")
    assert len(read) == (0 if start == "latest" else 1)


async def test_two_starts_are_one_too_many(client: AsyncClient) -> None:
    with pytest.raises(InvalidArgument, match="not both"):
        client.browse("t", from_="earliest", marker="m")
    with pytest.raises(InvalidArgument, match="limit is -1"):
        client.browse("t", limit=-1)
    with pytest.raises(InvalidArgument, match="no time zone"):
        client.browse("t", from_=datetime(2024, 5, 1))


async def test_tables_stay_columns(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.page_rows = 40
    await client.publish_many("t", [str(n) for n in range(100)])
    tables = client.browse_tables("t")
    sizes = [each.num_rows async for each in tables]
    assert sizes == [40, 40, 20]
    assert [each async for each in client.browse("t", marker=tables.marker)] == []
    whole = await client.read_table("t")
    assert whole["value"].to_pylist() == [b"%d" % n for n in range(100)]
    assert whole["_offset"].to_pylist() == list(range(100))
    assert (await client.read_table("t", limit=3)).num_rows == 3


async def test_a_topic_without_messages_has_its_columns_still(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    table = await client.read_table("t")
    assert table.num_rows == 0
    assert "value" in table.column_names


async def test_a_subscription_takes_what_comes_after_it_began(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t", segments=2)
    await client.publish("t", "before")
    subscription = client.subscribe("t")
    waiting = asyncio.create_task(taken(subscription, 2))
    while len(broker.requests) < 3:  # the second poll is waiting
        await asyncio.sleep(0)
    await client.publish("t", "first", key="a")
    await client.publish("t", "second", key="a")
    assert values(await waiting) == [b"first", b"second"]


async def test_a_subscription_from_the_earliest_has_what_was_before(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    await client.publish_many("t", ["a", "b", "c"])
    assert values(await taken(client.subscribe("t", from_="earliest"), 3)) == [b"a", b"b", b"c"]


async def test_a_subscription_outlives_its_broker_without_loss_or_doubles(
    client: AsyncClient, broker: FakeBroker, clock: InstantClock
) -> None:
    broker.add_topic("t")
    broker.page_rows = 3
    await client.publish_many("t", [str(n) for n in range(20)])
    draining = Fault(response=problem(503, "draining", retryable=True))
    broker.faults.extend(
        [None, Fault(broken, after=True), *[Fault(refused)] * 200, None, Fault(broken), draining, None]
    )
    read = values(await taken(client.subscribe("t", from_="earliest"), 20))
    assert read == [b"%d" % n for n in range(20)]
    assert sum(clock.naps_seconds) > 60


async def test_a_reader_in_another_process_goes_on_at_a_marker(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    await client.publish_many("t", [str(n) for n in range(10)])
    first = await taken(client.subscribe("t", from_="earliest"), 4)
    rest = await taken(client.subscribe("t", marker=first[-1].marker), 6)
    assert values(first + rest) == [b"%d" % n for n in range(10)]


async def test_a_broker_that_answers_at_once_is_not_asked_in_a_busy_loop(
    client: AsyncClient, broker: FakeBroker, clock: InstantClock
) -> None:
    broker.add_topic("t")
    broker.answers_at_once = True
    subscription = asyncio.create_task(taken(client.subscribe("t"), 1))
    while len(broker.requests) < 20:
        await asyncio.sleep(0)
    subscription.cancel()
    assert sum(clock.naps_seconds) > 10


async def test_a_subscription_to_nothing_fails_at_once(client: AsyncClient, broker: FakeBroker) -> None:
    with pytest.raises(TopicNotFound):
        await anext(client.subscribe("nope"))


async def test_an_expired_position_says_where_to_go_on(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.faults.append(Fault(response=problem(410, "position-expired", earliest="E")))
    with pytest.raises(PositionExpired) as caught:
        await anext(client.browse("t", marker="old"))
    assert caught.value.earliest == "E"


async def test_subscribed_tables_follow_too(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    await client.publish_many("t", ["a", "b"])
    tables = client.subscribe_tables("t", from_="earliest")
    assert isinstance(await anext(tables), pa.Table)
    waiting = asyncio.ensure_future(anext(tables))
    await asyncio.sleep(0)
    await client.publish("t", "c")
    assert (await waiting)["value"].to_pylist() == [b"c"]


@pytest.mark.parametrize("headers", [{}, {"braid-marker": "m"}], ids=["no marker", "no Arrow"])
async def test_an_answer_without_marker_or_arrow_is_not_a_brokers(
    client: AsyncClient, broker: FakeBroker, headers: dict[str, str]
) -> None:
    broker.faults.append(Fault(response=httpx.Response(200, text="hello", headers=headers)))
    with pytest.raises(NotABroker):
        await anext(client.browse("t"))
