"""A broker's uvicorn listeners: for clients and, if brokers have a port of their own here, for brokers."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import uvicorn

from filer.event_log import EventLog
from mq.broker import Broker
from mq.http.app import create_peer_asgi, create_served
from mq.machine_users.kernel_users import kernel_users_of
from mq.process.connections.fast_protocol import served_protocol
from mq.process.connections.limits import (
    connection_limits,
    limits_with_peer_listener,
    open_files,
    raise_open_files,
)
from mq.process.connections.tls_handshake import TlsDoor
from mq.process.connections.watch import ConnectionWatch
from mq.process.listen import CannotListen, Listening

LISTEN_BACKLOG = 2048

_log = EventLog(__name__)


class HttpServer(uvicorn.Server):
    """Uvicorn without its own signal handling, on a socket of ours. It calls `on_listening` when it takes requests."""

    def __init__(
        self, app: Any, protocol: Any, listening: Listening, watch: ConnectionWatch, on_listening: Callable[[], None]
    ) -> None:
        self._door = None if listening.tls is None else TlsDoor(listening.tls, watch, protocol)
        super().__init__(_uvicorn_config(app, protocol if self._door is None else self._door))
        self._listening, self.watch, self._on_listening = listening, watch, on_listening

    async def run_until_exit(self) -> None:
        """Serve until `should_exit`. Raises `CannotListen`."""
        await self.serve(sockets=[self._listening.sock])

    def unanswered(self) -> list[str]:
        """Return method and path of requests without an answer yet, or whose client has not read it."""
        connections: list[Any] = list(self.server_state.connections)
        return [
            f"{each.cycle.scope['method']} {each.cycle.scope['path']}"
            for each in connections
            if each.cycle is not None and (not each.cycle.response_complete or each.transport.get_write_buffer_size())
        ]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not handle signals: the broker drains first."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen. Raises `CannotListen` if another process listens on the port already."""
        try:
            await super().startup(sockets)
        except OSError as error:
            host, port = self._listening.sock.getsockname()[:2]
            raise CannotListen(f"cannot listen on {host}:{port} any more: {error.strerror}") from error
        self._on_listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, and wait for the present ones to be answered."""
        # uvicorn asks its present connections to end. One that is being accepted would keep it waiting until it is
        # idle.
        self.watch.ending = True
        if self._door is not None:
            # uvicorn does not know of them, and would wait for them.
            self._door.close()
        await super().shutdown(sockets)


def server_for_clients(
    broker: Broker, listening: Listening, watch: ConnectionWatch, on_listening: Callable[[], None] = lambda: None
) -> HttpServer:
    """Return the server for all requests of clients."""
    app, fast = create_served(broker)
    return HttpServer(app, served_protocol(watch, fast), listening, watch, on_listening)


def server_for_brokers(
    broker: Broker, listening: Listening, watch: ConnectionWatch, on_listening: Callable[[], None] = lambda: None
) -> HttpServer:
    """Return the server for other brokers' calls, and nothing else."""
    return HttpServer(create_peer_asgi(broker), served_protocol(watch, None), listening, watch, on_listening)


class HttpServers:
    """The servers of a broker, which begin and end together. `on_started` is called when all take requests."""

    def __init__(self, broker: Broker, listening: Sequence[Listening], on_started: Callable[[], None]) -> None:
        watches = connection_watches(broker)
        self._on_started, self._missing = on_started, len(listening)
        # That of brokers comes first: once clients can call this broker, brokers can, too.
        made = zip((server_for_clients, server_for_brokers), listening, watches, strict=False)
        self._servers = [make(broker, each, watch, self._one_listens) for make, each, watch in made][::-1]

    @property
    def watches(self) -> list[ConnectionWatch]:
        """The watch of each server's connections."""
        return [each.watch for each in self._servers]

    async def run(self) -> None:
        """Serve until they are asked to exit. Raises `CannotListen`, and ends the others, if one cannot begin."""
        running = [asyncio.create_task(each.run_until_exit(), name="server") for each in self._servers]
        try:
            await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def unanswered(self) -> list[str]:
        """As `HttpServer.unanswered`, for all servers."""
        return [line for each in self._servers for line in each.unanswered()]

    def exit(self, within_seconds: int) -> None:
        """End them, once the present requests have been answered, or when that time has passed."""
        for each in self._servers:
            each.config.timeout_graceful_shutdown = within_seconds
            each.should_exit = True

    def _one_listens(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._on_started()


def connection_watches(broker: Broker) -> list[ConnectionWatch]:
    """Return the watches of a broker's connections. It has opened what it needs, and no connection yet.

    That of the listener for clients comes first, then that for brokers, if it has one.
    """
    settings, users = broker.settings, kernel_users_of(broker.settings)
    descriptors, open_now = raise_open_files(), open_files()
    brokers = None
    if settings.has_peer_listener:
        clients, brokers = limits_with_peer_listener(settings, descriptors, open_now)
    else:
        clients = connection_limits(settings, descriptors, open_now)
    if clients.total < settings.connections:
        _log.info("connections_limited", most=clients.total, wanted=settings.connections)
    # The kernel does not know which brokers call.
    wanted = [(clients, users)] + ([] if brokers is None else [(brokers, None)])
    return [
        ConnectionWatch(limits, broker.clock, broker.metrics, broker.new_request_id, broker.turns.connected, who)
        for limits, who in wanted
    ]


def _uvicorn_config(app: Any, protocol: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        # The principal is the connected peer: clients could forge forwarded addresses.
        proxy_headers=False,
        server_header=False,
        backlog=LISTEN_BACKLOG,
    )
