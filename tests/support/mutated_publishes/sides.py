"""Two brokers, with the fast path of publishes and without it, and connections to them without a network."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from filer.clock import settle
from filer.stores.memory_store import MemoryStore
from mq.http.app import create_served
from mq.http.fast_path.fast_publisher import FastPublisher, OnReply
from mq.http.fast_path.head import Head
from mq.process.connections.fast_protocol import served_protocol
from mq.process.http_server import connection_watches
from mq.security.caller import Caller
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.unit.mq.process.connections.test_protocol import Transport

MOST_BYTES = 1024
"""The most that a body may have."""
TOPICS: dict[str, dict[str, Any]] = {"t": {"segments": 2}, "json": {"segments": 1, "value_type": "json"}}
_ANY = re.compile(rb"[0-9a-f]{16}-[0-9]+|[0-9-]{10}T[0-9:.]+Z")
"""Ids that the broker makes, and times."""


class LocalTransport(Transport):
    """Of a client on this machine."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else super().get_extra_info(name, default)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))


class _Counted:
    """A fast path, and how many publishes it has taken, and how many of them without the parser."""

    def __init__(self, fast: FastPublisher) -> None:
        self._fast, self.admits, self.heads = fast, fast.admits, fast.heads
        self.begun = self.known = 0

    def begin(self, head: Head, body: bytes, caller: Caller, on_reply: OnReply) -> bool:
        has_begun = self._fast.begin(head, body, caller, on_reply)
        self.begun += has_begun
        self.known += has_begun and head.headers_allowed
        return has_begun


class Side:
    """A broker, and how it serves connections."""

    def __init__(self, http: HttpBroker, is_fast: bool) -> None:
        # All ids are of the same length: an answer's length must not tell how many there were before.
        http.broker.new_request_id = lambda: "0123456789abcdef-1"
        self.http, self.watch = http, connection_watches(http.broker)[0]
        app, fast = create_served(http.broker)
        assert fast is not None
        self._fast = _Counted(fast)
        self._protocol: Any = served_protocol(self.watch, cast("FastPublisher", self._fast) if is_fast else None)
        self._config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", ws="none", proxy_headers=False
        )

    def connect(self) -> "Connection":
        return Connection(self._protocol(self._config, ServerState(), {}))

    @property
    def begun(self) -> int:
        """How many publishes the fast path has taken."""
        return self._fast.begun

    @property
    def known(self) -> int:
        """Of how many of those the head was known, so that no parser saw them."""
        return self._fast.known

    def is_at_rest(self) -> bool:
        """Whether nothing is left of what connections have sent."""
        broker = self.http.broker
        left = broker.front_store.pending_bytes, broker.turns.publishing.under_way, len(self.watch.connections)
        return not any(left)


class Connection:
    """Sends to a connection as an event loop does."""

    def __init__(self, protocol: Any) -> None:
        self.protocol, self.transport = protocol, LocalTransport()
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)

    async def send(self, *pieces: bytes) -> bytes:
        """What is answered to that, without what no two brokers have alike."""
        before = len(self.transport.written)
        for piece in pieces:
            if not self.transport.closed:
                self.protocol.data_received(piece)
                await settle()
        await self._until_answered()
        return _ANY.sub(b"<any>", self.transport.written[before:])

    async def _until_answered(self) -> None:
        async with asyncio.timeout(10):
            while not self.transport.closed and self._is_under_way():
                await asyncio.sleep(0.001)

    def _is_under_way(self) -> bool:
        cycle = self.protocol.cycle
        return not self.protocol._in_message and cycle is not None and not cycle.response_complete

    async def end(self) -> None:
        self.transport.closed = True
        self.protocol.connection_lost(None)
        await settle()


@asynccontextmanager
async def side(is_fast: bool, **options: Any) -> AsyncIterator[Side]:
    """A broker; `options` are those of `http_broker`."""
    async with http_broker(MemoryStore(), max_body_bytes=MOST_BYTES, authorizer="loopback", **options) as http:
        for name, config in TOPICS.items():
            (await http.client.put(f"/v1/topics/{name}", json=config)).raise_for_status()
        yield Side(http, is_fast)
