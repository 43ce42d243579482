"""What the scrub costs publishers: their latency at a broker that always reads what it has stored, and at another one.

    python bench/scrubbing.py [--rounds 12] [--only CASE ...]

Two brokers run, each on a folder in memory with a topic of 200 MB. One never scrubs. The period of the other one is so
short that it reads as fast as its limit allows. `wrk` posts to one for two seconds, then to the other, in turns.
"""

import argparse
import contextlib
import re
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.harness.publishing import CASES, TOPIC, Case, prepared_body
from bench.harness.reading_back import fill
from bench.harness.server_process import running_server, scratch_folder
from bench.harness.wrk import WrkResult, run_wrk

SECONDS = 2.0
STORED = "stored"
SIDES = {"no scrub": "0", "scrub": "0.00005"}
"""The sides, and their `--scrub-days`: the shorter one is a reading every four seconds."""
_SCRUBBED = re.compile(r"^braidmq_scrubbed_bytes_total ([0-9.e+]+)", re.MULTILINE)


@dataclass(slots=True)
class Side:
    """A broker, and what was measured of it."""

    url: str
    results: list[WrkResult] = field(default_factory=list)
    read_mb_per_second: list[float] = field(default_factory=list)

    def measure(self, case: Case, body: Path, content_type: str) -> None:
        """Publish to it for a while."""
        before, began = self._scrubbed_bytes(), time.perf_counter()
        url = f"{self.url}/v1/topics/{TOPIC}/messages"
        self.results.append(run_wrk(url, body, content_type, connections=case.connections, seconds=SECONDS))
        seconds = time.perf_counter() - began
        self.read_mb_per_second.append((self._scrubbed_bytes() - before) / seconds / 1e6)

    def _scrubbed_bytes(self) -> float:
        found = _SCRUBBED.search(httpx.get(f"{self.url}/metrics").text)
        return float(found[1]) if found else 0.0


@contextlib.contextmanager
def scrubbing_broker(days: str) -> Iterator[Side]:
    """A broker with a topic of 200 MB beside the one that is published to."""
    with scratch_folder() as folder:
        arguments = ["serve", "--data", str(folder / "data"), "--port", "0", "--log-level", "error"]
        with running_server("mq.cli.main", [*arguments, "--scrub-days", days]) as (url, _):
            topic = f"{url}/v1/topics/{STORED}"
            fill(topic)
            # The scrub knows how much there is to read of a segment once it is sealed.
            for segment in httpx.get(f"{topic}/route").json()["segments"]:
                httpx.post(f"{topic}/segments/{segment['segment']}/split").raise_for_status()
            yield Side(url)


def compare(case: Case, rounds: int) -> list[Side]:
    """Both sides of a case, after a round that does not count."""
    with prepared_body(case) as (body, content_type), contextlib.ExitStack() as stack:
        sides = [stack.enter_context(scrubbing_broker(days)) for days in SIDES.values()]
        for side in sides:
            settings = {"segments": case.segments, "acks": "stored", "retention": {"seconds": 10}}
            httpx.put(f"{side.url}/v1/topics/{TOPIC}", json=settings).raise_for_status()
        for number in range(rounds + 1):
            for side in sides if number % 2 else sides[::-1]:
                side.measure(case, body, content_type)
        for side in sides:
            del side.results[0], side.read_mb_per_second[0]
        return sides


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="What the scrub costs publishers.")
    parser.add_argument("--rounds", type=int, default=12, help="rounds that count for each line (12)")
    names = [case.name for case in CASES]
    parser.add_argument("--only", nargs="+", choices=names, default=["single-1", "single-64", "arrow-1k"])
    options = parser.parse_args()
    table = Table(title=f"medians of {options.rounds} rounds of {SECONDS:g} s")
    for column in ("case", "side", "messages/s", "p50", "p99", "read by the scrub"):
        table.add_column(column, justify="left" if column in ("case", "side") else "right")
    for case in (case for case in CASES if case.name in options.only):
        for name, side in zip(SIDES, compare(case, options.rounds), strict=True):
            rate = statistics.median(r.requests * case.messages_per_request / r.seconds for r in side.results)
            table.add_row(
                case.what,
                name,
                f"{rate:,.0f}",
                f"{statistics.median(r.p50_ms for r in side.results):.2f} ms",
                f"{statistics.median(r.p99_ms for r in side.results):.2f} ms",
                f"{statistics.mean(side.read_mb_per_second):.0f} MB/s",
            )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
