"""An attack on a broker's connections, in a process of its own and of the lowest priority.

    python -m bench.harness.attacker NAME URL SECONDS

It connects to 127.0.0.1 only, with a fixed number of sockets and for a fixed time, and prints what it saw as JSON.
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

MIB = 1024 * 1024
TOPIC, BIG_TOPIC = "bench", "big"
BIG_BYTES = 30 * MIB
HOST = "127.0.0.1"
_NICENESS = 19
_PUBLISH = f"POST /v1/topics/{TOPIC}/messages HTTP/1.1\r\nhost: localhost\r\n".encode()
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Attack:
    """What the attack does, on how many sockets at a time, and the open files that the broker is allowed."""

    what: str
    sockets: int
    run: "Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]"
    open_files: int | None = None


async def declare_and_stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_PUBLISH + b"content-length: %d\r\n\r\n" % (64 * MIB))
    await writer.drain()


async def stall_before_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_PUBLISH + b"content-length: %d\r\n\r\n" % (64 * MIB))
    for _ in range(63):
        writer.write(bytes(MIB))
        await writer.drain()


async def send_208_mb_of_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"GET / HTTP/1.1\r\n")
    for number in range(208):
        writer.write(b"x-%d: %b\r\n" % (number, bytes([120]) * 1_000_000))
        await writer.drain()


async def send_half_a_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"GET / HTTP/1.1\r\nx: " + b"x" * 60_000)
    await writer.drain()


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await writer.drain()


async def trickle_a_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _trickle(writer, b"GET / HTTP/1.1\r\nx-trickled: ")


async def trickle_a_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _trickle(writer, _PUBLISH + b"content-length: 1000000\r\n\r\n")


async def _trickle(writer: asyncio.StreamWriter, start: bytes) -> None:
    writer.write(start)
    while not writer.is_closing():
        await writer.drain()
        await asyncio.sleep(1)
        writer.write(b"x")


async def read_a_byte_a_second(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(f"GET /v1/topics/{BIG_TOPIC}/messages?limit=1 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    while await reader.read(1):
        await asyncio.sleep(1)
    raise ConnectionResetError


async def pipeline(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(
        f"GET /v1/topics/{BIG_TOPIC}/messages?from=latest&wait=30 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    )
    writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * 5_000)
    await writer.drain()


ATTACKS = {
    "declared": Attack("4 sockets declare 64 MiB and send nothing", 4, declare_and_stall),
    "stalled": Attack("4 sockets send 63 of 64 MiB and stall", 4, stall_before_the_end),
    "headers": Attack("208 MB of headers on one connection", 1, send_208_mb_of_headers),
    "half-heads": Attack("500 sockets send 60 KB of headers and stall", 500, send_half_a_head),
    "idle": Attack("140 idle sockets, broker with ulimit -n 128", 140, say_nothing, open_files=128),
    "trickled-heads": Attack("100 sockets send a byte of their headers a second", 100, trickle_a_head),
    "trickled-bodies": Attack("100 sockets send a byte of their bodies a second", 100, trickle_a_body),
    "trickled-reads": Attack("20 sockets read an answer of 30 MiB, a byte a second", 20, read_a_byte_a_second),
    "pipelined": Attack("20 sockets send 5,000 requests behind a long poll", 20, pipeline),
}


class Seen:
    """What became of the attacker's connections."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.ended_seconds: list[float] = []

    def told(self) -> dict[str, object]:
        """As JSON: how many saw what, and after how many seconds the last one was cut off."""
        return {"outcomes": dict(self.outcomes), "last_seconds": max(self.ended_seconds, default=None)}


async def _one(attack: Attack, port: int, seconds: float, seen: Seen) -> None:
    began = time.perf_counter()
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                await attack.run(reader, writer)
                outcome = await _answer(reader)
            except (ConnectionError, BrokenPipeError):
                outcome = await _answer(reader)
            finally:
                writer.transport.abort()
    except TimeoutError:
        seen.outcomes["still open"] += 1
        return
    except OSError as error:
        outcome = type(error).__name__
    seen.outcomes[outcome] += 1
    seen.ended_seconds.append(round(time.perf_counter() - began, 1))


async def _answer(reader: asyncio.StreamReader) -> str:
    """Wait until the broker ends the connection; the status of its last answer, or `closed`."""
    try:
        data = await reader.read(64 * 1024)
        line = data.partition(b"\r\n")[0].split()
        while await reader.read(64 * 1024):
            pass
        return line[1].decode() if len(line) > 1 and data.startswith(b"HTTP/") else "closed"
    except ConnectionError:
        return "reset"


async def _attack(name: str, url: str, seconds: float) -> None:
    attack, seen = ATTACKS[name], Seen()
    parts = urlsplit(url)
    if parts.hostname not in (HOST, "localhost") or parts.port is None:
        sys.exit(f"an attack goes to {HOST} only, not to {url}")
    await asyncio.gather(*(_one(attack, parts.port, seconds, seen) for _ in range(attack.sockets)))
    print(json.dumps(seen.told()))


def main() -> None:
    name, url, seconds = sys.argv[1:]
    os.nice(_NICENESS)
    asyncio.run(_attack(name, url, float(seconds)))


if __name__ == "__main__":
    main()
