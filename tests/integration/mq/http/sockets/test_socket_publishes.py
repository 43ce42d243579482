"""Publishes over a socket: thousands at once, each answered by its id, and stored as over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pyarrow as pa
import pytest

from filer.clock import SystemClock
from filer.errors import OutcomeUnknown
from filer.segment.writer.pending_request import Waiter
from filer.segment.writer.segment_writer import SegmentWriter
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import FaultKind, ScriptedFaults
from filer.stores.memory_store import MemoryStore
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.socket_client import SocketClient, checked, socket_client

TOPIC, MESSAGES = "/v1/topics/t", "/v1/topics/t/messages"


@pytest.fixture
async def broker() -> AsyncIterator[HttpBroker]:
    async with http_broker(MemoryStore(), maintenance_interval=3600) as running:
        (await running.client.put(TOPIC)).raise_for_status()
        yield running


@pytest.fixture
async def socket(broker: HttpBroker) -> AsyncIterator[SocketClient]:
    async with socket_client(broker.url, "t") as opened:
        yield opened


async def stored(broker: HttpBroker) -> list[dict[str, Any]]:
    answer = await broker.client.get(MESSAGES, params={"limit": 100_000, "max_bytes": 60_000_000})
    found: list[dict[str, Any]] = answer.raise_for_status().json()["messages"]
    return found


async def test_a_socket_says_hello(socket: SocketClient) -> None:
    assert socket.hello["topic"] == "t"
    assert len(socket.hello["consumer"]) == 26
    assert socket.hello["limits"]["message_bytes"] == 8 * 1024 * 1024


async def test_thousands_are_under_way_at_once_and_each_is_answered_by_its_id(
    broker: HttpBroker, socket: SocketClient
) -> None:
    for number in range(5000):
        await socket.send(publish={"key": f"k{number % 7}", "value": f"{number}"})
    await socket.until(lambda: len(socket.answers) == 5000)
    messages = {message["id"]: message["value"] for message in await stored(broker)}
    for id_, answer in socket.answers.items():
        (position,) = answer["ok"]["positions"]
        assert position["count"] == 1
        assert messages[f"{position['segment']}-{position['offset']}"] == f"{id_ - 1}"
    assert list(messages.values()) == [f"{number}" for number in range(5000)]


async def test_what_is_published_is_what_http_would_store(broker: HttpBroker, socket: SocketClient) -> None:
    message = {
        "key": "heron",
        "value": {"length": 112.50},
        "headers": {"a": "b", "c": {"base64": "/w=="}},
        "event_time": "2026-01-02T03:04:05Z",
    }
    over_http = (await broker.client.post(MESSAGES, json={"messages": [message]})).raise_for_status()
    assert (await socket.ok(publish=message)).keys() == over_http.json().keys()
    first, second = ({**each, "id": "", "offset": 0, "timestamp": ""} for each in await stored(broker))
    assert first == second


async def test_strings_in_a_topic_of_json_are_json_strings(broker: HttpBroker, socket: SocketClient) -> None:
    await broker.client.put("/v1/topics/j", json={"value_type": "json"})
    async with socket_client(broker.url, "j") as of_json:
        for publish in ({"value": "123"}, {"key": "k", "value": "true"}, [{"value": "null"}], {"value": 1}):
            await of_json.ok(publish=publish)
    page = (await broker.client.get("/v1/topics/j/messages")).json()
    assert [message["value"] for message in page["messages"]] == ["123", "true", "null", 1]


async def test_wrong_headers_are_refused(broker: HttpBroker, socket: SocketClient) -> None:
    wrong = {"value": "a", "headers": {"Braid-Deliver-At": "soon"}}
    for publish in (wrong, [wrong]):
        await socket.problem("invalid-request", "'Braid-Deliver-At' must be an RFC 3339 time", publish=publish)
    assert await stored(broker) == []


async def test_a_list_is_one_request(broker: HttpBroker, socket: SocketClient) -> None:
    answer = await socket.ok(publish=[{"value": "a"}, {"value_base64": "Yg=="}, {"value": None}])
    assert answer == {"positions": [{"segment": 0, "offset": 0, "count": 3}]}
    assert [message["value"] for message in await stored(broker)] == ["a", "b", None]
    assert await socket.ok(publish=[]) == {"positions": []}


async def test_a_long_list_and_arrow(broker: HttpBroker, socket: SocketClient) -> None:
    values = [f"{number:0200}" for number in range(2000)]
    answer = await socket.ok(publish=[{"value": value} for value in values])
    assert answer["positions"][0]["count"] == 2000
    table = pa.table({"key": pa.array([b"k"] * 3), "value": pa.array([b"x", b"y", b"z"])})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    await socket.connection.send(b'{"id":"arrow","publish":"arrow"}\n' + sink.getvalue().to_pybytes())
    await socket.until(lambda: "arrow" in socket.answers)
    assert socket.answers["arrow"]["ok"]["positions"][0]["count"] == 3
    assert [message["value"] for message in await stored(broker)] == [*values, "x", "y", "z"]


async def test_all_that_comes_keeps_its_order(broker: HttpBroker, socket: SocketClient) -> None:
    kinds = [{"value": "{}"}, [{"value": "{}"}], {"value": "{}", "headers": {"a": "b"}}]
    for number in range(300):
        publish = orjson.loads(orjson.dumps(kinds[number % 3]).replace(b"{}", b"%d" % number))
        await socket.send(publish=publish, **({"producer": "p", "sequence": number} if number % 5 == 0 else {}))
    await socket.until(lambda: len(socket.answers) == 300)
    assert [message["value"] for message in await stored(broker)] == [f"{number}" for number in range(300)]


async def test_a_repeated_publish_is_stored_once(broker: HttpBroker, socket: SocketClient) -> None:
    first = await socket.ok(publish={"value": "a"}, producer="p", sequence=7)
    assert await socket.ok(publish={"value": "a"}, producer="p", sequence=7) == first
    assert len(await stored(broker)) == 1


@pytest.mark.parametrize(
    ("fields", "slug", "part"),
    [
        ({"publish": {"value": "x", "valeu": 1}}, "invalid-request", "did you mean 'value'"),
        ({"publish": {"key": "k"}}, "invalid-request", "exactly one of value"),
        ({"publish": "x"}, "invalid-request", "a list of messages"),
        ({"publish": [1]}, "invalid-request", "publish[0]"),
        ({"publish": {"value": "x"}, "acks": "all"}, "invalid-request", "'stored' or 'replicated'"),
        ({"publish": {"value": "x"}, "acks": "replicated"}, "invalid-request", "2 replicas"),
        ({"publish": {"value": "x"}, "acks": 1}, "invalid-request", "acks must be"),
        ({"publish": {"value": "x"}, "producer": "p"}, "invalid-request", "producer without sequence"),
        ({"publish": {"value": "x"}, "producer": "p", "sequence": "1"}, "invalid-request", "whole number"),
        ({"publish": {"value": "x"}, "producer": 5, "sequence": 1}, "invalid-request", "producer"),
        ({"publish": {"ref": {"upload": "none"}}}, "invalid-reference", "row 0"),
        ({"publish": {"value": "x", "delay_seconds": -1}}, "invalid-request", "delay_seconds"),
    ],
)
async def test_what_is_wrong_with_one_publish_is_its_answer(
    broker: HttpBroker, socket: SocketClient, fields: dict[str, Any], slug: str, part: str
) -> None:
    await socket.problem(slug, part, **fields)
    assert (await socket.ok(publish={"value": "next"}))["positions"]
    assert [message["value"] for message in await stored(broker)] == ["next"]


async def test_a_deleted_topic_takes_no_more(broker: HttpBroker, socket: SocketClient) -> None:
    (await broker.client.delete(TOPIC)).raise_for_status()
    await socket.problem("topic-not-found", publish={"value": "x"})


@pytest.fixture
async def stuck() -> AsyncIterator[tuple[HttpBroker, FailingStore]]:
    """A broker with little room for messages, whose store takes the first file when it is released."""
    faults = ScriptedFaults()
    store = FailingStore(MemoryStore(), faults, clock=SystemClock())
    faults.add("create", FaultKind.HANG, key_part="/segments/")
    async with http_broker(store, front_store_bytes=1024 * 1024) as running:
        yield running, store
        store.release()


async def test_without_room_publishes_are_refused_and_nothing_is_lost(stuck: tuple[HttpBroker, FailingStore]) -> None:
    broker, store = stuck
    (await broker.client.put(TOPIC)).raise_for_status()
    async with socket_client(broker.url, "t") as socket:
        for _ in range(200):
            await socket.send(publish={"value": "x" * 20_000})
        await socket.until(lambda: len(socket.answers) > 100)
        store.release()
        await socket.until(lambda: len(socket.answers) == 200)
        refused = [each["problem"] for each in socket.answers.values() if "problem" in each]
        assert len(refused) > 100
        for problem in refused:
            assert checked(problem, "front-store-full", "send it again later")["retryable"]
        assert len(await stored(broker)) == 200 - len(refused)
        await socket.ok(publish={"value": "x"})
    assert broker.broker.front_store.pending_bytes == 0


async def test_without_room_publishes_wait_where_the_topic_says_so(stuck: tuple[HttpBroker, FailingStore]) -> None:
    broker, store = stuck
    (await broker.client.put(TOPIC, json={"overflow": "block"})).raise_for_status()
    async with socket_client(broker.url, "t") as socket:
        sending = asyncio.create_task(send_all(socket, 200, "x" * 20_000))
        front_store = broker.broker.front_store
        await until(lambda: store.hung == 1 and front_store.pending_bytes > 900_000)
        assert not socket.answers
        store.release()
        await sending
        await socket.until(lambda: len(socket.answers) == 200)
        assert all("ok" in answer for answer in socket.answers.values())
        assert len(await stored(broker)) == 200


async def send_all(socket: SocketClient, count: int, value: str) -> None:
    for _ in range(count):
        await socket.send(publish={"value": value})


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.005)


async def test_through_splits_each_key_keeps_its_order(broker: HttpBroker, socket: SocketClient) -> None:
    keys, splits = [f"k{number}" for number in range(7)], 0
    stop = asyncio.Event()
    sending = asyncio.create_task(send_numbers(socket, keys, stop))
    while splits < 3:
        topic = (await broker.client.get(TOPIC)).json()
        oldest = next(each["segment"] for each in topic["segments"] if each["state"] == "open")
        splits += (await broker.client.post(f"{TOPIC}/segments/{oldest}/split")).is_success
    stop.set()
    count = await sending
    await socket.until(lambda: len(socket.answers) == count)
    assert all("ok" in answer for answer in socket.answers.values())
    by_key: dict[str, list[int]] = {key: [] for key in keys}
    for message in await stored(broker):
        by_key[message["key"]].append(int(message["value"]))
    assert by_key == {key: list(range(at, count, 7)) for at, key in enumerate(keys)}


async def send_numbers(socket: SocketClient, keys: list[str], stop: asyncio.Event) -> int:
    """Publish one number after the other until told to stop; returns how many."""
    number = 0
    while not stop.is_set():
        await socket.send(publish={"key": keys[number % len(keys)], "value": f"{number}"})
        number += 1
        if number % 50 == 0:
            await asyncio.sleep(0)
    return number


class Failing:
    """Has what is appended to a segment fail, as if nobody knew what became of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        self.left, self.error = 0, error
        append = SegmentWriter.append

        def refusing(writer: SegmentWriter, *arguments: Any, **named: Any) -> Waiter:
            if not self.left:
                return append(writer, *arguments, **named)
            self.left -= 1
            refused: Waiter = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(refused.set_exception, self.error)
            return refused

        monkeypatch.setattr(SegmentWriter, "append", refusing)


async def test_a_publish_whose_outcome_is_unknown_is_told_so(
    broker: HttpBroker, socket: SocketClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(monkeypatch, OutcomeUnknown("no answer"))
    failing.left = 1
    answer = await socket.ask(publish={"value": "a"})
    assert answer["problem"]["status"] == 503
    assert not answer["problem"]["retryable"]
    failing.left = 1
    answer = await socket.ask(publish=[{"value": "a"}], producer="p", sequence=1)
    assert answer["problem"]["retryable"], "with a producer it may be sent again"
    assert broker.broker.front_store.pending_bytes == 0


async def test_a_broker_that_drains_answers_what_has_begun(tmp_path: Any) -> None:
    async with http_broker(MemoryStore()) as draining:
        (await draining.client.put(TOPIC)).raise_for_status()
        async with socket_client(draining.url, "t") as socket:
            for number in range(500):
                await socket.send(publish={"value": f"{number}"})
            await socket.until(lambda: len(socket.answers) > 0)
            await draining.broker.drain()
            assert await socket.end() == (1001, "draining")
            done = [answer for answer in socket.answers.values() if "ok" in answer]
            assert len(await stored(draining)) == len(done), "stored without an answer"


async def test_publishes_go_on_when_their_socket_is_gone(broker: HttpBroker) -> None:
    async with socket_client(broker.url, "t") as socket:
        for number in range(100):
            await socket.send(publish={"value": f"{number}"})
        socket.connection.transport.abort()
        await socket.end()
    async with asyncio.timeout(10):
        while broker.broker.front_store.pending_bytes:
            await SystemClock().sleep(0.01)
    values = [message["value"] for message in await stored(broker)]
    assert values == [f"{number}" for number in range(len(values))]
