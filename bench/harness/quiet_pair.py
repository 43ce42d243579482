"""A publisher and a subscriber of one topic with little traffic, in a process of their own.

    python -m bench.harness.quiet_pair URL TOPIC PER_SECOND

It says `ready` once the subscriber has begun. For each line on its standard input, which is a number of seconds, it
publishes at an even pace for that long, and prints two lists of milliseconds as JSON: how long after it was due each
message was acknowledged, and was with the subscriber.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import uvloop

_TIMEOUT_SECONDS = 60.0
_END_OF_HEAD = b"\r\n\r\n"


class _Pair:
    def __init__(self, url: str, topic: str, per_second: float) -> None:
        where = urlsplit(url)
        self._address, self._port = where.hostname or "", where.port or 0
        self._path, self._per_second = f"/v1/topics/{topic}", per_second
        self._arrived: dict[int, float] = {}
        self._news = asyncio.Event()
        self._number = 0

    async def begin(self) -> None:
        """Connect both."""
        self._from_publisher, self._publisher = await asyncio.open_connection(self._address, self._port)
        reader, writer = await asyncio.open_connection(self._address, self._port)
        accept = "host: localhost\r\naccept: application/x-ndjson"
        writer.write(f"GET {self._path}/subscribe?from=latest HTTP/1.1\r\n{accept}\r\n\r\n".encode())
        await reader.readuntil(_END_OF_HEAD)
        await reader.readuntil(b"}\n")
        self._reading = asyncio.create_task(self._read(reader))
        self._subscriber = writer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        async for line in _lines(reader):
            now_seconds = time.perf_counter()
            document = json.loads(line)
            if "message" in document:
                self._arrived[int(document["message"]["value"])] = now_seconds
                self._news.set()

    async def measure(self, seconds: float) -> tuple[list[float], list[float]]:
        """Publish for so long; how long each message took until it was acknowledged, and until it had arrived."""
        first, count = self._number, round(seconds * self._per_second)
        self._number += count
        began_seconds = time.perf_counter()
        due = [began_seconds + number / self._per_second for number in range(count)]
        acked = []
        for number, due_seconds in enumerate(due, first):
            await asyncio.sleep(max(0.0, due_seconds - time.perf_counter()))
            await self._publish(str(number).encode())
            acked.append(time.perf_counter())
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            while len(self._arrived) < count:
                self._news.clear()
                await self._news.wait()
        arrived = [self._arrived[number] for number in range(first, first + count)]
        self._arrived.clear()
        return [_ms(*each) for each in zip(due, acked, strict=True)], [
            _ms(*each) for each in zip(due, arrived, strict=True)
        ]

    async def _publish(self, body: bytes) -> None:
        head = f"POST {self._path}/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        self._publisher.write(head.encode() + body)
        answer = await self._from_publisher.readuntil(_END_OF_HEAD)
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise SystemExit(f"a publish was answered {answer.splitlines()[0].decode()}")
        length = answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await self._from_publisher.readexactly(int(length))

    def end(self) -> None:
        """Disconnect both."""
        self._reading.cancel()
        self._publisher.close()
        self._subscriber.close()


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The lines of JSON in the chunks of an answer."""
    while True:
        line = (await reader.readuntil(b"\n")).strip()
        if line.startswith(b"{"):
            yield line


def _ms(since_seconds: float, until_seconds: float) -> float:
    return (until_seconds - since_seconds) * 1000


async def _serve(url: str, topic: str, per_second: float) -> None:
    pair = _Pair(url, topic, per_second)
    await pair.begin()
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await pair.measure(float(line))), flush=True)
    pair.end()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], sys.argv[2], float(sys.argv[3])))
