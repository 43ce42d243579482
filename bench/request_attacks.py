"""What attacks by requests do to a broker: the p99 of other clients and its memory, before and during each.

    python bench/request_attacks.py [--seconds 15] [--only ATTACK ...] [--checkout FOLDER] [--elsewhere]

Each attack gets a new `mq serve` with default settings. The other clients publish single messages and read small pages,
at an even pace, from a process of their own; the attacker is a process of the lowest priority. All traffic stays on
127.0.0.1, bounded in count and time. With `--elsewhere` another broker of this machine is
attacked: what its clients lose then is the machine's share, not the broker's. See bench/README.md.
"""

import argparse
import asyncio
import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx
from rich.table import Table

from bench.harness.running import console, machine, show_progress
from bench.harness.server_process import running_server, scratch_folder

MIB = 1024 * 1024
TOPIC, BIG, MANY, BOMBED = "bench", "big", "many", "bombed"
BIG_MESSAGES, BIG_BYTES = 24, 16 * MIB
MANY_REQUESTS, MANY_ROWS, MANY_BYTES = 100, 100, 10_000
REQUESTS_PER_SECOND = 50
GIVE_UP_SECONDS = 5.0
QUIET_SECONDS = 8.0
MOST_GROWTH_MIB, MOST_RATIO = 100, 2.0
"""More than this is a finding."""
_ROOT = Path(__file__).parents[1]
_NICENESS = 19


@dataclass(slots=True)
class Window:
    """What other clients saw, and the broker's memory, for some time."""

    waits_ms: list[float] = field(default_factory=list)
    failures: int = 0
    resident_mib: float = 0.0

    @property
    def p99_ms(self) -> float:
        return statistics.quantiles(self.waits_ms, n=100)[98]


async def others(url: str, pid: int, seconds: float, until: "asyncio.Task[Any] | None" = None) -> Window:
    """Publish and read steadily for that long, and until that task has ended."""
    window = Window()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=GIVE_UP_SECONDS)) as session:

        async def one(number: int) -> None:
            began = time.perf_counter()
            try:
                where = f"{url}/v1/topics/{TOPIC}/messages"
                ask = session.post(where, data=b"x" * 100) if number % 2 else session.get(f"{where}?limit=10")
                async with ask as answer:
                    await answer.read()
                    answer.raise_for_status()
                window.waits_ms.append((time.perf_counter() - began) * 1000)
            except (aiohttp.ClientError, TimeoutError, OSError):
                window.failures += 1
                window.waits_ms.append(GIVE_UP_SECONDS * 1000)

        began, number = time.perf_counter(), 0
        async with asyncio.TaskGroup() as tasks:
            while time.perf_counter() < began + seconds or (until is not None and not until.done()):
                await asyncio.sleep(max(0.0, began + number / REQUESTS_PER_SECOND - time.perf_counter()))
                tasks.create_task(one(number))
                number += 1
                window.resident_mib = max(window.resident_mib, resident_mib(pid))
    return window


def resident_mib(pid: int) -> float:
    """The resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * resource.getpagesize() / MIB


async def read_pages(url: str, seconds: float) -> Counter[str]:
    """24 readers ask for default pages of messages of 16 MiB, again and again."""
    seen: Counter[str] = Counter()
    largest = 0
    until = time.perf_counter() + seconds

    async def reader(session: aiohttp.ClientSession) -> None:
        nonlocal largest
        while time.perf_counter() < until:
            async with session.get(f"{url}/v1/topics/{BIG}/messages") as answer:
                size_bytes = 0
                async for chunk in answer.content.iter_chunked(MIB):
                    size_bytes += len(chunk)
                largest = max(largest, size_bytes)
                seen[str(answer.status)] += 1

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(reader(session) for _ in range(24)))
    seen["MiB the largest answer"] = largest // MIB
    return seen


async def stall_streams(topic: str, url: str, seconds: float) -> Counter[str]:
    """200 subscribers ask for everything and read nothing."""
    seen: Counter[str] = Counter()
    parts = urlsplit(url)
    opened = []
    for number in range(200):
        reader, writer = await asyncio.open_connection("127.0.0.1", parts.port, limit=1024)
        kind = "text/event-stream" if number % 2 else "application/x-ndjson"
        head = f"GET /v1/topics/{topic}/subscribe?from=earliest HTTP/1.1\r\nhost: localhost\r\naccept: {kind}"
        writer.write(f"{head}\r\n\r\n".encode())
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        opened.append((reader, writer))
    await asyncio.sleep(seconds)
    for _, writer in opened:
        seen["ended" if writer.is_closing() else "open"] += 1
        writer.transport.abort()
    return seen


async def stall_small(url: str, seconds: float) -> Counter[str]:
    return await stall_streams(MANY, url, seconds)


async def stall_big(url: str, seconds: float) -> Counter[str]:
    return await stall_streams(BIG, url, seconds)


async def put_segments(url: str, seconds: float) -> Counter[str]:
    """Five topics of 4,096 segments at once."""
    body = {"segments": 4096, "max_segments": 4096}
    return await _answers(url, [("PUT", f"/v1/topics/wide-{number}", body) for number in range(5)], seconds)


async def raise_segments(url: str, seconds: float) -> Counter[str]:
    """Five topics of as many segments as are allowed at once."""
    body = {"segments": 1024, "max_segments": 1024}
    return await _answers(url, [("PUT", f"/v1/topics/wide-{number}", body) for number in range(5)], seconds)


async def long_paths(url: str, seconds: float) -> Counter[str]:
    """1,000 paths of 60 KB."""
    return await _answers(url, [("GET", f"/v1/topics/{number}{'x' * 60_000}", None) for number in range(1000)], seconds)


async def nest_lists(url: str, seconds: float) -> Counter[str]:
    """Four bodies at once of 60 MiB of empty lists, which are forty times as large once they are parsed."""
    return await _bodies(url, "application/json", b'{"messages": [' + b"[]," * (20 * MIB) + b"[]]}", seconds)


async def send_many_rows(url: str, seconds: float) -> Counter[str]:
    """Four bodies at once of 60 MiB of the smallest messages."""
    return await _bodies(url, "application/x-ndjson", b'{"value":""}\n' * (60 * MIB // 13), seconds)


async def send_many_headers(url: str, seconds: float) -> Counter[str]:
    """Four bodies at once of messages with thousands of headers."""
    headers = b",".join(b'"%d":""' % number for number in range(5_000))
    line = b'{"value":"","headers":{' + headers + b"}}\n"
    return await _bodies(url, "application/x-ndjson", line * (60 * MIB // len(line)), seconds)


async def inflate_bodies(url: str, seconds: float) -> Counter[str]:
    """Four bodies at once of 60 KB of gzip that become 60 MiB of the smallest messages."""
    body = gzip.compress(b'{"value":""}\n' * (60 * MIB // 13))
    return await _bodies(url, "application/x-ndjson", body, seconds, {"content-encoding": "gzip"})


async def _bodies(
    url: str, content_type: str, body: bytes, seconds: float, headers: dict[str, str] | None = None
) -> Counter[str]:
    """The same body from four clients, again and again."""
    seen: Counter[str] = Counter()
    until = time.perf_counter() + seconds

    async def client(session: aiohttp.ClientSession) -> None:
        while time.perf_counter() < until:
            sent = {"content-type": content_type, **(headers or {})}
            try:
                async with session.post(f"{url}/v1/topics/{BOMBED}/messages", data=body, headers=sent) as answer:
                    await answer.read()
                    seen[str(answer.status)] += 1
            except aiohttp.ClientError as error:
                seen[type(error).__name__] += 1

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
        await asyncio.gather(*(client(session) for _ in range(4)))
    return seen


async def _answers(url: str, requests: list[tuple[str, str, Any]], seconds: float) -> Counter[str]:
    seen: Counter[str] = Counter()
    gate = asyncio.Semaphore(20)

    async def one(method: str, path: str, body: Any) -> None:
        async with gate, session.request(method, url + path, json=body) as answer:
            await answer.read()
            seen[str(answer.status)] += 1

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
        await asyncio.gather(*(one(*each) for each in requests))
    await asyncio.sleep(seconds)
    return seen


@dataclass(frozen=True, slots=True)
class Attack:
    what: str
    run: Callable[[str, float], Awaitable[Counter[str]]]


ATTACKS = {
    "pages": Attack("24 readers of default pages, 24 messages of 16 KB gzip and 16 MiB", read_pages),
    "streams": Attack("200 subscribers that do not read, messages of 10 KB", stall_small),
    "big-streams": Attack("200 subscribers that do not read, messages of 16 MiB", stall_big),
    "segments": Attack("5 PUTs with 4,096 segments", put_segments),
    "wide": Attack("5 PUTs with 1,024 segments", raise_segments),
    "paths": Attack("1,000 paths of 60 KB", long_paths),
    "lists": Attack("4 bodies at a time of 60 MiB of empty lists", nest_lists),
    "rows": Attack("4 bodies at a time of 60 MiB of empty messages", send_many_rows),
    "headers": Attack("4 bodies at a time of messages with 5,000 headers", send_many_headers),
    "inflated": Attack("4 bodies at a time of 60 MiB of empty messages, as gzip", inflate_bodies),
}


def prepare(url: str, name: str) -> None:
    """The topics that an attack and the other clients need."""
    httpx.put(f"{url}/v1/topics/{TOPIC}", json={}).raise_for_status()
    httpx.post(f"{url}/v1/topics/{TOPIC}/messages", content=b"x").raise_for_status()
    httpx.put(f"{url}/v1/topics/{BOMBED}", json={}).raise_for_status()
    if name in ("pages", "big-streams"):
        httpx.put(f"{url}/v1/topics/{BIG}", json={}).raise_for_status()
        body = gzip.compress(b"a" * BIG_BYTES)
        for _ in range(BIG_MESSAGES):
            encoding = {"content-encoding": "gzip"}
            httpx.post(f"{url}/v1/topics/{BIG}/messages", content=body, headers=encoding, timeout=30).raise_for_status()
    if name == "streams":
        httpx.put(f"{url}/v1/topics/{MANY}", json={}).raise_for_status()
        line = json.dumps({"value": "x" * MANY_BYTES}) + "\n"
        kind = {"content-type": "application/x-ndjson"}
        for _ in range(MANY_REQUESTS):
            content = (line * MANY_ROWS).encode()
            httpx.post(f"{url}/v1/topics/{MANY}/messages", content=content, headers=kind).raise_for_status()


async def measure(name: str, seconds: float, checkout: Path, *, elsewhere: bool) -> tuple[Window, Window, str]:
    """Other clients before and during an attack on a new broker, and what the attacker saw."""
    with ExitStack() as running:
        folder = running.enter_context(scratch_folder())

        def broker(data: str) -> tuple[str, int]:
            arguments = ["serve", "--data", str(folder / data), "--port", "0", "--log-level", "warning"]
            return running.enter_context(running_server("mq.cli.main", arguments, checkout=checkout))

        url, pid = broker("data")
        attacked, _ = broker("attacked") if elsewhere else (url, pid)
        for each in {url, attacked}:
            await asyncio.to_thread(prepare, each, name)
        await others(url, pid, 2.0)
        before = await others(url, pid, QUIET_SECONDS)
        attacking = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.request_attacks", "--attack", name, attacked, str(seconds),
            stdout=subprocess.PIPE, cwd=_ROOT,
        )  # fmt: skip
        ended = asyncio.create_task(attacking.communicate())
        during = await others(url, pid, seconds, ended)
        output, _ = await ended
    return before, during, output.decode().strip() or "failed"


def _row(attack: Attack, before: Window, during: Window, seen: str) -> list[str]:
    growth_mib = during.resident_mib - before.resident_mib
    met = during.p99_ms <= MOST_RATIO * before.p99_ms and growth_mib <= MOST_GROWTH_MIB and not during.failures
    return [
        attack.what,
        f"{before.p99_ms:.1f} ms",
        f"{during.p99_ms:.1f} ms",
        str(during.failures),
        f"{before.resident_mib:.0f} MiB",
        f"{during.resident_mib:.0f} MiB",
        seen,
        "met" if met else "missed",
    ]


def main() -> None:
    if sys.argv[1:2] == ["--attack"]:
        os.nice(_NICENESS)
        _, _, name, url, seconds = sys.argv
        if urlsplit(url).hostname != "127.0.0.1":
            sys.exit(f"an attack goes to 127.0.0.1 only, not to {url}")
        seen = asyncio.run(_count(ATTACKS[name], url, float(seconds)))
        print(", ".join(f"{count}x {what}" for what, count in sorted(seen.items())))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each attack lasts (15)")
    parser.add_argument("--only", action="append", choices=list(ATTACKS), metavar="ATTACK", help=", ".join(ATTACKS))
    parser.add_argument("--checkout", type=Path, default=_ROOT, help="attack the broker of another checkout")
    parser.add_argument("--elsewhere", action="store_true", help="attack another broker of this machine")
    options = parser.parse_args()
    table = Table("attack", "others' p99 before", "during", "failed", "memory before", "during", "the attacker saw", "")
    for name in options.only or ATTACKS:
        show_progress(ATTACKS[name].what)
        row = _row(
            ATTACKS[name], *asyncio.run(measure(name, options.seconds, options.checkout, elsewhere=options.elsewhere))
        )
        show_progress("; ".join(row))
        table.add_row(*row)
    console().print(f"{machine()}; each attack for {options.seconds:g} s", markup=False)
    console().print(table)


async def _count(attack: Attack, url: str, seconds: float) -> Counter[str]:
    return await attack.run(url, seconds)


if __name__ == "__main__":
    main()
