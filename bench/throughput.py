"""How fast a broker is: publishing as a ratio to the floor, reading back, and tail latency, in one table.

    python bench/throughput.py [--rounds 9] [--seconds 4] [--only CASE ...]

Both sides keep their files in memory (/dev/shm), acks=stored, and `wrk` sends the requests. See bench/README.md.
"""

import statistics
import sys
from collections.abc import Sequence

from rich.table import Table

from bench.harness.publishing import CASES, Compared, compare
from bench.harness.reading_back import Reading, read_back
from bench.harness.running import about, console, run_options, show_progress
from bench.harness.server_process import BenchFailed
from bench.harness.wrk import check_wrk
from bench.tail_latency import TARGET_MS, TailLatency, measure_tail

READING, TAIL = "reading", "tail"
NAMES = [*(case.name for case in CASES), READING, TAIL]


def main() -> None:
    options = run_options(__doc__, NAMES, rounds=9, rounds_help="rounds that count; one more warms up")
    wanted = options.only or NAMES
    try:
        cases = [case for case in CASES if case.name in wanted]
        if cases:
            check_wrk()
        compared = compare(cases, rounds=options.rounds, seconds=options.seconds, show_progress=show_progress)
        readings = read_back(rounds=options.rounds, show_progress=show_progress) if READING in wanted else []
        tail = measure_tail(seconds=2 * options.seconds, show_progress=show_progress) if TAIL in wanted else None
    except BenchFailed as error:
        sys.exit(f"bench: {error}")
    screen = console()
    screen.print(about(options), markup=False)
    screen.print(_table(compared, readings, tail))


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
