"""The brokers that tests run in their own process leave nothing behind."""

import asyncio
import gc

import pytest

from filer.stores.memory_store import MemoryStore
from tests.support.broker import http_broker as support
from tests.support.broker.http_broker import HOST, http_broker

LARGE = b"x" * 8 * 1024 * 1024


def open_at(port: int) -> list[asyncio.Transport]:
    """The connections of a server at that port that nobody has closed."""
    transports = [each for each in gc.get_objects() if isinstance(each, asyncio.Transport)]
    found = [each for each in transports if not each.is_closing()]
    return [each for each in found if (each.get_extra_info("sockname") or (HOST, 0))[1] == port]


async def test_a_connection_that_does_not_end_in_time_is_closed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine it is any. Left open, it would be told of in a later test, which had nothing to do with it."""
    monkeypatch.setattr(support, "STOP_SECONDS", 0.1)
    async with http_broker(MemoryStore()) as broker:
        await broker.client.put("/v1/topics/t")
        await broker.client.post("/v1/topics/t/messages", content=LARGE)
        # As much as it takes in; then it reads no more.
        reader, writer = await asyncio.open_connection(HOST, broker.port, limit=1)
        writer.write(f"GET /v1/topics/t/messages HTTP/1.1\r\nHost: {HOST}:{broker.port}\r\n\r\n".encode())
        await reader.readexactly(1)
        assert open_at(broker.port)
    left = open_at(broker.port)
    writer.transport.abort()
    assert not left
