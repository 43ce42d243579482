"""What counting traffic costs a broker: its share of the processor time, and the throughput with and without it.

    python bench/counting.py [--rounds 5] [--seconds 4] [--only CASE ...]

Both sides are the real broker with its files in memory (/dev/shm); one of them counts and reports nothing. See
bench/README.md.
"""

import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx
from rich.table import Table

from bench.harness.publishing import CASES, TOPIC, run_case
from bench.harness.reading_back import fill
from bench.harness.running import about, console, run_options, show_progress
from bench.harness.server_process import BenchFailed, counting_broker, scratch_folder
from bench.harness.wrk import check_wrk

COUNTED, UNCOUNTED = "counted", "uncounted"
PUBLISHING = {case.name: case for case in CASES if case.name in ("arrow-1k-4", "single-64", "single-1")}
READING, PAGE_MESSAGES = "reading", 100
NAMES = [*PUBLISHING, READING]


@dataclass(slots=True)
class Cost:
    """Messages per second on each side, and the share of the processor time spent on counting, per round."""

    what: str
    rates: dict[str, list[float]] = field(default_factory=lambda: {COUNTED: [], UNCOUNTED: []})
    shares: list[float] = field(default_factory=list)

    def row(self) -> tuple[str, ...]:
        """The row of the table."""
        counted, uncounted = (statistics.median(self.rates[side]) for side in (COUNTED, UNCOUNTED))
        share = statistics.median(self.shares)
        return self.what, f"{counted:,.0f}/s", f"{uncounted:,.0f}/s", f"{counted / uncounted:.2f}", f"{share:.2%}"


def main() -> None:
    options = run_options(__doc__, NAMES, rounds=5, rounds_help="rounds that count; one more warms up")
    wanted = options.only or NAMES
    try:
        check_wrk()
        costs = measure([name for name in NAMES if name in wanted], rounds=options.rounds, seconds=options.seconds)
    except BenchFailed as error:
        sys.exit(f"bench: {error}")
    screen = console()
    screen.print(about(options), markup=False)
    screen.print(_table(costs))


def measure(names: Sequence[str], *, rounds: int, seconds: float) -> list[Cost]:
    """Measure each case on both sides in every round, in a random order, each in a new process."""
    costs = {name: Cost(_what(name)) for name in names}
    sides = [(name, side) for name in names for side in (COUNTED, UNCOUNTED)]
    for number in range(rounds + 1):
        random.shuffle(sides)
        for name, side in sides:
            show_progress(f"round {number} of {rounds}: {name}, {side}")
            rate, share = _run(name, side, seconds)
            if number:
                costs[name].rates[side].append(rate)
            if number and side == COUNTED:
                costs[name].shares.append(share)
    return list(costs.values())


def _what(name: str) -> str:
    if name == READING:
        return f"reading back, {PAGE_MESSAGES} x 1 KiB a page, JSON"
    return f"publishing, {PUBLISHING[name].what}"


def _run(name: str, side: str, seconds: float) -> tuple[float, float]:
    """Messages per second on a broker of `side`, and the share of its processor time spent on counting."""
    with scratch_folder() as folder:
        with counting_broker(folder, side) as url:
            rate = _rate(name, url, seconds)
        report = json.loads((folder / "report.json").read_text("utf-8"))["read" if name == READING else "stored"]
    return rate, report["counting_seconds"] / report["processor_seconds"] if side == COUNTED else 0.0


def _rate(name: str, url: str, seconds: float) -> float:
    """Messages per second."""
    topic = f"{url}/v1/topics/{TOPIC}"
    if name == READING:
        fill(topic)
        return _reading_rate(topic, seconds)
    case = PUBLISHING[name]
    httpx.put(topic, json={"segments": case.segments}).raise_for_status()
    # On a busy machine the first use takes longer than the warm-up of wrk.
    httpx.post(f"{topic}/messages", content=b"first", timeout=60).raise_for_status()
    result = run_case(case, f"{topic}/messages", seconds)
    return case.messages_per_request * result.requests / result.seconds


def _reading_rate(topic: str, seconds: float) -> float:
    """Read small pages from the start, and start over at the end. Many small answers mean much counting."""
    count, marker = 0, None
    started_seconds = time.perf_counter()
    with httpx.Client(timeout=60) as client:
        while (took_seconds := time.perf_counter() - started_seconds) < seconds:
            position = {"marker": marker} if marker else {"from": "earliest"}
            page = (
                client.get(f"{topic}/messages", params={"limit": PAGE_MESSAGES, **position}).raise_for_status().json()
            )
            count += len(page["messages"])
            marker = page["marker"] if page["messages"] else None
    return count / took_seconds


def _table(costs: Sequence[Cost]) -> Table:
    table = Table("case")
    for title in ("counted", "not counted", "ratio", "share"):
        table.add_column(title, justify="right", no_wrap=True)
    for cost in costs:
        table.add_row(*cost.row())
    return table


if __name__ == "__main__":
    main()
