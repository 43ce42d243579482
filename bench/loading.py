"""What a bulk load costs a broker compared with publishing inline, and how much it delays other publishers.

    python bench/loading.py [--rounds 3] [--messages 5000000] [--only cost|disturbance]

The broker is a real `mq serve` with its files in memory (/dev/shm). See bench/README.md.
"""

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx
from rich.table import Table

from bench.harness.bulk_sending import INLINE, LOADED, VALUE_BYTES, send
from bench.harness.online_publisher import OnlinePublisher, Waits, waits_of
from bench.harness.process_use import processor_seconds_with_children
from bench.harness.publishing import TOPIC
from bench.harness.running import console, machine, show_progress
from bench.harness.server_process import BenchFailed, measured_broker

MESSAGES = 5_000_000
COST_TARGET = 0.20
DISTURBANCE_TARGET = 3.0
QUIET_SECONDS = 15.0
IDLE_SECONDS = 5.0
SETTLE_SECONDS = 2.0
"""What a broker still does after its last answer counts too."""
SEGMENTS = (1, 4)
"""Open segments for inline publishing; segments of the bulk load otherwise."""
COST, DISTURBANCE = "cost", "disturbance"


@dataclass(slots=True)
class Cost:
    """Processor microseconds per message of the broker and its child processes, and messages per second, per round."""

    cpu_us: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)


def main() -> None:
    options = _options()
    table = Table("case")
    for title in ("measured", "target", ""):
        table.add_column(title, justify="right", no_wrap=True)
    try:
        if options.only != DISTURBANCE:
            for segments in SEGMENTS:
                _add_costs(table, segments, measure_cost(options.messages, segments, options.rounds))
        if options.only != COST:
            _add_disturbance(table, [asyncio.run(measure_disturbance(options.messages)) for _ in range(options.rounds)])
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
    parser.add_argument("--only", choices=[COST, DISTURBANCE])
    options = parser.parse_args()
    if options.rounds < 1 or options.messages < 1:
        parser.error("--rounds and --messages must be 1 or more")
    return options


def measure_cost(messages: int, segments: int, rounds: int) -> dict[str, Cost]:
    """Both variants in every round, in a random order, each with a new broker and an empty folder."""
    costs = {INLINE: Cost(), LOADED: Cost()}
    for number in range(rounds):
        for variant in random.sample([INLINE, LOADED], 2):
            show_progress(f"round {number + 1} of {rounds}: {variant}, segments: {segments}")
            with measured_broker() as (url, pid):
                httpx.put(f"{url}/v1/topics/{TOPIC}", json={"segments": segments}).raise_for_status()
                httpx.post(f"{url}/v1/topics/{TOPIC}/messages", content=b"first").raise_for_status()
                idle_share = _idle_share(pid)
                started_seconds, begun_at = processor_seconds_with_children(pid), time.perf_counter()
                took_seconds = send(variant, url, messages, segments)
                time.sleep(SETTLE_SECONDS)
                idle_seconds = idle_share * (time.perf_counter() - begun_at)
                spent_seconds = processor_seconds_with_children(pid) - started_seconds - idle_seconds
            costs[variant].cpu_us.append(spent_seconds * 1e6 / messages)
            costs[variant].rates.append(messages / took_seconds)
    return costs


async def measure_disturbance(messages: int) -> tuple[Waits, Waits]:
    """The waits of a publisher without other traffic, and during a bulk load from its beginning to its end."""
    show_progress("a publisher, quiet and during a bulk load")
    with measured_broker() as (url, _):
        httpx.put(f"{url}/v1/topics/{TOPIC}", json={}).raise_for_status()
        async with OnlinePublisher(url, TOPIC) as publisher:
            await asyncio.sleep(SETTLE_SECONDS)
            quiet = time.perf_counter()
            await asyncio.sleep(QUIET_SECONDS)
            started = time.perf_counter()
            await asyncio.to_thread(send, LOADED, url, messages, 1)
            ended = time.perf_counter()
    return waits_of(publisher.published, quiet, started), waits_of(publisher.published, started, ended)


def _idle_share(pid: int) -> float:
    """Processor seconds per second of an idle broker."""
    started_seconds = processor_seconds_with_children(pid)
    time.sleep(IDLE_SECONDS)
    return (processor_seconds_with_children(pid) - started_seconds) / IDLE_SECONDS


def _add_costs(table: Table, segments: int, costs: dict[str, Cost]) -> None:
    for variant, cost in costs.items():
        shown = f"{statistics.median(cost.cpu_us):.3f} us CPU, {statistics.median(cost.rates):,.0f}/s"
        table.add_row(f"{variant}, segments: {segments}, a message", shown, "", "")
    ratio = statistics.median(costs[LOADED].cpu_us) / statistics.median(costs[INLINE].cpu_us)
    table.add_row(
        f"CPU, loaded to inline, segments: {segments}", f"{ratio:.2f}", f"{COST_TARGET:.2f}", _met(ratio <= COST_TARGET)
    )


def _add_disturbance(table: Table, waits: Sequence[tuple[Waits, Waits]]) -> None:
    for what, measured in (
        ("quiet", [quiet for quiet, _ in waits]),
        ("during a bulk load", [busy for _, busy in waits]),
    ):
        p50, p99, pause = (
            statistics.median(getattr(one, name) for one in measured) for name in ("p50_ms", "p99_ms", "pause_ms")
        )
        paused = f"; pause {pause:.0f} ms" if pause else ""
        table.add_row(f"publisher, {what}", f"p50 {p50:.1f} ms, p99 {p99:.1f} ms{paused}", "", "")
    ratio = statistics.median(busy.p99_ms / quiet.p99_ms for quiet, busy in waits)
    table.add_row(
        "p99, bulk load to quiet", f"{ratio:.1f}", f"{DISTURBANCE_TARGET:.1f}", _met(ratio <= DISTURBANCE_TARGET)
    )


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"


if __name__ == "__main__":
    main()
