"""Many subscribers of one topic: what they get, and what they cost its publisher.

    python -m bench.fan_out [--rounds 3] [--seconds 5] [--subscribers 100 --subscribers 300] [--per-second 200]

Messages of 100 bytes are offered at an even pace, however long answers take, over 16 connections: alone, and while the
subscribers (NDJSON, from `latest`) read. They are a process of their own on the same processors. It is of lowest
priority: they stand for clients on other machines. See bench/README.md.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import httpx
from rich.table import Table

from bench.harness.process_use import used_by
from bench.harness.publishing import TOPIC
from bench.harness.running import console, machine, show_progress
from bench.harness.server_process import BenchFailed, running_server, scratch_folder

CONNECTIONS = 16
TIMEOUT_SECONDS = 30.0
MOST_RATIO = 2.0
"""More than this costs the publisher too much."""
READERS_NICE = 0
"""How far the subscribers stand back for others. They share the processors of the broker, as peers' clients do."""
ROOT = Path(__file__).parents[1]
_BODY = b"x" * 100


@dataclass(slots=True)
class Figures:
    """All rounds with so many subscribers."""

    alone_ms: list[float] = field(default_factory=list)
    beside_ms: list[float] = field(default_factory=list)
    published: int = 0
    delivered: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    memory_mib: float = 0.0
    """The broker's, at most."""

    @property
    def p99_ratio(self) -> float:
        """How much longer the publisher waits beside the subscribers."""
        return p99(self.beside_ms) / p99(self.alone_ms)

    def row(self, subscribers: int, per_second: float) -> list[str]:
        alone_ms, beside_ms = p99(self.alone_ms), p99(self.beside_ms)
        return [
            str(subscribers),
            f"{per_second:g}/s",
            f"{self.published / self.seconds:,.0f}/s",
            f"{self.delivered / self.seconds:,.0f}/s",
            f"{self.processor_seconds / self.seconds:.2f}",
            f"{self.memory_mib:.0f} MiB",
            f"{statistics.median(self.alone_ms):.1f}, {alone_ms:.1f} ms",
            f"{statistics.median(self.beside_ms):.1f}, {beside_ms:.1f} ms",
            f"{self.p99_ratio:.2f}",
            "met" if self.p99_ratio <= MOST_RATIO else "missed",
        ]


def p99(waits_ms: list[float]) -> float:
    """What all but a hundredth of them stay below."""
    return statistics.quantiles(waits_ms, n=100)[98]


class Readers:
    """The process of the subscribers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout

    @classmethod
    async def begin(cls, url: str, count: int, *, stalled: int = 0, nice: int = READERS_NICE) -> "Readers":
        """Have so many subscribers read, and others stall; returns when all have begun."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.harness.stream_readers", url, TOPIC, str(count), str(stalled), str(nice),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
        )  # fmt: skip
        readers = cls(process)
        if await asyncio.wait_for(readers._stdout.readline(), TIMEOUT_SECONDS) != b"ready\n":
            raise BenchFailed("the subscribers did not begin")
        return readers

    async def count(self) -> int:
        """How many messages all of them have got so far, and keep-alives."""
        self._stdin.write(b"\n")
        return int(await asyncio.wait_for(self._stdout.readline(), TIMEOUT_SECONDS))

    async def end(self) -> None:
        """Have them go away."""
        self._stdin.close()
        await self._process.wait()


async def publish(url: str, per_second: float, seconds: float) -> list[float]:
    """Publish at an even pace; how long each answer took, from the time at which the message was due, in ms."""
    waits_ms: list[float] = []
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)

    async def one(due_seconds: float) -> None:
        async with session.post(f"{url}/v1/topics/{TOPIC}/messages", data=_BODY) as answer:
            await answer.read()
            if answer.status != 200:
                raise BenchFailed(f"a publish was answered {answer.status}")
        waits_ms.append((time.perf_counter() - due_seconds) * 1000)

    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session, asyncio.TaskGroup() as tasks:
        began_seconds = time.perf_counter()
        for number in range(round(per_second * seconds)):
            due_seconds = began_seconds + number / per_second
            await asyncio.sleep(max(0.0, due_seconds - time.perf_counter()))
            tasks.create_task(one(due_seconds))
    return waits_ms


async def measure(
    subscribers: int,
    per_second: float,
    rounds: int,
    seconds: float,
    checkout: Path = ROOT,
    *,
    stalled: int = 0,
    nice: int = READERS_NICE,
) -> Figures:
    """What so many subscribers get, in rounds with and without them."""
    figures = Figures()
    with scratch_folder() as folder:
        arguments = ["serve", "--data", str(folder / "data"), "--port", "0", "--log-level", "error"]
        with running_server("mq.cli.main", arguments, checkout=checkout) as (url, pid):
            httpx.put(f"{url}/v1/topics/{TOPIC}", json={}).raise_for_status()
            await publish(url, per_second, 1)
            for _ in range(rounds):
                figures.alone_ms += await publish(url, per_second, seconds)
                readers = await Readers.begin(url, subscribers, stalled=stalled, nice=nice)
                await publish(url, per_second, 1)
                before = await readers.count()
                with used_by(pid) as use:
                    figures.beside_ms += (waits_ms := await publish(url, per_second, seconds))
                    figures.published += len(waits_ms)
                    figures.delivered += await readers.count() - before
                figures.seconds += use.seconds
                figures.processor_seconds += use.processor_seconds
                figures.memory_mib = max(figures.memory_mib, use.memory_mib)
                await readers.end()
    if not figures.delivered:
        raise BenchFailed("nothing was delivered")
    return figures


def main() -> None:
    options = _options()
    table = Table(
        *("subscribers", "offered", "published", "delivered", "processors", "memory", "p50, p99 alone", "beside them"),
        *("", ""),
    )
    for column in table.columns:
        column.justify = "right"
    try:
        for subscribers in options.subscribers or (100, 300):
            show_progress(f"{subscribers} subscribers")
            asked = (subscribers, options.per_second, options.rounds, options.seconds, options.checkout)
            each = measure(*asked, stalled=options.stalled, nice=options.nice)
            row = asyncio.run(each).row(subscribers, options.per_second)
            show_progress("; ".join(row))
            table.add_row(*row)
    except BenchFailed as error:
        sys.exit(f"bench: {error}")
    screen = console()
    screen.print(f"{machine()}; {options.rounds} rounds of {options.seconds:g} s", markup=False)
    screen.print(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each case is measured (3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each time (5)")
    parser.add_argument("--subscribers", type=int, action="append", help="how many, may be repeated (100 and 300)")
    parser.add_argument("--per-second", type=float, default=200.0, help="messages that are offered (200)")
    parser.add_argument("--stalled", type=int, default=0, help="subscribers beside them who never read (0)")
    parser.add_argument(
        "--nice", type=int, default=READERS_NICE, help="how far subscribers stand back, from 0 to 19 (0)"
    )
    parser.add_argument("--checkout", type=Path, default=ROOT, help="measure the broker of another checkout")
    options = parser.parse_args()
    if options.rounds < 1 or not 1 <= options.seconds <= 600 or not 1 <= options.per_second <= 100_000:
        parser.error("--rounds must be 1 or more, --seconds from 1 to 600, --per-second from 1 to 100000")
    return options


if __name__ == "__main__":
    main()
