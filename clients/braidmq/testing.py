"""A broker for tests of code that uses BraidMQ: a real one, in this process and in memory.

    with InMemoryBroker() as broker, broker.client() as client:
        client.create_topic("orders")
        ...

It needs the server's dependencies: `pip install 'braidmq[server]'`.
"""

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, Self

from braidmq.async_client import AsyncClient
from braidmq.client import Client
from filer.clock import SystemClock
from filer.stores.memory_store import MemoryStore

try:
    import uvicorn

    from leader.membership.coordinator import InProcessCoordinator
    from mq.base.settings import BrokerSettings
    from mq.broker import Broker
    from mq.http.app import create_asgi
    from mq.machine_users.kernel_users import kernel_users_of
    from mq.process.connections.known_caller import KnownCallerProtocol
    from mq.process.listen import bind, local_url
except ImportError as failure:
    raise ImportError(
        f"braidmq.testing runs the real broker, which needs more packages ({failure}): pip install 'braidmq[server]'"
    ) from failure


class InMemoryBroker:
    """A broker on a free port of this machine, with a store in memory. Nothing outlives the `with` block.

    `settings` are those of `mq serve`, with underscores: `InMemoryBroker(max_body_bytes=2048)`. It runs in a thread of
    its own, so blocking clients, asynchronous clients and `curl` can all use it.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = BrokerSettings(**settings)
        self._started: Future[str] = Future()
        self._stop: Callable[[], None] = _not_started
        self._thread = threading.Thread(target=self._run, name="braidmq in-memory broker", daemon=True)
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = self._started.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()
        self._thread.join()

    def client(self, **options: Any) -> Client:
        """Return a blocking client of this broker; options are those of `Client`."""
        return Client(self.url, **options)

    def async_client(self, **options: Any) -> AsyncClient:
        """Return an asynchronous client of this broker; options are those of `AsyncClient`."""
        return AsyncClient(self.url, **options)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:  # it must reach the thread that waits for the start
            if self._started.done():
                raise
            self._started.set_exception(failure)

    async def _serve(self) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._stop = partial(_set_from_thread, loop, stop)
        store = MemoryStore()
        broker = Broker(store, SystemClock(), InProcessCoordinator(), self._settings, payloads=store)
        with bind("127.0.0.1", 0) as sock:
            url = local_url(sock)
            try:
                await broker.start(url)
                await self._serve_requests(broker, sock, url, stop)
            finally:
                await broker.close()

    async def _serve_requests(self, broker: Broker, sock: socket.socket, url: str, stop: asyncio.Event) -> None:
        users = kernel_users_of(self._settings)
        protocol: Any = partial(KnownCallerProtocol, users=users)
        config = uvicorn.Config(
            create_asgi(broker),
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=5,
        )
        server = _Server(config, on_started=lambda: self._started.set_result(url))
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        await stop.wait()
        await broker.drain()
        server.should_exit = True
        await serving
        if users is not None:
            users.close()


class _Server(uvicorn.Server):
    """Uvicorn with a callback for when it accepts requests."""

    def __init__(self, config: uvicorn.Config, *, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        await super().startup(sockets)
        self._on_started()


def _set_from_thread(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    loop.call_soon_threadsafe(stop.set)


def _not_started() -> None:
    """Do nothing: before the start there is nothing to stop."""
