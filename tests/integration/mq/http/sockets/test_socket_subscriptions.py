"""Subscriptions over a socket: no more than the credit, and an end that says where to go on."""

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

from filer.clock import ManualClock
from filer.stores.memory_store import MemoryStore
from mq.http.sockets.credit import MOST_CREDIT
from mq.http.sockets.subscriptions import MOST_SUBSCRIPTIONS
from tests.support.broker.group_requests import publish
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.raw_socket import frame, raw_socket
from tests.support.broker.socket_client import SocketClient, checked, socket_client

TOPIC = "/v1/topics/t"


@pytest.fixture
async def broker() -> AsyncIterator[HttpBroker]:
    async with http_broker(MemoryStore(), maintenance_interval=3600) as running:
        (await running.client.put(TOPIC)).raise_for_status()
        yield running


@pytest.fixture
async def socket(broker: HttpBroker) -> AsyncIterator[SocketClient]:
    async with socket_client(broker.url, "t") as opened:
        yield opened


async def values(socket: SocketClient, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        found += [message["value"] for message in (await socket.delivery())["messages"]]
    return found


async def test_what_is_there_and_what_comes_is_delivered_in_order(broker: HttpBroker, socket: SocketClient) -> None:
    await publish(broker, *"abc")
    begun = await socket.ok(subscribe={"from": "earliest", "credit": 100})
    assert begun["subscription"] == 1
    assert await values(socket, 3) == ["a", "b", "c"]
    for value in "def":
        await socket.ok(publish={"value": value})
    assert await values(socket, 3) == ["d", "e", "f"]


async def test_only_what_credit_allows_is_delivered(broker: HttpBroker, socket: SocketClient) -> None:
    await publish(broker, *[f"{number}" for number in range(50)])
    await socket.ok(subscribe={"from": "earliest"})
    await socket.ok(publish={"value": "50"})
    assert not socket.delivered, "nothing comes without credit"
    assert await socket.ok(credit=7) == {"credit": 7}
    first = await socket.delivery()
    assert [message["value"] for message in first["messages"]] == [f"{number}" for number in range(7)]
    assert first["credit"] == 0
    await socket.ok(publish={"value": "51"})
    assert not socket.delivered
    await socket.connection.send('{"credit": 100, "subscription": 1}')
    assert await values(socket, 45) == [f"{number}" for number in range(7, 52)]


async def test_who_gives_no_credit_holds_nothing_at_the_broker(broker: HttpBroker) -> None:
    async with socket_client(broker.url, "t") as idle, socket_client(broker.url, "t") as busy:
        await idle.ok(subscribe={"from": "earliest"})
        for _ in range(10_000):
            await busy.send(publish={"value": "x"})
        await busy.until(lambda: len(busy.answers) == 10_000)
        assert broker.broker.read_budget.held_bytes == 0
        assert not idle.delivered
        await idle.ok(credit=10_000)
        assert len(await values(idle, 10_000)) == 10_000


async def test_who_does_not_read_is_sent_no_more_than_a_few_pages(broker: HttpBroker) -> None:
    for _ in range(40):
        await broker.client.post(f"{TOPIC}/messages", json={"messages": [{"value": "x" * 50_000}] * 10})
    held = broker.broker.read_budget
    async with raw_socket(broker.port, buffer_bytes=2048) as socket:
        await socket.send(frame(b'{"id":1,"subscribe":{"from":"earliest","credit":1000}}'))
        seen: list[int] = []
        async with asyncio.timeout(20):
            while len(seen) < 20 or not all(0 < each < 1024 * 1024 for each in seen[-20:]):
                seen.append(held.held_bytes)
                await asyncio.sleep(0.005)
        assert max(seen) < 8 * 1024 * 1024
    async with asyncio.timeout(20):
        while held.held_bytes:
            await asyncio.sleep(0.005)


async def test_from_a_marker_and_through_another_socket(broker: HttpBroker, socket: SocketClient) -> None:
    await publish(broker, *"abcd")
    await socket.ok(subscribe={"from": "earliest", "credit": 2})
    marker = (await socket.delivery())["marker"]
    async with socket_client(broker.url, "t") as other:
        await other.ok(subscribe={"marker": marker, "credit": 10})
        assert await values(other, 2) == ["c", "d"]


async def test_arrow_comes_in_binary_messages(broker: HttpBroker, socket: SocketClient) -> None:
    await publish(broker, *"abc")
    await socket.ok(subscribe={"from": "earliest", "credit": 10, "format": "arrow"})
    found = await socket.delivery("arrow")
    assert (found["subscription"], found["count"], found["credit"]) == (1, 3, 7)
    table = pa.ipc.open_stream(io.BytesIO(found["arrow"])).read_all()
    assert table["value"].to_pylist() == [b"a", b"b", b"c"]
    await socket.ok(unsubscribe=1)
    end = await socket.delivery("end")
    assert (end["end"], end["marker"]) == ("unsubscribed", found["marker"])


async def test_several_subscriptions_of_one_socket(broker: HttpBroker, socket: SocketClient) -> None:
    await publish(broker, *"ab")
    await socket.ok(id="one", subscribe={"from": "earliest", "credit": 1})
    await socket.ok(id="two", subscribe={"from": "earliest"})
    assert (await socket.delivery())["subscription"] == "one"
    await socket.problem("invalid-request", "name one", credit=5)
    await socket.ok(credit=5, subscription="two")
    assert await values(socket, 2) == ["a", "b"]
    await socket.ok(unsubscribe="two")
    await socket.problem("subscription-not-found", "two", id="x", credit=5, subscription="two")
    await socket.ok(credit=5)
    assert await values(socket, 1) == ["b"]


async def test_subscriptions_have_a_limit(socket: SocketClient) -> None:
    for _ in range(MOST_SUBSCRIPTIONS):
        await socket.ok(subscribe={})
    await socket.problem("too-many-subscriptions", str(MOST_SUBSCRIPTIONS), subscribe={})
    await socket.ok(unsubscribe=1)
    await socket.ok(subscribe={})


@pytest.mark.parametrize(
    ("fields", "slug", "part"),
    [
        ({"subscribe": 1}, "invalid-request", "is an object"),
        ({"subscribe": {"frm": "latest"}}, "invalid-request", "did you mean 'from'"),
        ({"subscribe": {"from": "yesterday"}}, "invalid-request", "earliest, latest"),
        ({"subscribe": {"marker": "nonsense"}}, "invalid-marker", ""),
        ({"subscribe": {"marker": "x", "from": "latest"}}, "invalid-request", "not both"),
        ({"subscribe": {"credit": -1}}, "invalid-request", "credit"),
        ({"subscribe": {"credit": MOST_CREDIT + 1}}, "invalid-request", "credit"),
        ({"subscribe": {"credit": 1.5}}, "invalid-request", "credit"),
        ({"subscribe": {"format": "xml"}}, "invalid-request", "format"),
        ({"subscribe": {"group": "g"}}, "invalid-request", "mode"),
        ({"subscribe": {"mode": "queue"}}, "invalid-request", "group"),
        ({"subscribe": {"group": "g", "mode": "queue", "from": "latest"}}, "invalid-request", "from is not for"),
        ({"subscribe": {"group": "g/h", "mode": "queue"}}, "invalid-name", "group"),
        ({"credit": 5}, "invalid-request", "0 subscriptions"),
        ({"credit": 5, "subscription": 99}, "subscription-not-found", "99"),
        ({"credit": 5, "subscription": [1]}, "subscription-not-found", ""),
        ({"unsubscribe": 99}, "subscription-not-found", "99"),
        ({"unsubscribe": None}, "invalid-request", "0 subscriptions"),
    ],
)
async def test_what_is_wrong_is_the_answer(socket: SocketClient, fields: dict[str, Any], slug: str, part: str) -> None:
    await socket.problem(slug, part, **fields)
    await socket.ok(publish={"value": "x"})


@pytest.mark.parametrize("credit", [0, -5, "5", True, 1.5, MOST_CREDIT + 1])
async def test_credit_is_a_number_of_messages(socket: SocketClient, credit: Any) -> None:
    await socket.ok(subscribe={})
    await socket.problem("invalid-request", "credit", credit=credit)
    await socket.connection.send('{"credit": 0}')
    await socket.until(lambda: len(socket.told) == 1)
    checked(socket.told[0], "invalid-request", "credit")


async def test_a_broker_that_drains_says_where_to_go_on() -> None:
    async with http_broker(MemoryStore()) as draining:
        (await draining.client.put(TOPIC)).raise_for_status()
        async with socket_client(draining.url, "t") as socket:
            await publish(draining, "a")
            await socket.ok(subscribe={"from": "earliest", "credit": 5})
            marker = (await socket.delivery())["marker"]
            await draining.broker.drain()
            end = await socket.delivery("end")
            assert (end["end"], end["marker"]) == ("draining", marker)
            assert await socket.end() == (1001, "draining")


async def test_the_end_of_a_topic_is_told(broker: HttpBroker, socket: SocketClient) -> None:
    await socket.ok(subscribe={"from": "earliest", "credit": 5})
    (await broker.client.delete(TOPIC)).raise_for_status()
    assert (await socket.delivery("end"))["end"] == "deleted"


async def test_expired_messages_are_told_with_the_oldest_there_are() -> None:
    clock = ManualClock()
    settings = {"maintenance_interval": 5, "report_interval": 60, "grace": 1}
    async with http_broker(MemoryStore(clock=clock), clock=clock, **settings) as short:
        (await short.client.put(TOPIC, json={"retention": {"seconds": 60}})).raise_for_status()
        async with socket_client(short.url, "t") as socket:
            await publish(short, "old")
            await socket.ok(subscribe={"from": "earliest"})
            await clock.advance(3600)
            await publish(short, "new")
            async with asyncio.timeout(30):
                while (await short.client.get(TOPIC)).json()["segments"][0]["start_offset"] < 1:
                    await clock.advance(5)
                    await asyncio.sleep(0.01)
            await socket.ok(credit=5)
            end = await socket.delivery("end")
            assert end["end"] == "expired"
            checked(end["problem"], "position-expired", "older than what is kept")
            assert end["problem"]["earliest"] == end["marker"]
            await socket.ok(subscribe={"marker": end["marker"], "credit": 5})
            assert await values(socket, 1) == ["new"]
