"""Every call that publishes takes the times of delivery, and consumers keep them."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from braidmq import OutgoingMessage
from braidmq.testing import InMemoryBroker

HOUR = timedelta(hours=1)


async def test_delayed_and_expired_messages_are_not_handed_out(broker: InMemoryBroker, topic: str) -> None:
    later, before = datetime.now(UTC) + HOUR, datetime.now(UTC) - HOUR / 2
    with broker.client() as blocking:
        blocking.create_topic(topic)
        blocking.publish(topic, b"1", delay=HOUR)
        blocking.publish_many(
            topic, [OutgoingMessage(b"2", deliver_at=later), OutgoingMessage(b"3", expires_at=before)]
        )
        with blocking.producer(topic) as producer:
            producer.send(b"4", delay=HOUR)
            producer.send(b"5", expires_at=before)
            producer.send(b"5b" * 100_000, deliver_at=later)
    async with broker.async_client() as client:
        await client.publish(topic, b"6", deliver_at=later)
        await client.publish_table(topic, pa.table({"v": [b"7"]}), value="v", delay=HOUR)
        async with client.producer(topic) as producing:
            await producing.send(b"8", expires_at=before)
        await client.publish(topic, b"now", delay=timedelta(0), expires_at=later)
        names = [sorted(message.headers) async for message in client.browse(topic)]
        async with client.worker(topic, group="g", idle_seconds=0.3) as worker:
            got = [delivery.value async for delivery in worker]
    assert all(names)
    assert got == [b"now"]
