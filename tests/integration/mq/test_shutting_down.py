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
import uvloop
from prometheus_client import generate_latest

from filer.clock import SystemClock
from filer.stores.memory_store import MemoryStore
from leader.membership.coordinator import InProcessCoordinator
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.process import drain_watch
from mq.process.http_server import HttpServer
from mq.process.listen import Listening
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
                await serve_until_stop(self.broker, [Listening(self.sock)], stop, lambda: None)
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
        ids: list[dict[str, str]] = [{}, {"producer": "p", "sequence": "1"}, {"producer": "p", "sequence": "2"}]
        publishing = [
            asyncio.create_task(client.post("/v1/topics/t/messages", content=b"x", params=each)) for each in ids
        ]
        writer = process.broker.topics["t"].writers[0]
        await until(lambda: writer.accepted_end == 3)
        splitting = asyncio.create_task(client.post("/v1/topics/t/segments/0/split"))
        await until(lambda: writer.is_sealing)
        process.asked.set()
        left = "segment 0 of topic 't' (sealing, 3 messages not stored)"
        with pytest.raises(DrainTimeout, match=re.escape(f"within 0.5 seconds ({left}")):
            await asyncio.wait_for(running, SECONDS)
        told = [(await each).json() for each in publishing]
        cut_off = (await splitting).json()
    assert f'left="{left}, ' in caplog.text and "POST /v1/topics/t/messages" in caplog.text
    # The store may have them or not: a publisher without an id cannot send them again.
    assert [(each["type"], each["retryable"]) for each in told] == [
        ("urn:braidmq:store-unavailable", False),
        ("urn:braidmq:store-unavailable", True),
        ("urn:braidmq:store-unavailable", True),
    ]
    assert "not stored before this broker ended" in told[0]["detail"]
    assert (cut_off["type"], cut_off["retryable"]) == ("urn:braidmq:draining", True)
    assert not [record for record in caplog.records if record.exc_info and record.name != "asyncio"]


async def test_a_publish_that_comes_when_the_time_is_over_is_not_appended() -> None:
    """Its body's end arrives in the last second, which others have to take their answers."""
    process = Process(drain_timeout=0.1)
    running = asyncio.create_task(process.run())
    await process.started()
    process.store.hold()
    async with httpx.AsyncClient(base_url=process.url, timeout=SECONDS, trust_env=False) as client:
        held = asyncio.create_task(client.post("/v1/topics/t/messages", content=b"x"))
        writer = process.broker.topics["t"].writers[0]
        await until(lambda: writer.accepted_end == 1)
        late, body = await asyncio.open_connection("127.0.0.1", process.port)
        with contextlib.closing(body):
            body.write(b"POST /v1/topics/t/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\nx")
            await until(lambda: "braidmq_connections 2.0" in connections(process.broker))
            process.asked.set()
            await held
            body.write(b"x")
            answer = await late.read()
    with pytest.raises(DrainTimeout):
        await asyncio.wait_for(running, SECONDS)
    assert writer.accepted_end == 1
    assert b"503" in answer.split(b"\r\n")[0] and b"nothing of this was stored" in answer


def connections(broker: Broker) -> str:
    return generate_latest(broker.metrics.registry).decode()


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


@pytest.mark.parametrize("rounds", range(6))
def test_a_connection_that_is_being_accepted_does_not_hold_it_up(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop, a broker's own, accepts it so many rounds before the server ends the connections it knows."""
    shutdown = HttpServer.shutdown
    process = Process()
    late = contextlib.ExitStack()

    async def begin_late(self: HttpServer, sockets: list[socket.socket] | None = None) -> None:
        late.enter_context(socket.create_connection(("127.0.0.1", process.port)))
        for _ in range(rounds):
            await asyncio.sleep(0)
        await shutdown(self, sockets)

    async def ends_in_time() -> bool:
        running = asyncio.create_task(process.run())
        await process.started()
        process.asked.set()
        await asyncio.wait([running], timeout=SECONDS / 2)
        in_time = running.done()
        late.close()
        await running
        return in_time

    monkeypatch.setattr(HttpServer, "shutdown", begin_late)
    with late:
        assert uvloop.run(ends_in_time())
