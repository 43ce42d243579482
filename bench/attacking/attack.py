"""What an attack is, and what several of them share."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx

MIB = 1024 * 1024
HOST = "127.0.0.1"
TOPIC = "bench"
"""The topic of the other clients, which has a message."""
NDJSON = "application/x-ndjson"
_PATIENCE = aiohttp.ClientTimeout(total=120)

Seen = Counter[str]
"""What an attacker saw, and how often."""


def no_topics(url: str) -> None:
    """Most attacks need nothing but the topic of the others."""


@dataclass(frozen=True, slots=True)
class Attack:
    """`run` attacks the broker of a URL for some seconds. `prepare` makes the topics that it needs.

    `open_files` is how many files the broker may have open.
    """

    what: str
    run: Callable[[str, float], Awaitable[Seen]]
    prepare: Callable[[str], None] = no_topics
    open_files: int | None = None


OnSocket = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def on_sockets(count: int, use: OnSocket, *, again: bool = False) -> Callable[[str, float], Awaitable[Seen]]:
    """An attack that uses so many sockets at a time; `again` opens a new one for each that was ended."""

    async def run(url: str, seconds: float) -> Seen:
        seen: Seen = Counter()
        last_seconds = 0.0
        until = time.perf_counter() + seconds

        async def one() -> None:
            nonlocal last_seconds
            while (left_seconds := until - time.perf_counter()) > 0:
                began = time.perf_counter()
                outcome = await _one(use, urlsplit(url).port, left_seconds)
                seen[outcome] += 1
                if outcome != "still open":
                    last_seconds = max(last_seconds, time.perf_counter() - began)
                if not again:
                    return

        await asyncio.gather(*(one() for _ in range(count)))
        if last_seconds:
            seen[f"{last_seconds:.1f} s until the last was ended"] = 1
        return seen

    return run


async def _one(use: OnSocket, port: int | None, seconds: float) -> str:
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                await use(reader, writer)
                return await _answer(reader)
            except (ConnectionError, BrokenPipeError):
                return await _answer(reader)
            finally:
                writer.transport.abort()
    except TimeoutError:
        return "still open"
    except OSError as error:
        return type(error).__name__


async def _answer(reader: asyncio.StreamReader) -> str:
    """Wait until the broker ends the connection; the status of its answer, `closed` or `reset`."""
    try:
        data = await reader.read(64 * 1024)
        line = data.partition(b"\r\n")[0].split()
        while await reader.read(64 * 1024):
            pass
        return line[1].decode() if len(line) > 1 and data.startswith(b"HTTP/") else "closed"
    except ConnectionError:
        return "reset"


Request = Callable[[aiohttp.ClientSession, int], "aiohttp.client._RequestContextManager"]


def by_clients(count: int, request: Callable[[str], Request]) -> Callable[[str, float], Awaitable[Seen]]:
    """An attack of so many clients that ask again and again, each with its number of requests so far."""

    async def run(url: str, seconds: float) -> Seen:
        seen: Seen = Counter()
        largest_bytes = 0
        until = time.perf_counter() + seconds
        ask = request(url)

        async def client(session: aiohttp.ClientSession, number: int) -> None:
            nonlocal largest_bytes
            while time.perf_counter() < until:
                try:
                    async with ask(session, number) as answer:
                        size_bytes = 0
                        async for chunk in answer.content.iter_chunked(MIB):
                            size_bytes += len(chunk)
                            if time.perf_counter() > until:
                                break
                        largest_bytes = max(largest_bytes, size_bytes)
                        seen[str(answer.status)] += 1
                except (aiohttp.ClientError, TimeoutError) as error:
                    seen[type(error).__name__] += 1
                number += count

        connector = aiohttp.TCPConnector(limit=count)
        async with aiohttp.ClientSession(timeout=_PATIENCE, connector=connector) as session:
            await asyncio.gather(*(client(session, number) for number in range(count)))
        seen["KiB the largest answer"] = largest_bytes // 1024
        return seen

    return run


def at_once(requests: Sequence[tuple[str, str, Any]]) -> Callable[[str, float], Awaitable[Seen]]:
    """An attack that sends these, 20 at a time, and does nothing more."""

    async def run(url: str, seconds: float) -> Seen:
        seen: Seen = Counter()
        gate = asyncio.Semaphore(20)

        async def one(method: str, path: str, body: Any) -> None:
            async with gate, session.request(method, url + path, json=body) as answer:
                await answer.read()
                seen[str(answer.status)] += 1

        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
            await asyncio.gather(*(one(*each) for each in requests))
        await asyncio.sleep(seconds)
        return seen

    return run


def bodies(
    topic: str, content_type: str, body: Callable[[], bytes], headers: Mapping[str, str] | None = None
) -> Callable[[str, float], Awaitable[Seen]]:
    """An attack of four clients that publish the same body again and again."""

    def request(url: str) -> Request:
        made = body()
        sent = {"content-type": content_type, **(headers or {})}
        return lambda session, number: session.post(f"{url}/v1/topics/{topic}/messages", data=made, headers=sent)

    return by_clients(4, request)


def make_topic(url: str, topic: str, **settings: Any) -> None:
    """Create a topic, with default settings besides these."""
    httpx.put(f"{url}/v1/topics/{topic}", json=settings).raise_for_status()


def publish(url: str, topic: str, body: bytes, **headers: str) -> None:
    """Publish one body."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    httpx.post(f"{url}/v1/topics/{topic}/messages", content=body, headers=sent, timeout=30).raise_for_status()


def lower_priority() -> None:
    """Have this process run only when nobody else wants to: attackers are other machines."""
    os.nice(19)
