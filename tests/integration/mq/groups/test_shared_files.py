"""Where puts cost money, the records of groups share files."""

import asyncio

from filer.keys import GROUPS_TOPIC
from filer.stores.memory_store import MemoryStore
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.cluster.http_cluster import until

T = "/v1/topics/t"


async def make(broker: HttpBroker, group: str) -> None:
    (await broker.client.put(f"{T}/groups/{group}")).raise_for_status()


async def test_records_of_groups_share_files() -> None:
    """A coordinator that began is in no hurry: the second file waits for the interval, and takes all until then."""
    async with http_broker(MemoryStore(), flush_interval=10) as broker:
        await broker.client.put(T)
        await make(broker, "first")
        (writer,) = (await broker.broker.topics.topic(GROUPS_TOPIC)).writers.values()
        stored_end = writer.accepted_end
        making = []
        for group in ("second", "third"):
            end = writer.accepted_end
            making.append(asyncio.create_task(make(broker, group)))

            async def has_come(before: int = end) -> bool:
                return writer.accepted_end > before

            await until(has_come)
        assert writer.index.end == stored_end
        assert not any(each.done() for each in making)
        files = len(writer.index.files)
        await writer.flush()
        await asyncio.gather(*making)
        assert len(writer.index.files) == files + 1
