"""Subscribers that count what they get: many connections in a process of their own, which does nothing else.

    python -m bench.harness.stream_readers URL TOPIC COUNT STALLED NICE

It says `ready` once all have begun, and prints how many lines have come, for each line on its standard input. STALLED
more begin, and read nothing then. NICE is how far it stands back for other processes, as of `nice`: its subscribers
stand for clients on other machines.
"""

import asyncio
import os
import sys
from urllib.parse import urlsplit

import uvloop

_BEGUN = b"\r\n\r\n"
_BUFFER_BYTES = 256 * 1024


class _Lines:
    """What all subscribers got together. They share the buffer: each has counted what is in it before it ends."""

    def __init__(self) -> None:
        self.count = 0
        self.buffer = bytearray(_BUFFER_BYTES)


class _Subscriber(asyncio.BufferedProtocol):
    """One connection. `begun` is done once the head of the answer and a first line have come."""

    def __init__(self, lines: _Lines) -> None:
        self._lines = lines
        self._head, self._last = b"", b""
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._lines.buffer

    def buffer_updated(self, size_bytes: int) -> None:
        if not self.begun.done():
            self._begin(bytes(self._lines.buffer[:size_bytes]))
            return
        buffer = self._lines.buffer
        # Sizes of chunks end with \r\n, and so do the chunks: each message is a line that ends with }\n.
        self._lines.count += buffer.count(b"}\n", 0, size_bytes) + (self._last == b"}" and buffer[0] == ord("\n"))
        self._last = bytes(buffer[size_bytes - 1 : size_bytes])

    def _begin(self, part: bytes) -> None:
        self._head += part
        if b"}\n" in self._head.partition(_BEGUN)[2]:
            self.begun.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.begun.done():
            self.begun.set_exception(error or ConnectionError("the broker has closed the connection"))


async def _begin(address: str, port: int, topic: str, lines: _Lines) -> asyncio.Transport:
    transport: asyncio.Transport
    transport, subscriber = await asyncio.get_running_loop().create_connection(
        lambda: _Subscriber(lines), address, port
    )
    head = f"GET /v1/topics/{topic}/subscribe?from=latest HTTP/1.1\r\nhost: localhost\r\naccept: application/x-ndjson"
    transport.write(f"{head}\r\n\r\n".encode())
    await subscriber.begun
    return transport


async def _read(url: str, topic: str, count: int, stalled: int) -> None:
    where, lines = urlsplit(url), _Lines()
    begun = [await _begin(where.hostname or "", where.port or 0, topic, lines) for _ in range(count + stalled)]
    for transport in begun[count:]:
        transport.pause_reading()
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(lines.count, flush=True)
    for transport in begun:
        transport.abort()


if __name__ == "__main__":
    os.nice(int(sys.argv[5]))
    uvloop.run(_read(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
