"""Publishing to and reading from this version and another checkout of the project, in pairs: is anything slower?

    git worktree add /tmp/before HEAD~1 && make -C /tmp/before setup
    python bench/versions.py /tmp/before [--rounds 12] [--only CASE ...] [--with=--tracing=otlp]

Each case has a broker of either version running, on a folder in memory. `wrk` posts to one for a second, then to
the other. The ratio is the median of the pairs: a machine whose speed drifts affects both of a pair. The processor
time a message is steadier than the throughput on a shared machine. With `.` as the other checkout, and an option of
`mq serve` for this one only, this tells what that option costs. The logs go to files in memory.
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.harness.process_use import processor_seconds
from bench.harness.publishing import CASES, TOPIC, Case, prepared_body
from bench.harness.reading_back import fill, through_the_broker
from bench.harness.server_process import back_free_memory, running_server, scratch_folder
from bench.harness.wrk import run_wrk

HERE = Path(__file__).parents[1]
READING = "reading"
_GOLDEN_RATIO = 0.618
"""Its multiples fall evenly between whole numbers."""
_WRITTEN_BYTES = 1024**3
"""More than a broker writes in a second."""


class Side:
    """A broker of one version, and what was measured of it: messages a second, processor seconds a message."""

    def __init__(self, url: str, pid: int, folder: Path) -> None:
        self.rates: list[float] = []
        self.costs: list[float] = []
        self.topic, self._pid, self._folder = f"{url}/v1/topics/{TOPIC}", pid, folder

    def measure(self, work: Callable[[str], tuple[int, float]]) -> None:
        """`work` gets the URL of the topic, and tells how many messages it moved in how many seconds."""
        back_free_memory(self._folder, _WRITTEN_BYTES)
        before_seconds = processor_seconds(self._pid)
        messages, seconds = work(self.topic)
        self.rates.append(messages / seconds)
        self.costs.append((processor_seconds(self._pid) - before_seconds) / messages)


def compare_publishing(case: Case, before: Path, rounds: int, ours_only: Sequence[str]) -> tuple[Side, Side]:
    """Both sides of a case of publishing."""
    with (
        prepared_body(case) as (body, content_type),
        _broker(HERE, ours_only) as ours,
        _broker(before) as theirs,
    ):

        def post(topic: str) -> tuple[int, float]:
            result = run_wrk(f"{topic}/messages", body, content_type, connections=case.connections, seconds=1)
            return result.requests * case.messages_per_request, result.seconds

        sides = Side(*ours), Side(*theirs)
        for side in sides:
            httpx.put(side.topic, json={"segments": case.segments, "acks": "stored"}).raise_for_status()
        return _in_turns(sides, post, rounds)


def compare_reading(before: Path, rounds: int, ours_only: Sequence[str]) -> tuple[Side, Side]:
    """Both sides of reading a whole topic through the broker."""

    def read(topic: str) -> tuple[int, float]:
        started = time.perf_counter()
        return through_the_broker(topic).num_rows, time.perf_counter() - started

    with _broker(HERE, ours_only) as ours, _broker(before) as theirs:
        sides = Side(*ours), Side(*theirs)
        for side in sides:
            fill(side.topic)
        return _in_turns(sides, read, rounds)


def _in_turns(sides: tuple[Side, Side], work: Callable[[str], tuple[int, float]], rounds: int) -> tuple[Side, Side]:
    """Measure the sides in turns; the first round does not count.

    Brokers tidy up at intervals of whole seconds. The pauses keep one from always doing so while it is measured.
    """
    for number in range(rounds + 1):
        for turn, side in enumerate(sides if number % 2 else reversed(sides)):
            time.sleep((2 * number + turn) * _GOLDEN_RATIO % 1)
            side.measure(work)
    for side in sides:
        del side.rates[0], side.costs[0]
    return sides


@contextlib.contextmanager
def _broker(checkout: Path, more: Sequence[str] = ()) -> Iterator[tuple[str, int, Path]]:
    with scratch_folder() as folder:
        arguments = ["serve", "--data", str(folder / "data"), "--port", "0", "--log-level", "error", *more]
        # Of an access log, what matters is what it costs to write, not what a terminal takes to show it.
        with running_server("mq.cli.main", arguments, checkout=checkout, log=folder / "log") as (url, pid):
            yield url, pid, folder


def _ratio(ours: list[float], theirs: list[float]) -> str:
    return f"{statistics.median(one / other for one, other in zip(ours, theirs, strict=True)):.2f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="This version against another checkout, in pairs.")
    parser.add_argument("before", type=Path, help="another checkout, with its own .venv (make setup)")
    parser.add_argument("--rounds", type=int, default=12, help="pairs that count for each case (12)")
    parser.add_argument(
        "--only", action="append", choices=[*(case.name for case in CASES), READING], help="just these cases"
    )
    parser.add_argument(
        "--with", action="append", default=[], dest="ours_only", help="an option of mq serve for this version only"
    )
    options = parser.parse_args()
    if not (options.before / ".venv" / "bin" / "python").exists():
        parser.error(f"{options.before} has no .venv: run make setup there")
    revision = subprocess.run(
        ["git", "-C", str(options.before), "describe", "--always"], capture_output=True, text=True, check=True
    ).stdout.strip()
    table = Table(title=f"this version against {revision}, medians of {options.rounds} pairs")
    for column in ("case", "messages/s", "ratio", "CPU a message", "ratio"):
        table.add_column(column, justify="left" if column == "case" else "right")
    before = options.before.resolve()
    for case in CASES:
        if options.only is None or case.name in options.only:
            table.add_row(case.what, *_cells(*compare_publishing(case, before, options.rounds, options.ours_only)))
    if options.only is None or READING in options.only:
        table.add_row(
            "whole topic through the broker, Arrow",
            *_cells(*compare_reading(before, options.rounds, options.ours_only)),
        )
    Console(width=100).print(table)


def _cells(ours: Side, theirs: Side) -> list[str]:
    return [
        f"{statistics.median(ours.rates):,.0f}",
        _ratio(ours.rates, theirs.rates),
        f"{statistics.median(ours.costs) * 1e6:.2f} us",
        _ratio(ours.costs, theirs.costs),
    ]


if __name__ == "__main__":
    main()
