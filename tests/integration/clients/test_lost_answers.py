"""A real broker behind a proxy that loses answers: what is published is stored once, in order."""

import pyarrow as pa

from braidmq import AsyncClient, Position
from braidmq.testing import InMemoryBroker
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
        proxy.drop = 1_000_000
        async with client.producer(topic) as producer:
            for n in range(100):
                await producer.send(str(n), key=str(n % 10))
        assert (await client.publish(topic, "last", key="k")).offset > 0
        assert broker.url in client.urls
    assert proxy.dropped == 0
