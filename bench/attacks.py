"""What attacks on its connections do to a broker: the p99 of other clients and its memory, before and during each.

    python bench/attacks.py [--seconds 30] [--only ATTACK ...] [--checkout FOLDER]

Each attack gets a new `mq serve` with default settings. The other clients publish single messages at an even pace,
half of them on connections that stay open and half on new ones. All traffic stays on 127.0.0.1, bounded in count and
time. See bench/README.md.
"""

import argparse
import asyncio
import contextlib
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import httpx
from rich.table import Table

from bench.harness.attacker import ATTACKS, BIG_BYTES, BIG_TOPIC, TOPIC, Attack
from bench.harness.running import console, machine, show_progress
from bench.harness.server_process import BenchFailed, running_server, scratch_folder

PUBLISHES_PER_SECOND = 50
QUIET_SECONDS = 10.0
GIVE_UP_SECONDS = 5.0
MOST_GROWTH_MIB, MOST_RATIO = 100, 2.0
"""More than this is a finding."""
_ROOT = Path(__file__).parents[1]


@dataclass(slots=True)
class Window:
    """What other clients saw, and the broker's memory, for some time."""

    waits_ms: list[float] = field(default_factory=list)
    failures: int = 0
    resident_mib: float = 0.0

    @property
    def p99_ms(self) -> float:
        return statistics.quantiles(self.waits_ms, n=100)[98]


class OtherClients:
    """Publish steadily; one that fails or waits for `GIVE_UP_SECONDS` counts as a failure with that wait."""

    def __init__(self, url: str, pid: int) -> None:
        self._url, self._pid = f"{url}/v1/topics/{TOPIC}/messages", pid
        self.window = Window()

    async def during(self, seconds: float) -> Window:
        """Publish for that long; what was seen."""
        self.window = window = Window()
        timeout = aiohttp.ClientTimeout(total=GIVE_UP_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as kept:
            began = time.perf_counter()
            async with asyncio.TaskGroup() as tasks:
                for number in range(int(seconds * PUBLISHES_PER_SECOND)):
                    await asyncio.sleep(max(0.0, began + number / PUBLISHES_PER_SECOND - time.perf_counter()))
                    tasks.create_task(self._publish(kept if number % 2 else None, window))
                    window.resident_mib = max(window.resident_mib, resident_mib(self._pid))
        return window

    async def _publish(self, kept: aiohttp.ClientSession | None, window: Window) -> None:
        began = time.perf_counter()
        try:
            if kept is not None:
                await self._post(kept)
            else:
                timeout = aiohttp.ClientTimeout(total=GIVE_UP_SECONDS)
                async with aiohttp.ClientSession(timeout=timeout) as new:
                    await self._post(new)
        except (aiohttp.ClientError, TimeoutError, OSError):
            window.failures += 1
            window.waits_ms.append(GIVE_UP_SECONDS * 1000)
        else:
            window.waits_ms.append((time.perf_counter() - began) * 1000)

    async def _post(self, session: aiohttp.ClientSession) -> None:
        async with session.post(self._url, data=b"x" * 100) as answer:
            await answer.read()
            answer.raise_for_status()


def resident_mib(pid: int) -> float:
    """The resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    options = _options()
    table = Table("attack", "others' p99 before", "during", "failed", "memory before", "during", "the attacker saw", "")
    for column in table.columns[1:6]:
        column.justify = "right"
    try:
        for name in options.only or ATTACKS:
            show_progress(ATTACKS[name].what)
            _add(table, ATTACKS[name], *asyncio.run(measure(name, options.seconds, options.checkout)))
    except BenchFailed as error:
        sys.exit(f"bench: {error}")
    screen = console()
    screen.print(f"{machine()}; each attack for {options.seconds:g} s", markup=False)
    screen.print(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each attack lasts (30)")
    parser.add_argument("--only", action="append", choices=list(ATTACKS), metavar="ATTACK", help=", ".join(ATTACKS))
    parser.add_argument("--checkout", type=Path, default=_ROOT, help="attack the broker of another checkout")
    options = parser.parse_args()
    if not 1 <= options.seconds <= 600:
        parser.error("--seconds must be from 1 to 600")
    return options


async def measure(name: str, seconds: float, checkout: Path) -> tuple[Window, Window, dict[str, Any]]:
    """Other clients before and during an attack on a new broker, and what the attacker saw."""
    attack = ATTACKS[name]
    with _broker(attack, checkout) as (url, pid):
        httpx.put(f"{url}/v1/topics/{TOPIC}", json={}).raise_for_status()
        httpx.put(f"{url}/v1/topics/{BIG_TOPIC}", json={}).raise_for_status()
        httpx.post(f"{url}/v1/topics/{BIG_TOPIC}/messages", content=b"x" * BIG_BYTES).raise_for_status()
        others = OtherClients(url, pid)
        await others.during(2.0)
        before = await others.during(QUIET_SECONDS)
        attacking = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.harness.attacker", name, url, str(seconds), stdout=subprocess.PIPE, cwd=_ROOT
        )
        during = await others.during(seconds)
        output, _ = await attacking.communicate()
    return before, during, json.loads(output or b'{"outcomes": {"failed": 1}, "last_seconds": null}')


@contextlib.contextmanager
def _broker(attack: Attack, checkout: Path) -> Iterator[tuple[str, int]]:
    with scratch_folder() as folder:
        arguments = ["serve", "--data", str(folder / "data"), "--port", "0", "--log-level", "warning"]
        with running_server("mq.cli.main", arguments, checkout=checkout, open_files=attack.open_files) as running:
            yield running


def _add(table: Table, attack: Attack, before: Window, during: Window, seen: dict[str, Any]) -> None:
    growth_mib = during.resident_mib - before.resident_mib
    met = during.p99_ms <= MOST_RATIO * before.p99_ms and growth_mib <= MOST_GROWTH_MIB and not during.failures
    outcomes = ", ".join(f"{count}x {what}" for what, count in sorted(seen["outcomes"].items()))
    last = "" if seen["last_seconds"] is None else f", the last after {seen['last_seconds']:g} s"
    table.add_row(
        attack.what,
        f"{before.p99_ms:.1f} ms",
        f"{during.p99_ms:.1f} ms",
        str(during.failures),
        f"{before.resident_mib:.0f} MiB",
        f"{during.resident_mib:.0f} MiB",
        outcomes + last,
        "met" if met else "missed",
    )


if __name__ == "__main__":
    main()
