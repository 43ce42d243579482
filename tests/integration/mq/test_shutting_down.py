"""A broker that is asked to stop, and cannot stop yet, logs what it waits for."""

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from filer.clock import SystemClock
from filer.stores.memory_store import MemoryStore
from leader.membership.coordinator import InProcessCoordinator
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.process import drain_watch
from mq.process.server import DrainTimeout, serve_until_stop
from mq.process.stop_signals import StopSignals
from tests.support.cluster.http_cluster import HeldStore

SECONDS = 10.0


class Process:
    """What a broker's process does: `asked` to stop it drains. `url` is its address."""

    def __init__(self, **settings: Any) -> None:
        self.store = HeldStore(MemoryStore())
        self.asked = asyncio.Event()
        self.sock = socket.socket()
        self.sock.bind(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.broker = Broker(self.store, SystemClock(), InProcessCoordinator(), BrokerSettings(**settings))

    async def run(self) -> None:
        stop = cast(StopSignals, SimpleNamespace(asked=self.asked))
        try:
            await self.broker.start(self.url)
            with contextlib.closing(self.sock):
                await serve_until_stop(self.broker, self.sock, stop, lambda: None)
        finally:
            await self.broker.close()

    async def started(self) -> None:
        await until(lambda: self.broker.readiness.ready)
        await self.broker.administration.put("t", {})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_watch, "LOG_SECONDS", 0.05)


async def test_it_names_the_segments_and_gives_up_in_time(caplog: pytest.LogCaptureFixture) -> None:
    process = Process(drain_timeout=0.5)
    running = asyncio.create_task(process.run())
    await process.started()
    process.store.hold()
    async with httpx.AsyncClient(base_url=process.url, timeout=SECONDS, trust_env=False) as client:
        publishing = [asyncio.create_task(client.post("/v1/topics/t/messages", content=b"x")) for _ in range(3)]
        writer = process.broker.topics["t"].writers[0]
        await until(lambda: writer.accepted_end == 3)
        process.asked.set()
        left = "segment 0 of topic 't' (open, 3 messages not stored)"
        with pytest.raises(DrainTimeout, match=re.escape(f"within 0.5 seconds ({left}")):
            await asyncio.wait_for(running, SECONDS)
        await asyncio.gather(*publishing, return_exceptions=True)
    assert f'left="{left}, ' in caplog.text and "POST /v1/topics/t/messages" in caplog.text


async def test_it_names_the_requests_and_ends_with_the_last(caplog: pytest.LogCaptureFixture) -> None:
    """All is stored, and somebody does not take an answer."""
    process = Process()
    running = asyncio.create_task(process.run())
    await process.started()
    async with httpx.AsyncClient(base_url=process.url, timeout=SECONDS, trust_env=False) as client:
        (await client.post("/v1/topics/t/messages", content=b"x" * 30_000_000)).raise_for_status()
    reader, writer = await asyncio.open_connection("127.0.0.1", process.port, limit=1024)
    with contextlib.closing(writer):
        writer.write(b"GET /v1/topics/t/messages HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await reader.readexactly(1)
        process.asked.set()
        await until(lambda: 'left="GET /v1/topics/t/messages' in caplog.text)
        assert not running.done()
    await asyncio.wait_for(running, SECONDS)
    assert "segment" not in caplog.text
