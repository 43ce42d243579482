"""What a cluster does: acknowledgement, throughput, forwarding, subscribers elsewhere and failover, in one table.

    python bench/cluster.py [--rounds 3] [--seconds 4] [--only CASE ...]

Real processes throughout: ZooKeeper, a store, brokers. See bench/README.md.
"""

import argparse
import os
import platform
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

from bench import failover, remote_tail
from bench.acknowledging import measure_acks
from bench.failover import measure_failover
from bench.forwarding import Side, measure_forwarding
from bench.load import check_wrk
from bench.local_cluster import forget_settings
from bench.remote_tail import measure_remote_tail
from bench.server_process import BenchFailed
from bench.spreading import measure_brokers
from filer.errors import BraidError

NAMES = ["acks", "brokers", "forwarding", "subscriber", "failover"]
_PLAIN_WIDTH = 120
Row = tuple[str, str, str, str]


def main() -> None:
    options = _options()
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PLAIN_WIDTH)
    table = Table("case", "measured", "target", "")
    try:
        check_wrk()
        forget_settings()
        for name in options.only or NAMES:
            for row in _rows(name, options.rounds, options.seconds):
                table.add_row(*row)
    except (BenchFailed, BraidError) as error:
        sys.exit(f"bench: {error}")
    today = datetime.now(UTC).date()
    console.print(
        f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, {today}; "
        f"medians of {options.rounds} rounds of {options.seconds:g} s",
        markup=False,
    )
    console.print(table)


def _rows(name: str, rounds: int, seconds: float) -> Iterator[Row]:
    match name:
        case "acks":
            yield from _ack_rows(rounds, seconds)
        case "brokers":
            for carried in measure_brokers(rounds=rounds, seconds=seconds, tell=_tell):
                yield carried.what, f"{carried.messages_per_second:,.0f}/s", "", ""
        case "forwarding":
            for each in measure_forwarding(rounds=rounds, seconds=seconds, tell=_tell):
                yield f"{each.way.what}, direct", _shown(each.direct), "", ""
                yield f"{each.way.what}, forwarded", _shown(each.forwarded), "", ""
        case "subscriber":
            yield _subscriber_row(seconds)
        case "failover":
            yield from _failover_rows(rounds)


def _ack_rows(rounds: int, seconds: float) -> Iterator[Row]:
    for acks in measure_acks(rounds=rounds, seconds=seconds, tell=_tell):
        spaced = "" if acks.way.spaced else ", files unspaced"
        what = f"acks={acks.way.acks}{spaced}, publishers: {acks.connections}"
        yield what, f"p50 {acks.p50_ms:.1f} ms, p99 {acks.p99_ms:.1f} ms", "", ""


def _subscriber_row(seconds: float) -> Row:
    tail = measure_remote_tail(seconds=2 * seconds, tell=_tell)
    shown = f"{tail.difference_ms:.1f} ms ({tail.owner_ms:.1f} ms, {tail.other_ms:.1f} ms)"
    target = remote_tail.TARGET_MS
    return "subscriber elsewhere later than at the owner", shown, f"{target:g} ms", _met(tail.difference_ms, target)


def _failover_rows(rounds: int) -> Iterator[Row]:
    for wait in measure_failover(rounds=rounds, tell=_tell):
        what = f"{wait.what}, session {failover.SESSION_SECONDS:g} s: longest wait"
        worst = max(wait.lost)
        shown = f"{wait.median_seconds:.2f} s, worst {worst:.2f} s"
        yield what, shown, f"{wait.target_seconds:g} s", _met(worst, wait.target_seconds)
        yield f"{wait.what}: segments of the others", f"worst {max(wait.others):.2f} s", "", ""


def _shown(side: Side) -> str:
    return f"{side.messages_per_second:,.0f}/s, p50 {side.p50_ms:.1f} ms"


def _met(measured: float, target: float) -> str:
    return "met" if measured <= target else "missed"


def _tell(doing: str) -> None:
    print(doing, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count (3)")
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds of load in each round (4)")
    parser.add_argument("--only", action="append", choices=NAMES, metavar="CASE", help=", ".join(NAMES))
    options = parser.parse_args()
    if options.rounds < 1 or options.seconds < 1:
        parser.error("--rounds and --seconds must be 1 or more")
    return options


if __name__ == "__main__":
    main()
