"""How fast the broker is: publishing as a ratio to the floor, reading back, and tail latency, in one table.

    python bench/throughput.py [--rounds 9] [--seconds 4] [--only CASE ...]

Both sides keep their files in memory (/dev/shm), acks=stored, and `wrk` makes the load. See bench/README.md.
"""

import argparse
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

from bench.load import check_wrk
from bench.publishing import CASES, Compared, compare
from bench.reading_back import Reading, read_back
from bench.server_process import BenchFailed
from bench.tail_latency import TARGET_MS, TailLatency, measure_tail

READING, TAIL = "reading", "tail"
_PLAIN_WIDTH = 120
NAMES = [*(case.name for case in CASES), READING, TAIL]


def main() -> None:
    options = _options()
    wanted = options.only or NAMES
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PLAIN_WIDTH)
    try:
        cases = [case for case in CASES if case.name in wanted]
        if cases:
            check_wrk()
        compared = compare(cases, rounds=options.rounds, seconds=options.seconds, tell=_tell)
        readings = read_back(rounds=options.rounds, tell=_tell) if READING in wanted else []
        tail = measure_tail(seconds=2 * options.seconds, tell=_tell) if TAIL in wanted else None
    except BenchFailed as error:
        sys.exit(f"bench: {error}")
    console.print(_about(options.rounds, options.seconds), markup=False)
    console.print(_table(compared, readings, tail))


def _tell(doing: str) -> None:
    print(doing, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="rounds that count; one more warms up (9)")
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds of load in each round (4)")
    parser.add_argument("--only", action="append", choices=NAMES, metavar="CASE", help=", ".join(NAMES))
    options = parser.parse_args()
    if options.rounds < 1 or options.seconds < 1:
        parser.error("--rounds and --seconds must be 1 or more")
    return options


def _about(rounds: int, seconds: float) -> str:
    today = datetime.now(UTC).date()
    return f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, {today}; " + (
        f"medians of {rounds} rounds of {seconds:g} s"
    )


def _table(compared: Sequence[Compared], readings: Sequence[Reading], tail: TailLatency | None) -> Table:
    table = Table("case")
    for title in ("floor", "ours", "ratio", "target", ""):
        table.add_column(title, justify="right", no_wrap=True)
    for one in compared:
        floor, ours = statistics.median(one.floor), statistics.median(one.ours)
        met = "met" if one.ratio >= one.case.target else "missed"
        table.add_row(
            one.case.what, f"{floor:,.0f}/s", f"{ours:,.0f}/s", f"{one.ratio:.2f}", f"{one.case.target:.2f}", met
        )
    for reading in readings:
        speed = f"{reading.messages_per_second:,.0f}/s, {reading.mb_per_second:,.0f} MB/s"
        table.add_row(reading.what, "", speed, "", "", "")
    if tail is not None:
        met = "met" if tail.median_ms <= TARGET_MS else "missed"
        shown = f"{tail.median_ms:.1f} ms, p99 {tail.p99_ms:.1f} ms"
        table.add_row("publish sent to subscriber has it, median", "", shown, "", f"{TARGET_MS:g} ms", met)
    return table


if __name__ == "__main__":
    main()
