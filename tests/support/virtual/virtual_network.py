"""Lines between brokers, and from clients to them, in one process and in virtual time: they refuse, hang and break."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from starlette.types import ASGIApp, Message, Scope

from mq.base.errors import PeerRefused, PeerSilent
from mq.peers.calls import BROKER_HEADER
from mq.peers.transport import PeerAnswer

R = TypeVar("R")
SHORTEST_SECONDS, LONGEST_SECONDS = 0.0005, 0.02
CLIENT = "client"


class Refused(Exception):
    """Nobody listens there."""


class Broken(Exception):
    """The connection broke: whether the request took effect is not known."""


@dataclass
class Host:
    """A process. `refuses` whose connections; `nameless`: its own calls do not say whose they are.

    `steps_left`: it ends at the last of so many more steps, which are the begin and the end of each call.
    """

    name: str
    on_end: Callable[[], None]
    app: ASGIApp | None = None
    refuses: set[str] = field(default_factory=set)
    nameless: bool = False
    steps_left: int | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def lives(self) -> bool:
        """Whether it has not ended."""
        return not self.ended.is_set()

    def end(self) -> None:
        """What it does from now on has no effect."""
        if self.lives:
            self.ended.set()
            self.on_end()

    async def step(self) -> None:
        """Pass the begin or the end of a call; never come back if the process has ended."""
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left <= 0:
                self.end()
        task = asyncio.current_task()
        # Who is cancelled ends with the whole run.
        if not self.lives and not (task and task.cancelling()):
            await asyncio.Future()


class VirtualNetwork:
    """Hosts by name, `http://<name>`. How long each way takes is drawn by `chance`."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.hosts: dict[str, Host] = {}
        self._serving: set[asyncio.Task[PeerAnswer]] = set()

    async def request(
        self, viewer: str, method: str, url: str, headers: Mapping[str, str], body: bytes, *, timeout_seconds: float
    ) -> PeerAnswer:
        """The answer of a host to `viewer`; raises `Refused`, `Broken` and `TimeoutError`."""
        parts = urlsplit(url)
        host = self.hosts[parts.netloc]
        if host.app is None or not host.lives or viewer in host.refuses:
            raise Refused(url)
        asked = {"host": parts.netloc, "content-length": str(len(body)), **headers}
        # What has been sent goes on, whoever waits for it.
        serving = asyncio.create_task(self._served(host.app, _scope(method, parts.path, parts.query, asked), body))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        async with asyncio.timeout(timeout_seconds):
            answer = await unless(host.ended, asyncio.shield(serving), Broken(url))
            await self._pause()
        if viewer in host.refuses or not host.lives:
            # Its connections are reset, those as well on which an answer was on its way.
            raise Broken(url)
        return answer

    async def _served(self, app: ASGIApp, scope: Scope, body: bytes) -> PeerAnswer:
        await self._pause()
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[Message] = []

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await asyncio.Future()
            raise AssertionError

        async def send(message: Message) -> None:
            sent.append(message)

        await app(scope, receive, send)
        headers = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        return PeerAnswer(sent[0]["status"], headers, b"".join(bytes(each.get("body", b"")) for each in sent[1:]))

    async def _pause(self) -> None:
        await asyncio.sleep(self._chance.uniform(SHORTEST_SECONDS, LONGEST_SECONDS))


async def unless(ended: asyncio.Event, work: Awaitable[R], error: Exception) -> R:
    """What `work` comes to; raises `error` if that happens first."""
    working, waiting = asyncio.ensure_future(work), asyncio.create_task(ended.wait())
    try:
        await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise error
    finally:
        working.cancel()
        waiting.cancel()


def _scope(method: str, path: str, query: str, headers: Mapping[str, str]) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }


class VirtualPeers:
    """The `PeerTransport` of one host. Nothing that it calls after its end happens."""

    def __init__(self, network: VirtualNetwork, host: Host) -> None:
        self._network, self._host = network, host

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview, *, timeout_seconds: float
    ) -> PeerAnswer:
        """As `PeerTransport.send`."""
        await self._host.step()
        named = {name: value for name, value in headers.items() if name != BROKER_HEADER or not self._host.nameless}
        try:
            return await self._network.request(
                self._host.name, method, url, named, bytes(body), timeout_seconds=timeout_seconds
            )
        except Refused:
            raise PeerRefused(url) from None
        except (Broken, TimeoutError):
            raise PeerSilent(url) from None
        finally:
            await self._host.step()

    async def close(self) -> None:
        """Nothing is open."""


class VirtualClients(httpx.AsyncBaseTransport):
    """Lines of clients, whom no host refuses that lives."""

    def __init__(self, network: VirtualNetwork) -> None:
        self._network = network

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The answer of the host that the URL names."""
        body, timeout_seconds = await request.aread(), request.extensions["timeout"]["read"]
        headers = {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}
        try:
            answer = await self._network.request(
                CLIENT, request.method, str(request.url), headers, body, timeout_seconds=timeout_seconds
            )
        except Refused as error:
            raise httpx.ConnectError(str(error)) from None
        except Broken as error:
            raise httpx.ReadError(str(error)) from None
        except TimeoutError:
            raise httpx.ReadTimeout("no answer") from None
        return httpx.Response(answer.status, headers=dict(answer.headers), content=answer.body)
