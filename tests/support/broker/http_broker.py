"""A broker behind a real uvicorn in this process, on a free port.

async with http_broker(MemoryStore()) as broker:
    await broker.client.put("/v1/topics/t")
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from filer.clock import Clock, SystemClock
from filer.stores.decorators.store_health import StoreHealth
from filer.stores.store import Store, StreamingStore
from filer.topic.incarnation import Incarnation
from leader.membership.coordinator import Coordinator, InProcessCoordinator
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.http.app import create_peer_asgi, create_served
from mq.http.fast_path.fast_publisher import FastPublisher
from mq.machine_users.kernel_users import KernelUsers
from mq.peer_keys.kept_keys import kept_keys
from mq.peers.transport import PeerTransport
from mq.process.connections.fast_protocol import served_protocol
from mq.process.connections.tls_handshake import TlsDoor
from mq.process.connections.watch import ConnectionWatch
from mq.process.http_server import connection_watches
from mq.process.listen import Listening
from mq.tls.broker_certificates import BrokerCertificates
from mq.tracing.tracer import NO_TRACER, Tracer
from tests.support.broker.described_answers import DescribedClient
from tests.support.net.served_tests import note_server

HOST = "127.0.0.1"
TIMEOUT_SECONDS = 30
STOP_SECONDS = 10
# The event loop has a transport so many rounds after it has accepted a connection.
ACCEPT_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class HttpBroker:
    """A running broker, its address, and a client for it. `peer_url` is where brokers have a port of their own."""

    broker: Broker
    url: str
    port: int
    client: httpx.AsyncClient
    peer_url: str = ""

    async def raw(self, data: bytes) -> bytes:
        """Send these bytes and return the answer until the server closes. The caller must send `Connection: close`."""
        reader, writer = await asyncio.open_connection(HOST, self.port)
        with contextlib.closing(writer):
            writer.write(data)
            return await asyncio.wait_for(reader.read(), TIMEOUT_SECONDS)

    async def end_offsets(self, topic: str) -> dict[int, int]:
        """The end offset of each segment; unchanged if nothing was stored."""
        answer = await self.client.get(f"/v1/topics/{topic}")
        return {s["segment"]: s["end_offset"] for s in answer.raise_for_status().json()["segments"]}


@contextlib.asynccontextmanager
async def http_broker(
    store: Store,
    /,
    *,
    clock: Clock | None = None,
    payloads: StreamingStore | None = None,
    coordinator: Coordinator | None = None,
    peers: PeerTransport | None = None,
    store_health: StoreHealth | None = None,
    tracer: Tracer = NO_TRACER,
    incarnation: Incarnation | None = None,
    is_fast: bool = True,
    client_tls: ssl.SSLContext | bool = True,
    users: KernelUsers | None = None,
    **settings: Any,
) -> AsyncIterator[HttpBroker]:
    """Start and, at the end, drain and close it; `settings` are those of `BrokerSettings`.

    A store that takes payloads itself also takes uploads, unless `payloads` says otherwise. Without `is_fast`, the ASGI
    app serves every publish. With the settings of TLS it speaks that, and its client goes by `client_tls`. `users` tell
    whose connections are, instead of the kernel.
    """
    note_server()
    clock = clock or SystemClock()
    certificates = BrokerCertificates(BrokerSettings(**settings), clock, HOST)
    peer_keys = kept_keys(BrokerSettings(**settings).peer_keys, None, clock)
    payloads = payloads or (store if isinstance(store, StreamingStore) else None)
    broker = Broker(
        store,
        clock,
        coordinator or InProcessCoordinator(),
        BrokerSettings(**settings),
        payloads=payloads,
        peers=peers,
        store_health=store_health,
        tracer=tracer,
        incarnation=incarnation,
        peer_tls=certificates.clients.peers,
        peer_listener_tls=certificates.brokers.peers,
        peer_keys=peer_keys,
    )
    contexts = (certificates.clients.server, certificates.brokers.server)
    with contextlib.ExitStack() as sockets:
        listening = [
            Listening(sockets.enter_context(_bound()), tls) for tls in contexts[: 1 + broker.settings.has_peer_listener]
        ]
        url, peer_url = listening[0].local_url, "".join(each.local_url for each in listening[1:])
        try:
            await broker.start(url, peer_url)
        except BaseException:
            await broker.close()
            raise
        watches = connection_watches(broker)
        if users is not None:
            watches[0].close()
            watches[0].users = users
        watching = [asyncio.create_task(each) for each in (*(one.run() for one in watches), certificates.watch())]
        made = zip((_for_clients, _for_brokers), listening, watches, strict=False)
        servers = [_Server(config(broker, watch, is_fast, each.tls), watch) for config, each, watch in made]
        serving = [
            asyncio.create_task(server.serve(sockets=[each.sock]))
            for server, each in zip(servers, listening, strict=True)
        ]
        try:
            for server, task in zip(servers, serving, strict=True):
                await _started(server, task)
            async with DescribedClient(
                base_url=url, timeout=TIMEOUT_SECONDS, trust_env=False, verify=client_tls
            ) as client:
                yield HttpBroker(broker, url, listening[0].sock.getsockname()[1], client, peer_url)
        finally:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(broker.drain(), STOP_SECONDS)
            for server in servers:
                server.stop()
            await asyncio.gather(*serving)
            for task in watching:
                task.cancel()
            for watch in watches:
                watch.close()
            await broker.close()


def _bound() -> socket.socket:
    # asyncio switches Nagle's algorithm off only for sockets that name their protocol.
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.bind((HOST, 0))
    return made


def _for_clients(broker: Broker, watch: ConnectionWatch, is_fast: bool, tls: ssl.SSLContext | None) -> uvicorn.Config:
    app, fast = create_served(broker)
    return _config(app, watch, fast if is_fast else None, tls)


def _for_brokers(broker: Broker, watch: ConnectionWatch, is_fast: bool, tls: ssl.SSLContext | None) -> uvicorn.Config:
    return _config(create_peer_asgi(broker), watch, None, tls)


def _config(app: Any, watch: ConnectionWatch, fast: FastPublisher | None, tls: ssl.SSLContext | None) -> uvicorn.Config:
    protocol: Any = served_protocol(watch, fast)
    if tls is not None:
        protocol = TlsDoor(tls, watch, protocol)
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )


async def _started(server: uvicorn.Server, serving: "asyncio.Task[None]") -> None:
    async with asyncio.timeout(STOP_SECONDS):
        while not server.started:
            assert not serving.done(), "uvicorn ended before it served"
            await asyncio.sleep(0.005)


class _Server(uvicorn.Server):
    """uvicorn's server without its two sleeps of a tenth of a second at the end, most of the time of a short test."""

    def __init__(self, config: uvicorn.Config, watch: ConnectionWatch) -> None:
        super().__init__(config)
        self._watch, self._stopped = watch, asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._stopped.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._stopped.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._watch.ending = True
        await self._accept_no_more()
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        # Connections that have nothing under way are gone then.
        await asyncio.sleep(0)
        try:
            await asyncio.wait_for(self._wait_tasks_to_complete(), STOP_SECONDS)
        except TimeoutError:
            # The machine is busy, or a client neither reads nor goes. What stays open would be told of in later tests.
            for connection in list(self.server_state.connections):
                connection.transport.abort()
            await asyncio.sleep(0)

    async def _accept_no_more(self) -> None:
        """A connection that asyncio accepts while its server is closed is never closed: `Server._attach` fails."""
        loop = asyncio.get_running_loop()
        for sock in (each for server in self.servers for each in server.sockets):
            loop.remove_reader(sock)
        for _ in range(ACCEPT_ROUNDS):
            await asyncio.sleep(0)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
