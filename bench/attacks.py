"""What attacks do to a broker: the p99 of other clients and its memory, without and with each.

    python bench/attacks.py [--rounds 3] [--seconds 5] [--only ATTACK ...] [--all] [--checkout FOLDER]

Each attack gets two new `mq serve` with default settings. In each round other clients use the first one at an even pace
three times: alone, while the *second* broker is attacked, and while the first one is. What they lose in the second
case is the machine's share: the attacker, the clients and both brokers run on the same processors. The attacker is a
process of the lowest priority. All traffic stays on 127.0.0.1, bounded in count and time. See bench/README.md.
"""

import argparse
import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from rich.table import Table

from bench.attacking import ATTACKS, OF_THE_ISSUE
from bench.attacking.attack import TOPIC, Attack
from bench.harness.other_clients import OtherClients, Window
from bench.harness.running import console, machine, show_progress
from bench.harness.server_process import BenchFailed, running_server, scratch_folder

MOST_GROWTH_MIB, MOST_RATIO = 100, 2.0
"""More than this is a finding."""
WARM_UP_SECONDS = 2.0
_ROOT = Path(__file__).parents[1]


@dataclass(slots=True)
class Figures:
    """All rounds of one attack."""

    alone: Window = field(default_factory=Window)
    elsewhere: Window = field(default_factory=Window)
    attacked: Window = field(default_factory=Window)
    before_mib: float = 0.0
    seen: str = ""

    @property
    def growth_mib(self) -> float:
        return self.attacked.resident_mib - self.before_mib

    @property
    def met(self) -> bool:
        """Whether the other clients and the memory are within the bounds."""
        within = self.attacked.p99_ms <= MOST_RATIO * self.alone.p99_ms and self.growth_mib <= MOST_GROWTH_MIB
        return within and not self.attacked.failures

    def row(self, what: str) -> list[str]:
        return [
            what,
            f"{self.alone.p99_ms:.1f} ms",
            f"{self.elsewhere.p99_ms:.1f} ms",
            f"{self.attacked.p99_ms:.1f} ms",
            f"{self.attacked.p99_ms / self.alone.p99_ms:.2f}",
            f"{self.attacked.p99_ms / self.elsewhere.p99_ms:.2f}",
            str(self.attacked.failures),
            f"{self.before_mib:.0f} MiB",
            f"{self.attacked.resident_mib:.0f} MiB",
            self.seen,
            "met" if self.met else "missed",
        ]


async def measure(name: str, rounds: int, seconds: float, checkout: Path) -> Figures:
    """What other clients of a broker see, alone, while another one is attacked, and while it is."""
    attack, figures = ATTACKS[name], Figures()
    with ExitStack() as running:
        url, pid = running.enter_context(_broker(attack, checkout))
        other, _ = running.enter_context(_broker(attack, checkout))
        for each in (url, other):
            await asyncio.to_thread(_prepare, each, attack)
        clients = OtherClients(url, pid)
        await clients.during(WARM_UP_SECONDS)
        for number in range(rounds):
            figures.alone.add(await clients.during(seconds))
            if not number:
                figures.before_mib = figures.alone.resident_mib
            elsewhere, _ = await _under_attack(clients, name, other, seconds)
            figures.elsewhere.add(elsewhere)
            attacked, figures.seen = await _under_attack(clients, name, url, seconds)
            figures.attacked.add(attacked)
    return figures


@contextlib.contextmanager
def _broker(attack: Attack, checkout: Path) -> Iterator[tuple[str, int]]:
    with scratch_folder() as folder:
        arguments = ["serve", "--data", str(folder / "data"), "--port", "0", "--log-level", "error"]
        with running_server("mq.cli.main", arguments, checkout=checkout, open_files=attack.open_files) as running:
            yield running


def _prepare(url: str, attack: Attack) -> None:
    httpx.put(f"{url}/v1/topics/{TOPIC}", json={}).raise_for_status()
    httpx.post(f"{url}/v1/topics/{TOPIC}/messages", content=b"x").raise_for_status()
    attack.prepare(url)


async def _under_attack(clients: OtherClients, name: str, url: str, seconds: float) -> tuple[Window, str]:
    """What the clients see while that broker is attacked, and what the attacker sees."""
    attacker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.attacking", name, url, str(seconds),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT,
    )  # fmt: skip
    try:
        assert attacker.stdout is not None
        await attacker.stdout.readline()
        output = asyncio.create_task(attacker.communicate(b"\n"))
        window = await clients.during(seconds, output)
        return window, (await output)[0].decode().strip() or "failed"
    finally:
        if attacker.returncode is None:
            attacker.kill()
            await attacker.wait()


def main() -> None:
    options = _options()
    columns = ("alone", "elsewhere", "attacked", "/ alone", "/ elsewhere", "failed", "memory before", "during")
    table = Table("attack", *columns, "the attacker saw", "")
    for column in table.columns[1:9]:
        column.justify = "right"
    try:
        for name in options.only or (ATTACKS if options.all else OF_THE_ISSUE):
            figures = asyncio.run(measure(name, options.rounds, options.seconds, options.checkout))
            row = figures.row(ATTACKS[name].what)
            show_progress(f"{name}: " + "; ".join(row[1:]))
            table.add_row(*row)
    except BenchFailed as error:
        sys.exit(f"bench: {error}")
    screen = console()
    screen.print(f"{machine()}; p99 of other clients, {options.rounds} rounds of {options.seconds:g} s", markup=False)
    screen.print(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each case is measured (3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each time (5)")
    parser.add_argument("--only", action="append", choices=list(ATTACKS), metavar="ATTACK", help=", ".join(ATTACKS))
    parser.add_argument("--all", action="store_true", help="also the attacks beyond those of the issue")
    parser.add_argument("--checkout", type=Path, default=_ROOT, help="attack the broker of another checkout")
    options = parser.parse_args()
    if options.rounds < 1 or not 1 <= options.seconds <= 600:
        parser.error("--rounds must be 1 or more, --seconds from 1 to 600")
    return options


if __name__ == "__main__":
    main()
