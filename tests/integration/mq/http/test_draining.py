"""A broker that drains waits for no read: what takes long is cut off, and whoever reads goes on elsewhere."""

import asyncio

import orjson
import pytest

from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Fetched
from mq.limits import reads
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem

MESSAGES = "/v1/topics/t/messages"
SEGMENT = "/v1/topics/t/segments/0/messages"
SECONDS = 5.0
"""Of what takes no time at all."""


class StallingStore(ForwardingStore):
    """Once it stalls, segment files are read for ever; `asked` is set when one is."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.stalls = False
        self.asked = asyncio.Event()

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        """As `Store.get`."""
        if self.stalls and key.endswith(".parquet"):
            self.asked.set()
            await asyncio.Event().wait()
        return await self.inner.get(key, start=start, stop=stop)


@pytest.fixture
async def inner() -> MemoryStore:
    """A topic of an earlier life, so that nothing of it is in a broker's memory."""
    store = MemoryStore()
    async with http_broker(store) as broker:
        (await broker.client.put("/v1/topics/t", json={})).raise_for_status()
        for value in range(3):
            (await broker.client.post(MESSAGES, json={"messages": [{"value": value}]})).raise_for_status()
    return store


async def drain(broker: HttpBroker) -> None:
    async with asyncio.timeout(SECONDS):
        await broker.broker.drain()


async def test_a_stream_in_the_middle_of_a_page_ends_at_once_with_where_it_is(inner: MemoryStore) -> None:
    store = StallingStore(inner)
    async with http_broker(store) as broker:
        await broker.end_offsets("t")  # so that it is the file for which it waits
        store.stalls = True
        params = {"from": "earliest"}
        headers = {"accept": "application/x-ndjson"}
        path = "/v1/topics/t/subscribe"
        async with broker.client.stream("GET", path, params=params, headers=headers) as stream:
            lines = stream.aiter_lines()
            assert "keepalive" in orjson.loads(await anext(lines))
            await asyncio.wait_for(store.asked.wait(), SECONDS)
            await drain(broker)
            async with asyncio.timeout(SECONDS):
                last = orjson.loads(await anext(lines))
                assert [line async for line in lines] == []
        assert last["end"] == "draining"
        store.stalls = False
        page = (await broker.client.get(MESSAGES, params={"marker": last["marker"]})).raise_for_status().json()
        assert [message["value"] for message in page["messages"]] == [0, 1, 2]


@pytest.mark.parametrize("path", [MESSAGES, SEGMENT])
async def test_a_page_has_its_grace(path: str, inner: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then whoever asked for it asks another broker."""
    store = StallingStore(inner)
    async with http_broker(store) as broker:
        monkeypatch.setattr(reads, "GRACE_SECONDS", 0.3)
        await broker.end_offsets("t")
        store.stalls = True
        reading = asyncio.create_task(broker.client.get(path))
        await asyncio.wait_for(store.asked.wait(), SECONDS)
        await drain(broker)
        assert not (await asyncio.wait([reading], timeout=0.1))[0]
        async with asyncio.timeout(SECONDS):
            problem = check_problem(await reading, 503, "draining", "read through another")
        assert problem["retryable"]
        store.stalls = False
        later = await broker.client.get(path)
        assert [message["value"] for message in later.raise_for_status().json()["messages"]] == [0, 1, 2]
