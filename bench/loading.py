"""What a load by reference costs a broker beside publishing the same messages inline, and what publishers feel of it.

    python bench/loading.py [--rounds 3] [--messages 5000000] [--only cost|beside]

The broker is a real `mq serve` with its files in memory (/dev/shm). See bench/README.md.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from rich.table import Table

from bench.beside_a_load import OnlinePublisher, Waits, waits_of
from bench.bulk_sending import INLINE, LOADED, VALUE_BYTES, send
from bench.publishing import TOPIC
from bench.running import console, machine, tell
from bench.server_process import BenchFailed, measured_broker

MESSAGES = 5_000_000
COST_TARGET = 0.20
BESIDE_TARGET = 3.0
QUIET_SECONDS = 15.0
IDLE_SECONDS = 5.0
SETTLE_SECONDS = 2.0
"""What a broker still does after its last answer is counted too."""
SEGMENTS = (1, 4)
"""Open ones where messages are published, those of the load where they are loaded."""
COST, BESIDE = "cost", "beside"


@dataclass(slots=True)
class Cost:
    """Processor microseconds of the broker and its processes per message, and messages a second, round by round."""

    cpu_us: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)


def main() -> None:
    options = _options()
    table = Table("case")
    for title in ("measured", "target", ""):
        table.add_column(title, justify="right", no_wrap=True)
    try:
        if options.only != BESIDE:
            for segments in SEGMENTS:
                _add_costs(table, segments, measure_cost(options.messages, segments, options.rounds))
        if options.only != COST:
            _add_beside(table, [asyncio.run(measure_beside(options.messages)) for _ in range(options.rounds)])
    except BenchFailed as error:
        sys.exit(f"bench: {error}")
    screen = console()
    screen.print(
        f"{machine()}; {options.messages:,} messages of {VALUE_BYTES} B, {options.rounds} rounds", markup=False
    )
    screen.print(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count (3)")
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"messages of {VALUE_BYTES} B ({MESSAGES})")
    parser.add_argument("--only", choices=[COST, BESIDE])
    options = parser.parse_args()
    if options.rounds < 1 or options.messages < 1:
        parser.error("--rounds and --messages must be 1 or more")
    return options


def measure_cost(messages: int, segments: int, rounds: int) -> dict[str, Cost]:
    """Both ways in every round, in a random order, each with a new broker and an empty folder."""
    costs = {INLINE: Cost(), LOADED: Cost()}
    for number in range(rounds):
        for way in random.sample([INLINE, LOADED], 2):
            tell(f"round {number + 1} of {rounds}: {way}, segments: {segments}")
            with measured_broker() as (url, pid):
                httpx.put(f"{url}/v1/topics/{TOPIC}", json={"segments": segments}).raise_for_status()
                httpx.post(f"{url}/v1/topics/{TOPIC}/messages", content=b"what is made at first use").raise_for_status()
                idle_share = _idle_share(pid)
                began_seconds, begun_at = _cpu_seconds(pid), time.perf_counter()
                took_seconds = send(way, url, messages, segments)
                time.sleep(SETTLE_SECONDS)
                idle_seconds = idle_share * (time.perf_counter() - begun_at)
                spent_seconds = _cpu_seconds(pid) - began_seconds - idle_seconds
            costs[way].cpu_us.append(spent_seconds * 1e6 / messages)
            costs[way].rates.append(messages / took_seconds)
    return costs


async def measure_beside(messages: int) -> tuple[Waits, Waits]:
    """A publisher's waits while nothing else happens, and beside a load from its begin to its end."""
    tell("a publisher, quiet and beside a load")
    with measured_broker() as (url, _):
        httpx.put(f"{url}/v1/topics/{TOPIC}", json={}).raise_for_status()
        async with OnlinePublisher(url, TOPIC) as publisher:
            await asyncio.sleep(SETTLE_SECONDS)
            quiet = time.perf_counter()
            await asyncio.sleep(QUIET_SECONDS)
            began = time.perf_counter()
            await asyncio.to_thread(send, LOADED, url, messages, 1)
            ended = time.perf_counter()
    return waits_of(publisher.published, quiet, began), waits_of(publisher.published, began, ended)


def _idle_share(pid: int) -> float:
    """Processor seconds a second of a broker that has nothing to do, which is what it costs without any message."""
    began_seconds = _cpu_seconds(pid)
    time.sleep(IDLE_SECONDS)
    return (_cpu_seconds(pid) - began_seconds) / IDLE_SECONDS


def _cpu_seconds(pid: int) -> float:
    """Processor time of a process and of those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _add_costs(table: Table, segments: int, costs: dict[str, Cost]) -> None:
    for way, cost in costs.items():
        shown = f"{statistics.median(cost.cpu_us):.3f} us CPU, {statistics.median(cost.rates):,.0f}/s"
        table.add_row(f"{way}, segments: {segments}, a message", shown, "", "")
    ratio = statistics.median(costs[LOADED].cpu_us) / statistics.median(costs[INLINE].cpu_us)
    table.add_row(
        f"CPU, loaded to inline, segments: {segments}", f"{ratio:.2f}", f"{COST_TARGET:.2f}", _met(ratio <= COST_TARGET)
    )


def _add_beside(table: Table, waits: Sequence[tuple[Waits, Waits]]) -> None:
    for what, seen in (("quiet", [quiet for quiet, _ in waits]), ("beside a load", [beside for _, beside in waits])):
        p50, p99, pause = (
            statistics.median(getattr(one, name) for one in seen) for name in ("p50_ms", "p99_ms", "pause_ms")
        )
        paused = f"; pause {pause:.0f} ms" if pause else ""
        table.add_row(f"publisher, {what}", f"p50 {p50:.1f} ms, p99 {p99:.1f} ms{paused}", "", "")
    ratio = statistics.median(beside.p99_ms / quiet.p99_ms for quiet, beside in waits)
    table.add_row("p99, beside to quiet", f"{ratio:.1f}", f"{BESIDE_TARGET:.1f}", _met(ratio <= BESIDE_TARGET))


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"


if __name__ == "__main__":
    main()
