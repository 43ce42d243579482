"""A WebSocket whose bytes the test sends itself, for what no library would send."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import orjson

from tests.support.broker.http_broker import TIMEOUT_SECONDS

TEXT, BINARY, CONTINUATION, CLOSE, PING = 1, 2, 0, 8, 9
KEY = b"\x01\x02\x03\x04"


def frame(payload: bytes, opcode: int = TEXT, *, fin: bool = True, declared: int | None = None) -> bytes:
    """A masked frame. `declared` is the length that it tells, if that is not its own."""
    size = len(payload) if declared is None else declared
    first = (0x80 if fin else 0) | opcode
    if size < 126:
        head = struct.pack("!BB", first, 0x80 | size)
    elif size < 65_536:
        head = struct.pack("!BBH", first, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", first, 0x80 | 127, size)
    mask = (KEY * (len(payload) // 4 + 1))[: len(payload)]
    masked = (int.from_bytes(payload) ^ int.from_bytes(mask)).to_bytes(len(payload)) if payload else b""
    return head + KEY + masked


class Got(NamedTuple):
    """A frame of the broker."""

    opcode: int
    payload: bytes

    @property
    def document(self) -> dict[str, Any]:
        """Its text."""
        found: dict[str, Any] = orjson.loads(self.payload)
        return found

    @property
    def closed(self) -> tuple[int, str]:
        """The code and the reason of a frame that closes."""
        assert self.opcode == CLOSE, self
        return struct.unpack("!H", self.payload[:2])[0], self.payload[2:].decode()


class RawSocket:
    """One socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    async def send(self, *data: bytes) -> None:
        """Send these bytes, if the broker still takes any."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(b"".join(data))
            await self.writer.drain()

    async def next(self) -> Got:
        """The next frame. Raises `IncompleteReadError` where there is none."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            first, size = await self._reader.readexactly(2)
            if size == 126:
                (size,) = struct.unpack("!H", await self._reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", await self._reader.readexactly(8))
            return Got(first & 0x0F, await self._reader.readexactly(size))

    async def frames(self) -> list[Got]:
        """All that come until the broker has closed the connection."""
        found: list[Got] = []
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                found.append(await self.next())
        return found

    async def last_words(self) -> tuple[dict[str, Any], tuple[int, str]]:
        """The problem that the broker has told at last, and how it has closed the socket."""
        found = await self.frames()
        closed = next(each for each in reversed(found) if each.opcode == CLOSE)
        told = found[found.index(closed) - 1].document
        problem = told["answers"][-1]["problem"] if "answers" in told else told["problem"]
        return problem, closed.closed


@contextlib.asynccontextmanager
async def raw_socket(port: int, topic: str = "t", *, buffer_bytes: int = 2**16) -> AsyncIterator[RawSocket]:
    """A socket that is open, and has been said hello. At most about so many bytes wait for a reader at its end."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=buffer_bytes)
    try:
        writer.write(upgrade(topic))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT_SECONDS)
        assert head.startswith(b"HTTP/1.1 101 "), head
        opened = RawSocket(reader, writer)
        assert "hello" in (await opened.next()).document
        yield opened
    finally:
        writer.transport.abort()


def upgrade(topic: str = "t", *more: str, protocol: str = "braidmq.v1") -> bytes:
    """A request that opens a socket."""
    lines = [
        f"GET /v1/topics/{topic}/socket HTTP/1.1",
        "Host: localhost",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        *([f"Sec-WebSocket-Protocol: {protocol}"] if protocol else []),
        *more,
    ]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()
