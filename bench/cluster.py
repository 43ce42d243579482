"""Measure a cluster: acknowledgements, throughput, forwarding, remote subscribers, failover and splits, in one table.

    python bench/cluster.py [--rounds 3] [--seconds 4] [--only CASE ...]

All processes are real: ZooKeeper, a store, brokers. See bench/README.md.
"""

import statistics
import sys
from collections.abc import Iterator, Sequence

from rich.table import Table

from bench import remote_tail
from bench.cluster_throughput import measure_brokers
from bench.failover import measure_failover
from bench.forwarding import Side, measure_forwarding
from bench.harness.ack_latency import measure_acks
from bench.harness.local_cluster import forget_settings
from bench.harness.running import about, console, run_options, show_progress
from bench.harness.server_process import BenchFailed
from bench.harness.wrk import check_wrk
from bench.remote_tail import measure_remote_tail
from bench.splitting import PUTS_OF_A_PAUSE, ChangeTimes, Measured, measure_splits
from filer.errors import BraidError

NAMES = ["acks", "brokers", "forwarding", "subscriber", "failover", "split"]
Row = tuple[str, str, str, str]


def main() -> None:
    options = run_options(__doc__, NAMES, rounds=3, rounds_help="rounds that count")
    table = Table("case", "measured", "target", "")
    try:
        check_wrk()
        forget_settings()
        for name in options.only or NAMES:
            for row in _rows(name, options.rounds, options.seconds):
                table.add_row(*row)
    except (BenchFailed, BraidError) as error:
        sys.exit(f"bench: {error}")
    screen = console()
    screen.print(about(options), markup=False)
    screen.print(table)


def _rows(name: str, rounds: int, seconds: float) -> Iterator[Row]:
    match name:
        case "acks":
            yield from _ack_rows(rounds, seconds)
        case "brokers":
            for throughput in measure_brokers(rounds=rounds, seconds=seconds, show_progress=show_progress):
                yield throughput.what, f"{throughput.messages_per_second:,.0f}/s", "", ""
        case "forwarding":
            for each in measure_forwarding(rounds=rounds, seconds=seconds, show_progress=show_progress):
                yield f"{each.variant.what}, direct", _formatted(each.direct), "", ""
                yield f"{each.variant.what}, forwarded", _formatted(each.forwarded), "", ""
        case "subscriber":
            yield _subscriber_row(seconds)
        case "failover":
            yield from _failover_rows(rounds)
        case "split":
            yield from _split_rows(measure_splits(rounds=rounds, show_progress=show_progress))


def _ack_rows(rounds: int, seconds: float) -> Iterator[Row]:
    for acks in measure_acks(rounds=rounds, seconds=seconds, show_progress=show_progress):
        spaced = "" if acks.variant.spaced else ", files unspaced"
        what = f"acks={acks.variant.acks}{spaced}, publishers: {acks.connections}"
        yield what, f"p50 {acks.p50_ms:.1f} ms, p99 {acks.p99_ms:.1f} ms", "", ""


def _subscriber_row(seconds: float) -> Row:
    tail = measure_remote_tail(seconds=2 * seconds, show_progress=show_progress)
    shown = f"{tail.difference_ms:.1f} ms ({tail.owner_ms:.1f} ms, {tail.other_ms:.1f} ms)"
    target = remote_tail.TARGET_MS
    return "subscriber elsewhere later than at the owner", shown, f"{target:g} ms", _met(tail.difference_ms, target)


def _failover_rows(rounds: int) -> Iterator[Row]:
    for wait in measure_failover(rounds=rounds, show_progress=show_progress):
        what = f"{wait.what}: longest wait"
        worst = max(wait.lost)
        shown = f"{wait.median_seconds:.2f} s, worst {worst:.2f} s"
        yield what, shown, f"{wait.target_seconds:g} s", _met(worst, wait.target_seconds)
        yield f"{wait.what}: segments of the others", f"worst {max(wait.others):.2f} s", "", ""


def _split_rows(measured: Measured) -> Iterator[Row]:
    for change in measured.changes:
        times = len(change.pauses)
        target = f"{PUTS_OF_A_PAUSE} puts and 100 ms: {_spread(change.targets)}"
        met = "met" if change.met == times else f"{change.met} of {times}"
        yield f"{change.what}, {times} times: pause", _spread(change.pauses), target, met
        yield f"{change.what}: a put by itself meanwhile", _spread(change.puts), "", ""
        yield from _wait_rows(change)
    yield "publishes refused and sent again", f"{measured.refused}", "", ""


def _wait_rows(change: ChangeTimes) -> Iterator[Row]:
    yield f"{change.what}: longest publish, its range", _with_before(change.waits, change.waits_before), "", ""
    yield f"{change.what}: longest publish, others", _with_before(change.others, change.others_before), "", ""


def _with_before(seconds: Sequence[float], before: Sequence[float]) -> str:
    return f"{_spread(seconds)}; before: {_spread(before)}"


def _spread(seconds: Sequence[float]) -> str:
    return f"p50 {1000 * statistics.median(seconds):.0f} ms, worst {1000 * max(seconds):.0f} ms"


def _formatted(side: Side) -> str:
    return f"{side.messages_per_second:,.0f}/s, p50 {side.p50_ms:.1f} ms"


def _met(measured: float, target: float) -> str:
    return "met" if measured <= target else "missed"


if __name__ == "__main__":
    main()
