import asyncio
import hashlib
import io
import json
import os
import subprocess
import sys
import urllib.parse
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braidmq import (
    BodyTooLarge,
    Client,
    ClientClosed,
    Conflict,
    InvalidArgument,
    InvalidConfig,
    InvalidMarker,
    InvalidReference,
    InvalidRequest,
    Message,
    NoConnection,
    OutgoingMessage,
    Position,
    Retry,
    TopicNotFound,
    Upload,
)
from braidmq.testing import InMemoryBroker
from tests.support.broker.broker_process import BrokerProcess
from tests.support.process.processes import child_environment

MOMENT = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize("value", [b"\x00\xff", "ü", "", None, {"a": [1, None, "ü"]}, [1.5], 7, True])
async def test_every_value_comes_back_as_it_was(broker: InMemoryBroker, topic: str, value: Any) -> None:
    topic = hashlib.sha256(topic.encode()).hexdigest()
    async with broker.async_client() as client:
        await client.create_topic(topic)
        position = await client.publish(topic, value, key="k", headers={"h": b"\xff"}, event_time=MOMENT)
        (message,) = [each async for each in client.browse(topic)]
    assert position == Position(message.segment, message.offset)
    assert (message.key, message.event_time, message.headers["h"]) == (b"k", MOMENT, b"\xff")
    if isinstance(value, bytes | str | None):
        assert message.value == (value.encode() if isinstance(value, str) else value)
        assert "content-type" not in message.headers
    else:
        assert message.json() == value
        assert message.headers["content-type"] == b"application/json"


@pytest.mark.parametrize("kinds", [("binary", "binary"), ("string", "string"), ("string", "json")])
async def test_topics_of_every_type_take_and_give_the_same(
    broker: InMemoryBroker, topic: str, kinds: tuple[str, str]
) -> None:
    async with broker.async_client() as client:
        await client.create_topic(topic, key_type=kinds[0], value_type=kinds[1])
        await client.publish(topic, {"n": 1}, key="k")
        await client.publish_table(topic, pa.table({"key": ["k"], "n": [2]}), key="key")
        read = [(each.key, each.json()["n"]) async for each in client.browse(topic)]
        tables = await client.read_table(topic)
    assert read == [(b"k", 1), (b"k", 2)]
    assert tables["_offset"].to_pylist() == [0, 1]


@pytest.mark.parametrize("kind", ["pyarrow", "pandas", "polars"])
def test_tables_of_every_library_keep_each_keys_order(broker: InMemoryBroker, topic: str, kind: str) -> None:
    rows = {"key": [str(n % 13) if n % 7 else None for n in range(5000)], "n": list(range(5000))}
    frame = {"pyarrow": pa.table, "pandas": pd.DataFrame, "polars": pl.DataFrame}[kind](rows)
    with broker.client() as client:
        client.create_topic(topic, segments=4)
        assert client.publish_table(topic, frame, key="key", headers={"from": kind}).count == 5000
        messages = list(client.browse(topic))
    assert sorted(each.json()["n"] for each in messages) == list(range(5000))
    assert {each.headers["from"] for each in messages} == {kind.encode()}
    for key in {each.key for each in messages} - {None}:
        of_key = [each.json()["n"] for each in messages if each.key == key]
        assert of_key == sorted(of_key)


def test_a_producers_positions_are_true(broker: InMemoryBroker, topic: str) -> None:
    with broker.client() as client:
        client.create_topic(topic, segments=4)
        with client.producer(topic) as producer:
            receipts = [producer.send(str(n), key=str(n) if n % 10 else None) for n in range(2000)]
        stored = {Position(each.segment, each.offset): each.value for each in client.browse(topic)}
    positions = [receipt.result().position for receipt in receipts]
    assert sum(position is not None for position in positions) > 1000
    for n, position in enumerate(positions):
        assert position is None or stored[position] == str(n).encode()


async def test_every_messages_marker_goes_on_after_it(broker: InMemoryBroker, topic: str) -> None:
    async with broker.async_client() as client:
        await client.create_topic(topic, segments=3)
        await client.publish_many(topic, [OutgoingMessage(str(n), str(n)) for n in range(60)])
        everything = [each async for each in client.browse(topic)]
        for number, message in enumerate(everything, start=1):
            rest = {each.id async for each in client.browse(topic, marker=message.marker)}
            assert rest == {each.id for each in everything[number:]}


async def test_markers_hold_across_transitions(topic: str) -> None:
    """A segment that is full is sealed and its successor goes on: within a page, and between pages."""
    with InMemoryBroker(maintenance_interval=0.05) as broker:
        async with broker.async_client() as client:
            await client.create_topic(topic, segments=2, segment_bytes=1024 * 1024)
            for start in range(0, 800, 80):
                sent = [
                    OutgoingMessage(f"{n} ".encode() + os.urandom(10_000), str(n % 5)) for n in range(start, start + 80)
                ]
                await client.publish_many(topic, sent)
            await _until_segments(client, topic, more_than=4)
            await client.publish_many(topic, [OutgoingMessage(f"{n} ", str(n % 5)) for n in range(800, 900)])
            everything = [each async for each in client.browse(topic)]
            assert len({each.segment for each in everything}) > 4
            for key in range(5):
                numbers = [int((each.value or b"").split()[0]) for each in everything if each.key_text == str(key)]
                assert numbers == list(range(key, 900, 5))
            for number, message in list(enumerate(everything, start=1))[::23]:
                rest = [each.id async for each in client.browse(topic, marker=message.marker)]
                assert sorted(rest) == sorted(each.id for each in everything[number:])


async def _until_segments(client: Any, topic: str, *, more_than: int) -> None:
    async with asyncio.timeout(60):
        while len((await client.topic(topic)).segments) <= more_than:
            await asyncio.sleep(0.05)


async def test_a_subscription_follows_what_is_published(broker: InMemoryBroker, topic: str) -> None:
    async with broker.async_client() as client:
        await client.create_topic(topic, segments=2)
        await client.publish(topic, "before")
        received: list[Message] = []

        async def subscribe() -> None:
            async for message in client.subscribe(topic):
                received.append(message)
                if len(received) == 50:
                    return

        subscribing = asyncio.create_task(subscribe())
        await _until_waiting(client, topic, received)
        for n in range(49):
            await client.publish(topic, str(n), key="k")
        async with asyncio.timeout(10):
            await subscribing
    assert [each.value for each in received if each.key] == [str(n).encode() for n in range(49)]


async def _until_waiting(client: Any, topic: str, received: list[Message]) -> None:
    """Where a subscription from the latest begins is not known: publish until it has received a message."""
    async with asyncio.timeout(10):
        while not received:
            await client.publish(topic, "are you there?")
            await asyncio.sleep(0.05)
    del received[1:]


def test_a_value_by_reference_is_no_null_value(broker: InMemoryBroker, topic: str) -> None:
    """A worker would take it for one, and ack the message."""
    with broker.client() as client:
        client.create_topic(topic, value_type="json")
        client.publish(topic, {"id": 3, "amounts": [1] * 600_000})
        (message,) = client.browse(topic)
        for read in (message.json, lambda: message.value_text):
            with pytest.raises(InvalidArgument, match=r"message 0-0 .*client\.open\(message\) reads it"):
                read()
        with client.open(message) as payload:
            assert json.loads(payload.read())["id"] == 3


async def test_large_payloads_go_and_come_by_reference(broker: InMemoryBroker, topic: str) -> None:
    large = bytes(range(256)) * 20_000
    async with broker.async_client() as client:
        await client.create_topic(topic)
        await client.publish(topic, large, key="bytes")
        await client.publish(topic, io.BytesIO(large), key="file")
        upload = await client.upload(topic, large)
        await client.publish(topic, upload, key="upload")
        await client.publish_table(topic, pa.table({"v": ["small", large]}), value="v")
        messages = [each async for each in client.browse(topic)]
        assert [each.ref is not None for each in messages] == [True, True, True, False, True]
        for message in messages:
            if message.ref is not None:
                assert message.value is None
                assert message.ref.sha256 == hashlib.sha256(large).hexdigest()
                async with client.open(message) as payload:
                    assert await payload.read() == large


async def test_starting_from_a_time(broker: InMemoryBroker, topic: str) -> None:
    async with broker.async_client() as client:
        await client.create_topic(topic)
        await client.publish(topic, "a")
        between = await _pause(client, topic)
        await client.publish(topic, "b")
        assert [each.value async for each in client.browse(topic, from_=between)] == [b"b"]


async def _pause(client: Any, topic: str) -> datetime:
    """A moment that is certainly after all published messages."""
    newest = [each.timestamp async for each in client.browse(topic)][-1]
    while datetime.now(UTC) <= newest:
        await asyncio.sleep(0.001)
    moment = datetime.now(UTC)
    while datetime.now(UTC) <= moment:
        await asyncio.sleep(0.001)
    return moment


async def test_administration(broker: InMemoryBroker, topic: str) -> None:
    async with broker.async_client() as client:
        created = await client.create_topic(topic, segments=3, retention={"seconds": 3600})
        assert created.config["retention"]["seconds"] == 3600
        assert [each.state for each in created.segments] == ["open"] * 3
        assert (await client.create_topic(topic, retention={"seconds": 60})).config["retention"]["seconds"] == 60
        assert topic in [each.topic async for each in client.topics()]
        route = await client.route(topic)
        assert [each.range for each in route.segments] == [each.range for each in created.segments]
        cluster = await client.cluster()
        assert cluster.brokers[0].url == broker.url
        assert cluster.leader == cluster.brokers[0].broker
        await client.publish(topic, "v")
        assert [each.count async for each in client.files(topic)] == [1]
        await client.delete_topic(topic)
        with pytest.raises(TopicNotFound):
            await client.topic(topic)


async def test_what_the_broker_refuses_has_its_exception(broker: InMemoryBroker, topic: str) -> None:
    async with broker.async_client() as client:
        await client.create_topic(topic)
        with pytest.raises(InvalidConfig, match="retention"):
            await client.create_topic("other", retentoin={"seconds": 1})
        with pytest.raises(Conflict):
            await client.create_topic(topic, value_type="json")
        with pytest.raises(InvalidMarker):
            await anext(client.browse(topic, marker="forged"))
        with pytest.raises(InvalidRequest):
            await anext(client.browse(topic, from_="yesterday"))
        with pytest.raises(InvalidReference):
            await client.publish(topic, Upload("nope", 1, "0" * 64))
        with pytest.raises(TopicNotFound):
            await client.publish("missing", "v")
        assert [each async for each in client.browse(topic)] == []


async def test_a_request_above_the_limit_is_refused_with_the_limit() -> None:
    with InMemoryBroker(max_body_bytes=100_000) as small:
        async with small.async_client() as client:
            await client.create_topic("t")
            with pytest.raises(BodyTooLarge) as caught:
                await client.publish_many("t", [bytes(50_000)] * 3)
            assert caught.value.limit_bytes == 100_000


def test_invalid_settings_are_refused_before_the_start() -> None:
    with pytest.raises(ValueError, match="max_body_byte"):
        InMemoryBroker(max_body_byte=1)


async def test_closing_a_client_ends_its_subscription(broker: InMemoryBroker, topic: str) -> None:
    client = broker.async_client()
    await client.create_topic(topic)
    subscription = client.subscribe(topic)
    waiting = asyncio.create_task(anext(subscription))
    async with asyncio.timeout(5):
        while subscription.marker is None:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)  # either way it must end; this way it most likely waits at the broker
        await client.aclose()
        with pytest.raises(ClientClosed):
            await waiting


async def test_a_broker_stops_while_somebody_subscribes() -> None:
    with InMemoryBroker() as broker:
        client = broker.async_client(retry=Retry(give_up_after_seconds=0))
        await client.create_topic("t")
        await client.publish("t", "v")
        subscription = client.subscribe("t", from_="earliest")
        assert (await anext(subscription)).value == b"v"
        waiting = asyncio.create_task(anext(subscription))
        await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(NoConnection):
        await client.topic("t")
    await client.aclose()


FORGETFUL = """
import sys, threading
from braidmq import Client
client = Client(sys.argv[1])
client.create_topic("forgetful")
producer = client.producer("forgetful")
print(producer.send("v").result().position)
subscription = client.subscribe("forgetful")
threading.Thread(target=lambda: next(subscription), daemon=True).start()
"""


def test_a_program_that_closes_nothing_ends(broker: InMemoryBroker) -> None:
    command = [sys.executable, "-c", FORGETFUL, broker.url]
    ended = subprocess.run(command, env=child_environment(), capture_output=True, text=True, timeout=20)
    assert (ended.returncode, ended.stdout) == (0, "0-0\n")


def test_files_are_read_without_the_broker(tmp_path: Any, topic: str) -> None:
    with BrokerProcess(data=tmp_path) as process, Client(process.url) as client:
        client.create_topic(topic, segments=2)
        client.publish_many(topic, [OutgoingMessage(str(n), str(n)) for n in range(100)])
        values: list[bytes] = []
        for file in client.files(topic):
            table = pq.read_table(urllib.parse.urlparse(file.uri).path, columns=["value"], partitioning=None)
            assert table.num_rows == file.count
            values += table["value"].to_pylist()
    assert sorted(values) == sorted(b"%d" % n for n in range(100))
