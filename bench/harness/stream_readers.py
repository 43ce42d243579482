"""Subscribers that count what they get: many connections in a process of their own, which does nothing else.

    python -m bench.harness.stream_readers URL TOPIC COUNT

It says `ready` once all have begun, and prints how many lines have come, for each line on its standard input.
"""

import asyncio
import sys
from urllib.parse import urlsplit

_BEGUN = b"\r\n\r\n"
_PART_BYTES = 256 * 1024


class _Lines:
    """What all subscribers got together."""

    def __init__(self) -> None:
        self.count = 0

    async def of_one(self, reader: asyncio.StreamReader) -> None:
        last = b""
        while part := await reader.read(_PART_BYTES):
            # Sizes of chunks end with \r\n, and so do the chunks: each message is a line that ends with }\n.
            self.count += part.count(b"}\n") + (last == b"}" and part.startswith(b"\n"))
            last = part[-1:]


async def _begin(address: str, port: int, topic: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(address, port)
    head = f"GET /v1/topics/{topic}/subscribe?from=latest HTTP/1.1\r\nhost: localhost\r\naccept: application/x-ndjson"
    writer.write(f"{head}\r\n\r\n".encode())
    await reader.readuntil(_BEGUN)
    await reader.readuntil(b"}\n")
    return reader, writer


async def _read(url: str, topic: str, count: int) -> None:
    where, lines = urlsplit(url), _Lines()
    begun = [await _begin(where.hostname or "", where.port or 0, topic) for _ in range(count)]
    reading = [asyncio.create_task(lines.of_one(reader)) for reader, _ in begun]
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(lines.count, flush=True)
    for _, writer in begun:
        writer.close()
    await asyncio.gather(*reading, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(_read(sys.argv[1], sys.argv[2], int(sys.argv[3])))
