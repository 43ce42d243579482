"""A real broker behind a proxy that loses answers: what is published is stored once, in order."""

import asyncio
import os
from typing import Any

import pyarrow as pa
import pytest

from braidmq import AsyncClient, Client, ClientClosed, Position, TopicNotFound, blocking_publish
from braidmq.testing import InMemoryBroker
from braidmq.transport.plain_connection import NotPlain, PlainConnection
from tests.support.broker.answer_dropper import answer_dropper


async def test_lost_answers_of_single_calls_double_nothing(broker: InMemoryBroker, topic: str) -> None:
    async with answer_dropper(broker.url) as proxy, AsyncClient(proxy.url, direct=False) as client:
        await client.create_topic(topic)
        for n in range(10):
            proxy.drop = n % 3
            assert await client.publish(topic, str(n), key="k") == Position(0, n)
        proxy.drop = 2
        assert (await client.publish_many(topic, ["10", "11"])).count == 2
        proxy.drop = 1
        table = pa.table({"v": ["12", "13"]})
        assert (await client.publish_table(topic, table, value="v")).positions[0].offset == 12
        stored = [message.value async for message in client.browse(topic)]
    assert stored == [b"%d" % n for n in range(14)]
    assert proxy.dropped == 12


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each try on a plain connection had an answer."""
    tries: list[bool] = []
    post = PlainConnection.post

    def noted(*arguments: Any) -> bytes:
        try:
            answer = post(*arguments)
        except NotPlain:
            tries.append(False)
            raise
        tries.append(True)
        return answer

    monkeypatch.setattr(PlainConnection, "post", noted)
    return tries


async def test_lost_answers_of_blocking_publishes_double_nothing(
    broker: InMemoryBroker, topic: str, plain: list[bool]
) -> None:
    """They go straight from the caller's thread, once, and then by way of the client's loop."""
    async with answer_dropper(broker.url) as proxy:

        def publish() -> tuple[list[Position], list[bytes | None]]:
            with Client(proxy.url, direct=False) as client:
                client.create_topic(topic)
                positions = []
                for n in range(12):
                    proxy.drop = n % 3
                    positions.append(client.publish(topic, str(n), key="k"))
                with pytest.raises(TopicNotFound):
                    client.publish("no-such-topic", "1")
                return positions, [message.value for message in client.browse(topic)]

        positions, stored = await asyncio.to_thread(publish)
    assert positions == [Position(0, n) for n in range(12)] and stored == [b"%d" % n for n in range(12)]
    assert plain == [*([False, False, True] * 4)[:11], False], (
        "the first goes by way of the loop; a refusal is not plain"
    )
    assert proxy.dropped == 12


class _Silent:
    """A connection without answers; `tries` counts them."""

    tries = 0

    def __init__(self, *arguments: Any, **named: Any) -> None: ...

    def post(self, *arguments: Any) -> bytes:
        _Silent.tries += 1
        raise NotPlain("timed out")

    def close(self) -> None: ...


@pytest.mark.parametrize(("slow_seconds", "tries"), [(60.0, 1), (0.0, 3)])
async def test_behind_a_slow_broker_not_each_message_is_sent_twice(
    broker: InMemoryBroker, topic: str, monkeypatch: pytest.MonkeyPatch, slow_seconds: float, tries: int
) -> None:
    """Each was: once until its time was over, and once more by way of the loop."""
    monkeypatch.setattr(blocking_publish, "PlainConnection", _Silent)
    monkeypatch.setattr(blocking_publish, "TRY_SECONDS", 0.0)
    monkeypatch.setattr(blocking_publish, "SLOW_SECONDS", slow_seconds)
    monkeypatch.setattr(_Silent, "tries", 0)

    def publish() -> list[Position]:
        with Client(broker.url) as client:
            client.create_topic(topic)
            return [client.publish(topic, str(n)) for n in range(4)]

    assert await asyncio.to_thread(publish) == [Position(0, n) for n in range(4)]
    assert _Silent.tries == tries


async def test_threads_share_no_connection(broker: InMemoryBroker, topic: str, plain: list[bool]) -> None:
    def publish(client: Client, thread: int) -> None:
        for n in range(20):
            client.publish(topic, f"{thread}-{n}", key=f"{thread}")

    with Client(broker.url) as client:
        await asyncio.to_thread(client.create_topic, topic, segments=3)
        await asyncio.to_thread(client.publish, topic, "first")
        await asyncio.gather(*(asyncio.to_thread(publish, client, thread) for thread in range(8)))
        stored = [message.value for message in await asyncio.to_thread(list, client.browse(topic))]
        await asyncio.to_thread(client.close)
    assert sorted(stored) == sorted([b"first", *(b"%d-%d" % (thread, n) for thread in range(8) for n in range(20))])
    for thread in range(8):
        own = [value for value in stored if value.startswith(b"%d-" % thread)]
        assert own == [b"%d-%d" % (thread, n) for n in range(20)]
    assert plain == [True] * 160


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"headers": {"a": "b"}}, id="headers"),
        pytest.param({"value": None}, id="null"),
        pytest.param({"value": {"a": 1}}, id="JSON"),
        pytest.param({"value": b"x" * 40_000}, id="large"),
        pytest.param({"key": "k" * 400}, id="key"),
    ],
)
async def test_other_messages_go_by_way_of_the_loop(
    broker: InMemoryBroker, topic: str, plain: list[bool], given: dict[str, Any]
) -> None:
    def publish() -> None:
        with Client(broker.url) as client:
            client.create_topic(topic)
            for _ in range(2):
                client.publish(topic, **{"value": "v", **given})

    await asyncio.to_thread(publish)
    assert plain == []


def _told_in_a_fork(client: Client, topic: str) -> str:
    """What a forked process is told by the client of its parent."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            client.publish(topic, "of the child")
            told = "it was published"
        except ClientClosed as error:
            told = str(error)
        finally:
            client.close()
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(child, 0)
    return told


async def test_a_forked_process_shares_no_connection_and_no_sequence(broker: InMemoryBroker, topic: str) -> None:
    """Both would use the same sequence: one of two messages would count as a repetition of the other."""
    with Client(broker.url) as client:
        await asyncio.to_thread(client.create_topic, topic)
        for n in range(3):
            await asyncio.to_thread(client.publish, topic, str(n))
        async with asyncio.timeout(20):
            told = await asyncio.to_thread(_told_in_a_fork, client, topic)
        assert "before the process was forked" in told and "make a client in each process" in told
        assert await asyncio.to_thread(client.publish, topic, "3") == Position(0, 3)
        stored = [message.value for message in await asyncio.to_thread(list, client.browse(topic))]
    assert stored == [b"0", b"1", b"2", b"3"]


async def test_lost_answers_of_a_producer_double_nothing_and_keep_each_keys_order(
    broker: InMemoryBroker, topic: str
) -> None:
    async with answer_dropper(broker.url) as proxy, AsyncClient(proxy.url, direct=False) as client:
        await client.create_topic(topic, segments=4)
        async with client.producer(topic, linger_seconds=0) as producer:
            receipts = []
            for n in range(300):
                if n % 20 == 0:
                    await producer.flush()
                    proxy.drop = 1
                receipts.append(await producer.send(str(n), key=None if n % 5 == 0 else str(n % 7)))
        proxy.drop = 0
        stored = [message async for message in client.browse(topic)]
    assert proxy.dropped > 10
    for key in {message.key for message in stored}:
        numbers = [int(message.value or b"") for message in stored if message.key == key]
        expected = [n for n in range(300) if (None if n % 5 == 0 else b"%d" % (n % 7)) == key]
        assert (sorted(numbers) if key is None else numbers) == expected
    value_at = {(message.segment, message.offset): message.value for message in stored}
    for n, receipt in enumerate(receipts):
        position = (await receipt).position
        assert position is None or value_at[position.segment, position.offset] == b"%d" % n


async def test_a_producer_goes_straight_to_the_owner(broker: InMemoryBroker, topic: str) -> None:
    """The client is given only the proxy's address; the route names the broker behind it."""
    async with answer_dropper(broker.url) as proxy, AsyncClient(proxy.url) as client:
        await client.create_topic(topic, segments=3)
        await client.publish(topic, "first", key="k")
        while broker.url not in client.urls:  # it is learned in the background, by way of the proxy
            await client.topic(topic)
        proxy.drop = 1_000_000
        async with client.producer(topic) as producer:
            for n in range(100):
                await producer.send(str(n), key=str(n % 10))
        assert (await client.publish(topic, "last", key="k")).offset > 0
        assert broker.url in client.urls
    assert proxy.dropped == 0
