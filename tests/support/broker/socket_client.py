"""A client of `GET /v1/topics/{topic}/socket`, which sorts what comes.

async with socket_client(broker.url, "t") as socket:
    answer = await socket.ask(publish={"value": "at dusk"})
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin, Subprotocol

TIMEOUT_SECONDS = 30
SUBPROTOCOL = Subprotocol("braidmq.v1")


class SocketClient:
    """One socket. What is delivered comes in `delivered`; `told` are problems that belong to no request."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.hello: dict[str, Any] = {}
        self.answers: dict[Any, dict[str, Any]] = {}
        self.delivered: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []
        self.closed: tuple[int, str] | None = None
        self._ids = count(1)
        self._news = asyncio.Event()

    async def send(self, **fields: Any) -> Any:
        """Send a request; returns its id."""
        fields = {"id": next(self._ids), **fields}
        if "publish" in fields:
            fields["publish"] = fields.pop("publish")  # the last field: a long list of messages has to be
        await self.connection.send(orjson.dumps(fields), text=True)
        return fields["id"]

    async def ask(self, **fields: Any) -> dict[str, Any]:
        """The answer to a request: it has `ok` or `problem`."""
        id_ = await self.send(**fields)
        await self.until(lambda: id_ in self.answers or self.closed is not None)
        return self.answers[id_]

    async def ok(self, **fields: Any) -> dict[str, Any]:
        """What came of a request that is done."""
        answer = await self.ask(**fields)
        assert "ok" in answer, answer
        found: dict[str, Any] = answer["ok"]
        return found

    async def problem(self, slug: str, *parts: str, **fields: Any) -> dict[str, Any]:
        """The problem of a request that is refused."""
        answer = await self.ask(**fields)
        return checked(answer.get("problem", answer), slug, *parts)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until that holds."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not holds():
                self._news.clear()
                await self._news.wait()

    async def delivery(self, field: str = "messages") -> dict[str, Any]:
        """The next thing delivered that has that field; others before it are dropped."""
        await self.until(lambda: any(field in each for each in self.delivered) or self.closed is not None)
        while True:
            found = self.delivered.pop(0)
            if field in found:
                return found

    async def end(self) -> tuple[int, str]:
        """The code and the reason by which it was closed."""
        await self.until(lambda: self.closed is not None)
        assert self.closed is not None
        return self.closed

    async def read(self) -> None:
        """Sort what comes, until it is closed."""
        try:
            async for data in self.connection:
                self._sort(orjson.loads(data) if isinstance(data, str) else _binary(data))
                self._news.set()
        except ConnectionClosed:
            pass
        found = self.connection
        self.closed = (found.close_code or 0, found.close_reason or "")
        self._news.set()

    def _sort(self, document: dict[str, Any]) -> None:
        if "hello" in document:
            self.hello = document["hello"]
        elif "subscription" in document:
            self.delivered.append(document)
        elif "problem" in document:
            self.told.append(document["problem"])
        else:
            for answer in document["answers"]:
                if "id" in answer:
                    assert answer["id"] not in self.answers, "a request was answered twice"
                    self.answers[answer["id"]] = answer
                else:
                    self.told.append(answer["problem"])


def _binary(data: bytes) -> dict[str, Any]:
    head, _, arrow = data.partition(b"\n")
    return {**orjson.loads(head), "arrow": arrow}


def checked(problem: dict[str, Any], slug: str, *parts: str) -> dict[str, Any]:
    """A problem that has all fields, that type, and each of the parts in its words."""
    assert problem.keys() >= {"type", "title", "status", "detail", "retryable", "request_id"}, problem
    assert problem["type"] == f"urn:braidmq:{slug}", problem
    for part in parts:
        assert part in problem["detail"], problem
    return problem


@contextlib.asynccontextmanager
async def socket_client(
    url: str, topic: str, *, origin: str | None = None, **named: Any
) -> AsyncIterator[SocketClient]:
    """Open a socket, and close it at the end."""
    address = f"{url.replace('http', 'ws', 1)}/v1/topics/{topic}/socket"
    named = {"subprotocols": [SUBPROTOCOL], "max_size": None, "compression": None, "proxy": None, **named}
    async with connect(address, origin=None if origin is None else Origin(origin), **named) as connection:
        socket = SocketClient(connection)
        reading = asyncio.create_task(socket.read())
        try:
            await socket.until(lambda: bool(socket.hello) or socket.closed is not None)
            yield socket
        finally:
            await connection.close()
            await reading
