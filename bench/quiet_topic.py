"""A quiet topic beside the many subscribers of a busy one: what its publisher and its subscriber wait.

    python -m bench.quiet_topic [--rounds 3] [--seconds 5] [--subscribers 300] [--per-second 200]

The quiet topic has 100 messages a second, a publisher with one connection, and one subscriber (NDJSON). It is measured
with nothing else at the broker, beside the publisher of the busy topic, and beside its subscribers too, in turns. See
bench/README.md.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from rich.table import Table

from bench.fan_out import MOST_RATIO, ROOT, TIMEOUT_SECONDS, Readers, p99, publish
from bench.harness.publishing import TOPIC
from bench.harness.running import console, machine, show_progress
from bench.harness.server_process import BenchFailed, running_server, scratch_folder

QUIET, QUIET_PER_SECOND = "quiet", 100
ALONE, BESIDE_PUBLISHER, BESIDE_SUBSCRIBERS = "alone", "beside the busy publisher", "beside its subscribers too"


@dataclass(slots=True)
class Waits:
    """Milliseconds until messages were acknowledged, and until the subscriber had them."""

    acked_ms: list[float] = field(default_factory=list)
    arrived_ms: list[float] = field(default_factory=list)


class Pair:
    """The process of the quiet topic's publisher and subscriber."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout

    @classmethod
    async def begin(cls, url: str) -> "Pair":
        """Have the subscriber begin."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.harness.quiet_pair", url, QUIET, str(QUIET_PER_SECOND),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, limit=2**24,
        )  # fmt: skip
        pair = cls(process)
        if await asyncio.wait_for(pair._stdout.readline(), TIMEOUT_SECONDS) != b"ready\n":
            raise BenchFailed("the quiet topic's subscriber did not begin")
        return pair

    async def measure(self, seconds: float, into: Waits) -> None:
        """Have messages published for so long."""
        self._stdin.write(b"%g\n" % seconds)
        acked_ms, arrived_ms = json.loads(await asyncio.wait_for(self._stdout.readline(), seconds + TIMEOUT_SECONDS))
        into.acked_ms += acked_ms
        into.arrived_ms += arrived_ms

    async def end(self) -> None:
        """Have both go away."""
        self._stdin.close()
        await self._process.wait()


async def measure(subscribers: int, per_second: float, rounds: int, seconds: float, checkout: Path) -> dict[str, Waits]:
    """What the quiet topic's messages take in each case."""
    waits = {case: Waits() for case in (ALONE, BESIDE_PUBLISHER, BESIDE_SUBSCRIBERS)}
    with scratch_folder() as folder:
        arguments = ["serve", "--data", str(folder / "data"), "--port", "0", "--log-level", "error"]
        with running_server("mq.cli.main", arguments, checkout=checkout) as (url, _):
            for topic in (TOPIC, QUIET):
                httpx.put(f"{url}/v1/topics/{topic}", json={}).raise_for_status()
            pair = await Pair.begin(url)
            await pair.measure(1, Waits())
            for _ in range(rounds):
                await pair.measure(seconds, waits[ALONE])
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(publish(url, per_second, seconds + 1))
                    await asyncio.sleep(0.5)
                    await pair.measure(seconds, waits[BESIDE_PUBLISHER])
                readers = await Readers.begin(url, subscribers)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(publish(url, per_second, seconds + 1))
                    await asyncio.sleep(0.5)
                    before = await readers.count()
                    await pair.measure(seconds, waits[BESIDE_SUBSCRIBERS])
                    if await readers.count() - before < subscribers * per_second * seconds / 2:
                        raise BenchFailed("the subscribers of the busy topic got less than half of its messages")
                await readers.end()
            await pair.end()
    return waits


def rows(waits: dict[str, Waits]) -> list[list[str]]:
    """The table."""
    alone = waits[ALONE]
    found = []
    for case, each in waits.items():
        ratios = [p99(each.acked_ms) / p99(alone.acked_ms), p99(each.arrived_ms) / p99(alone.arrived_ms)]
        found.append(
            [
                case,
                f"{statistics.median(each.acked_ms):.1f}, {p99(each.acked_ms):.1f} ms",
                f"{statistics.median(each.arrived_ms):.1f}, {p99(each.arrived_ms):.1f} ms",
                ", ".join(f"{ratio:.2f}" for ratio in ratios) if each is not alone else "",
                "" if each is alone else "met" if max(ratios) <= MOST_RATIO else "missed",
            ]
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each case is measured (3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each time (5)")
    parser.add_argument("--subscribers", type=int, default=300, help="of the busy topic (300)")
    parser.add_argument("--per-second", type=float, default=200.0, help="messages of the busy topic (200)")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="measure the broker of another checkout")
    options = parser.parse_args()
    if options.rounds < 1 or not 1 <= options.seconds <= 600 or not 1 <= options.per_second <= 100_000:
        parser.error("--rounds must be 1 or more, --seconds from 1 to 600, --per-second from 1 to 100000")
    table = Table("a quiet topic", "acknowledged, p50, p99", "at the subscriber, p50, p99", "p99, ratios", "")
    for column in table.columns[1:]:
        column.justify = "right"
    show_progress(f"a quiet topic beside {options.subscribers} subscribers")
    each = measure(options.subscribers, options.per_second, options.rounds, options.seconds, options.checkout)
    try:
        for row in rows(asyncio.run(each)):
            table.add_row(*row)
    except BenchFailed as error:
        sys.exit(f"bench: {error}")
    screen = console()
    screen.print(
        f"{machine()}; {options.rounds} rounds of {options.seconds:g} s; {options.subscribers} subscribers, "
        f"{options.per_second:g} messages/s",
        markup=False,
    )
    screen.print(table)


if __name__ == "__main__":
    main()
